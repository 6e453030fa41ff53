package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/change"
	"gpustack/host/container/containerprepare"
	"gpustack/host/driver"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
	"gpustack/operate/node"
)

// The GPUs of the server's cards.
const gpu0, gpu1 = "0000:01:00.0", "0000:02:00.0"

// nvidia gives the second GPU NVIDIA's driver.
func nvidia() hosttest.Step {
	steps := []hosttest.Step{
		bound(gpu1, "nvidia"),
		hosttest.Write("sys/module/nvidia/version", "470.256.02\n"),
		hosttest.Write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Fri May 31 09:35:42 UTC 2024\n"),
		hosttest.Write("proc/devices", "Character devices:\n195 nvidia\n195 nvidiactl\n509 nvidia-uvm\n"),
		hosttest.Write("proc/driver/nvidia/gpus/"+gpu1+"/information", "Model: \t\t Quadro K4200\nDevice Minor: \t 0\n"),
	}
	for name, number := range map[string]string{"nvidia0": "195:0", "nvidiactl": "195:255", "nvidia-uvm": "509:0", "nvidia-uvm-tools": "509:1"} {
		steps = append(steps, hosttest.Write("dev/"+name, "c "+number+" 666\n"))
	}
	for _, name := range []string{"libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"} {
		file := "usr/lib/x86_64-linux-gnu/" + name + ".so."
		steps = append(steps, hosttest.Write(file+"470.256.02", "470.256.02\n"), hosttest.Link(file+"1", name+".so.470.256.02"))
	}
	return hosttest.Steps(steps...)
}

// bound binds a function to a driver.
func bound(function, name string) hosttest.Step {
	return hosttest.Steps(hosttest.Write("sys/bus/pci/drivers/"+name+"/bind", ""),
		hosttest.Link("sys/bus/pci/devices/"+function+"/driver", "../../drivers/"+name))
}

// ofContainers records the second GPU for containers, which have it since the boot.
func ofContainers(t *testing.T, root host.Root) {
	t.Helper()
	nvidia()(t, root)
	seen, _ := node.Observe(t.Context(), root, true)
	m, err := containerprepare.Observe(root, seen)
	hosttest.NoError(t, err)
	_, work, err := on(root).PlanContainers(m, containerprepare.Options{GPUs: []pci.Address{hosttest.Address(t, gpu1)}}, "container prepare")
	hosttest.NoError(t, err)
	if _, err := on(root).Engine(0).Apply(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	hosttest.Write("run/cdi/gpustack-gpu.json", "written by a boot\n")(t, root)
}

// lent is the second GPU when host bind has lent it.
func lent(t *testing.T, root host.Root) {
	t.Helper()
	ofContainers(t, root)
	hosttest.Steps(bound(gpu1, "vfio-pci"), hosttest.Remove("run/cdi/gpustack-gpu.json"), hosttest.Remove("proc/driver/nvidia/gpus/"+gpu1))(t, root)
}

// unreadMounts is a list of mounts that cannot be read: a link to itself.
func unreadMounts(t *testing.T, root host.Root) {
	t.Helper()
	hosttest.Link("proc/mounts", "mounts")(t, root)
}

// brief writes a plan: each function with its drivers, and each file.
func brief(p node.DriversPlan) string {
	var words []string
	for _, c := range p.Changes {
		then := c.After.Driver.String()
		if c.Any {
			then = "any"
		}
		words = append(words, fmt.Sprintf("%s %s>%s", strings.TrimPrefix(c.Address.String(), "0000:"), c.Before.Driver, then))
	}
	for _, a := range p.Containers {
		words = append(words, "containers "+strings.TrimPrefix(a.String(), "0000:"))
	}
	for _, c := range p.Specs.Pending() {
		words = append(words, string(c.Action())+" "+c.Name)
	}
	return strings.Join(words, ", ")
}

// devices returns options that name functions.
func devices(t *testing.T, words ...string) (o selection.Options) {
	t.Helper()
	for _, w := range words {
		s, err := pci.ParseSelector(w)
		hosttest.NoError(t, err)
		o.Add = append(o.Add, s)
	}
	return o
}

// TestBind: what host bind plans and refuses. A function of containers is lent: its CDI spec goes
// first.
func TestBind(t *testing.T) {
	t.Parallel()
	live := bind.Mode{Live: true}
	for name, test := range map[string]struct {
		step    hosttest.Step
		options selection.Options
		mode    bind.Mode
		want    string
		err     string
	}{
		"a card":                {hosttest.Steps(), devices(t, gpu0), live, "01:00.0 nouveau>vfio-pci, 01:00.1 snd_hda_intel>vfio-pci", ""},
		"every card":            {hosttest.Steps(), selection.Options{}, live, "01:00.0 nouveau>vfio-pci, 01:00.1 snd_hda_intel>vfio-pci, 02:00.0 nouveau>vfio-pci, 02:00.1 snd_hda_intel>vfio-pci", ""},
		"it may hang":           {hosttest.Steps(), devices(t, gpu0), bind.Mode{}, "", bind.ErrLive.Error()},
		"bound already":         {hosttest.Steps(bound(gpu0, "vfio-pci"), bound("0000:01:00.1", "vfio-pci")), devices(t, gpu0), live, "", ""},
		"the console":           {hosttest.Write("sys/bus/pci/devices/"+gpu0+"/boot_vga", "1\n"), devices(t, gpu0), live, "", "is the console"},
		"no such function":      {hosttest.Steps(), devices(t, "0000:05:00.0"), live, "", selection.ErrNoDevice.Error()},
		"of containers":         {ofContainers, devices(t, gpu1), live, "02:00.0 nvidia>vfio-pci, 02:00.1 snd_hda_intel>vfio-pci, containers 02:00.0, delete /run/cdi/gpustack-gpu.json", ""},
		"divided by MIG":        {hosttest.Steps(ofContainers, hosttest.Write("proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 3\n")), devices(t, gpu1), live, "", containerprepare.ErrMIG.Error()},
		"not named":             {ofContainers, selection.Options{}, live, "01:00.0 nouveau>vfio-pci, 01:00.1 snd_hda_intel>vfio-pci", ""},
		"a record is malformed": {hosttest.Write(machine.ContractFile, "{"), devices(t, gpu0), live, "", "ends early"},
		"mounts are unread":     {unreadMounts, devices(t, gpu0), live, "", "/proc/mounts"},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			test.step(t, root)
			d, err := on(root).ObserveDrivers(time.Second, false)
			var plan node.DriversPlan
			if err == nil {
				plan, err = d.PlanBind(t.Context(), test.options, test.mode)
			}
			judge(t, plan, err, test.want, test.err)
		})
	}
}

// judge compares a plan of drivers, or the error that refuses it, with what a test wants.
func judge(t *testing.T, plan node.DriversPlan, err error, want, wantErr string) {
	t.Helper()
	hosttest.EqualIn(t, "plan", want, brief(plan))
	if (err == nil) != (wantErr == "") || !strings.Contains(fmt.Sprint(err), wantErr) {
		t.Errorf("%v, want %q", err, wantErr)
	}
}

// TestRelease: what host release plans and refuses. What the host needs is not read, so that it
// cannot keep functions from the host.
func TestRelease(t *testing.T) {
	t.Parallel()
	both := hosttest.Steps(bound(gpu0, "vfio-pci"), bound("0000:01:00.1", "vfio-pci"))
	blacklist := hosttest.Write("etc/modprobe.d/local.conf", "blacklist nvidia\n")
	for name, test := range map[string]struct {
		step    hosttest.Step
		options selection.Options
		to      machine.Role
		want    string
		err     string
	}{
		"a card":                     {both, devices(t, gpu0), "", "01:00.0 vfio-pci>nouveau, 01:00.1 vfio-pci>any", ""},
		"mounts are unread":          {hosttest.Steps(both, unreadMounts), devices(t, gpu0), "", "01:00.0 vfio-pci>nouveau, 01:00.1 vfio-pci>any", ""},
		"nothing is bound":           {hosttest.Steps(), devices(t, gpu0), "", "", ""},
		"to containers":              {lent, selection.Options{}, machine.OfContainer, "02:00.0 vfio-pci>nvidia, containers 02:00.0", ""},
		"of containers, to the host": {lent, devices(t, gpu1), "", "02:00.0 vfio-pci>nouveau", ""},
		"of containers already":      {ofContainers, devices(t, gpu1), machine.OfContainer, "containers 02:00.0", ""},
		"not of containers":          {hosttest.Steps(lent, both), devices(t, gpu0), machine.OfContainer, "", "is not recorded for containers"},
		"the driver is blacklisted":  {hosttest.Steps(lent, blacklist), devices(t, gpu1), machine.OfContainer, "", containerprepare.ErrBlacklisted.Error()},
		"the journal is malformed":   {hosttest.Steps(both, hosttest.Write("var/lib/gpustack/journal/0001.json", "{")), devices(t, gpu0), "", "", "0001.json"},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			test.step(t, root)
			d, err := on(root).ObserveDrivers(time.Second, true)
			var plan node.DriversPlan
			if err == nil {
				plan, err = d.PlanRelease(test.options, test.to)
			}
			judge(t, plan, err, test.want, test.err)
		})
	}
}

// planned returns the plan that binds the first card.
func planned(t *testing.T, root host.Root) (node.Drivers, node.DriversPlan) {
	t.Helper()
	hosttest.Write("proc/sys/kernel/random/boot_id", "this-boot\n")(t, root)
	d, err := on(root).ObserveDrivers(time.Second, false)
	hosttest.NoError(t, err)
	plan, err := d.PlanBind(t.Context(), devices(t, gpu0), bind.Mode{Live: true})
	hosttest.NoError(t, err)
	return d, plan
}

// TestBindRefused: what happens between Plan and Apply is named, and nothing is changed. The tree
// of another machine has no kernel to ask.
func TestBindRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		step hosttest.Step
		want error
	}{
		"another driver": {bound(gpu0, "nvidia"), driver.ErrChanged},
		"the journal is locked": {func(t *testing.T, root host.Root) {
			j, err := change.Machine(root).Lock()
			hosttest.NoError(t, err)
			t.Cleanup(func() { j.Close() })
		}, change.ErrLocked},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			d, plan := planned(t, root)
			if err := d.Ready(); !errors.Is(err, driver.ErrNotLive) {
				t.Errorf("ready: %v", err)
			}
			test.step(t, root)
			before := tree(t, root)
			entry, err := d.Node.Engine(0).Apply(t.Context(), change.Work{Command: "host bind", Change: d.Change(plan, time.Second)})
			if !errors.Is(err, test.want) || entry.ID != 0 {
				t.Errorf("entry %d: %v", entry.ID, err)
			}
			hosttest.EqualIn(t, "changed", before, tree(t, root))
		})
	}
}

// TestPlanBack: undoing host bind returns each function to its former driver, unless the machine
// was booted since. It is refused where a function has another driver since.
func TestPlanBack(t *testing.T) {
	t.Parallel()
	taken := hosttest.Steps(bound(gpu0, "vfio-pci"), bound("0000:01:00.1", "vfio-pci"))
	for name, test := range map[string]struct {
		step hosttest.Step
		want string
		err  string
	}{
		"as it was left":    {hosttest.Steps(taken, overridden("01:00.0"), overridden("01:00.1")), "01:00.1 vfio-pci>snd_hda_intel, 01:00.0 vfio-pci>nouveau", ""},
		"booted since":      {hosttest.Write("proc/sys/kernel/random/boot_id", "another\n"), "", ""},
		"one has changed":   {hosttest.Steps(taken, overridden("01:00.0"), overridden("01:00.1"), bound(gpu0, "pci-stub")), "", driver.ErrChanged.Error()},
		"released meantime": {hosttest.Steps(), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			d, plan := planned(t, root)
			entry := change.Entry{Schema: 1, ID: 1, Changes: change.KindDrivers, Status: change.Done}
			hosttest.NoError(t, d.Change(plan, time.Second).Record(&entry))
			test.step(t, root)
			d, err := on(root).ObserveDrivers(time.Second, true)
			hosttest.NoError(t, err)
			back, err := d.PlanBack(context.Background(), opened(t, d, entry), false)
			judge(t, back, err, test.want, test.err)
		})
	}
}

// overridden sets the driver_override of a function as host bind leaves it.
func overridden(function string) hosttest.Step {
	return hosttest.Write("sys/bus/pci/devices/0000:"+function+"/driver_override", "vfio-pci\n")
}

// opened returns the change of drivers that an entry records.
func opened(t *testing.T, d node.Drivers, entry change.Entry) *driver.Binding {
	t.Helper()
	for _, kind := range d.Node.Engine(0).Kinds {
		if kind.Name() != change.KindDrivers {
			continue
		}
		c, err := kind.Open(t.Context(), entry)
		hosttest.NoError(t, err)
		return c.(*driver.Binding)
	}
	t.Fatal("no kind for drivers")
	return nil
}
