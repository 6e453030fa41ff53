package driver_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// served is the machine with the driver nvidia and two services that have its GPUs open, each as
// the process whose id is in the unit's file. The GPU of the second card is in persistence mode.
var served = `symlink proc/7/fd/3 -> /dev/nvidia0
symlink proc/7/fd/4 -> /dev/nvidia1
symlink proc/8/fd/3 -> /dev/nvidia0
symlink proc/8/fd/4 -> /dev/nvidia1
mkdir proc/9/fd` + strings.ReplaceAll(machine, "nouveau", "nvidia") + `-- proc/driver/nvidia/gpus/0000:01:00.0/information --
Device Minor: 0
-- proc/driver/nvidia/gpus/0000:02:00.0/information --
Device Minor: 1
-- units/nvidia-persistenced.service --
active 7
-- units/nvidia-dcgm.service --
active 8
-- persistence/0000:01:00.0 --
0
-- persistence/0000:02:00.0 --
1
`

// servicePlan is the plan that binds one card to vfio-pci, or both, with the services around it.
func servicePlan(t testing.TB, root host.Root, cards ...string) driver.Plan {
	t.Helper()
	var of []string
	for _, f := range functions {
		if slices.Contains(cards, f[:2]) {
			of = append(of, f)
		}
	}
	p := bindPlan(t, root, "vfio-pci", of...)
	two := address(t, "02:00.0")
	p.Services = driver.Services{Stop: []string{"nvidia-dcgm.service", driver.Persistenced}, Were: []pci.Address{two}, Off: []pci.Address{two}}
	if !slices.Contains(cards, "02") {
		p.Services.Off, p.Services.On = []pci.Address{}, []pci.Address{two}
	}
	if len(cards) == 1 {
		p.Services.Start = []string{driver.Persistenced, "nvidia-dcgm.service"}
	}
	return p
}

// Run imitates systemctl and nvidia-smi on files: units are in /units, with their process, which
// has both GPUs open while it runs; modes are in /persistence. A unit that starts without a GPU
// fails.
func (k *kernel) Run(_ context.Context, argv []string) ([]byte, error) {
	file := func(unit string) string { return k.root.Path("/units/" + unit) }
	switch {
	case argv[0] == "systemctl" && argv[1] == "show":
		var out strings.Builder
		for _, unit := range argv[slices.Index(argv, "--")+1:] {
			text, err := os.ReadFile(file(unit))
			k.check(err)
			fields, load := strings.Fields(string(text)), "loaded"
			if fields[0] == "masked" {
				fields[0], load = "inactive", "masked"
			}
			fmt.Fprintf(&out, "Id=%s\nLoadState=%s\nActiveState=%s\nSubState=%s\nCanStart=yes\nCanStop=yes\n", unit, load, fields[0], "of "+fields[0])
			if len(fields) > 2 {
				out.WriteString("Job=" + fields[2] + "\n")
			}
			out.WriteString("\n")
		}
		return []byte(out.String()), nil
	case argv[0] == "systemctl":
		verb, unit := argv[1], argv[len(argv)-1]
		return nil, k.asked(func() error {
			k.log = append(k.log, verb+" "+unit)
			text, err := os.ReadFile(file(unit))
			k.check(err)
			fields := strings.Fields(string(text))
			state := k.stays(verb, unit)
			if state == "" {
				state = map[string]string{"stop": "inactive", "start": "active"}[verb]
			}
			if state == "active" && len(k.gpus()) == 0 {
				state = "failed"
			}
			k.open(fields[1], state == "active" || state == "deactivating")
			return os.WriteFile(file(unit), []byte(state+" "+fields[1]+"\n"), 0o600)
		})
	case argv[0] == "nvidia-smi" && argv[3] == "-pm":
		return nil, k.asked(func() error {
			k.log = append(k.log, strings.Join(argv[1:], " "))
			if k.smi != nil {
				return k.smi
			}
			return os.WriteFile(k.root.Path("/persistence/"+argv[2]), []byte(argv[4]+"\n"), 0o600)
		})
	}
	k.t.Errorf("%q", argv)
	return nil, host.ErrNoProgram
}

// open gives a process the nodes of both GPUs, or none.
func (k *kernel) open(pid string, on bool) {
	for i := range 2 {
		link := k.root.Path(path.Join("/proc", pid, "fd", fmt.Sprint(i+3)))
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			k.t.Fatal(err)
		}
		if on {
			k.check(os.Symlink(fmt.Sprintf("/dev/nvidia%d", i), link))
		}
	}
}

// gpus are the display functions that the driver nvidia has.
func (k *kernel) gpus() (list []string) {
	for _, f := range functions {
		if k.driver("0000:"+f) == "nvidia" {
			list = append(list, f)
		}
	}
	return list
}

// serve makes a kernel whose driver nvidia never returns from unbinding a GPU that is open or in
// persistence mode.
func serve(t testing.TB, root host.Root) *kernel {
	k := newKernel(t, root)
	k.takes = func(name, address string) bool {
		return name == "nvidia" && strings.HasSuffix(address, ".0") || name == "snd_hda_intel" && strings.HasSuffix(address, ".1")
	}
	k.fault = func(w driver.Write) error {
		if !strings.Contains(w.File, "/nvidia/unbind") {
			return nil
		}
		minor := map[string]string{"0000:01:00.0": "0", "0000:02:00.0": "1"}[w.Value]
		open, err := filepath.Glob(root.Path("/proc/*/fd/*"))
		k.check(err)
		for _, link := range open {
			if target, err := os.Readlink(link); err == nil && target == "/dev/nvidia"+minor {
				return host.ErrStuck
			}
		}
		if mode, err := os.ReadFile(root.Path("/persistence/" + w.Value)); err != nil || string(mode) == "1\n" {
			if unit, err := os.ReadFile(root.Path("/units/" + driver.Persistenced)); err != nil || strings.HasPrefix(string(unit), "active") || minor == "1" {
				return host.ErrStuck
			}
		}
		return nil
	}
	return k
}

// services is the state of the units and modes, and of the drivers.
func services(t testing.TB, root host.Root) string {
	t.Helper()
	text := states(t, root)
	for _, pattern := range []string{"/units/*", "/persistence/*"} {
		files, err := filepath.Glob(root.Path(pattern))
		hosttest.NoError(t, err)
		for _, f := range files {
			data := hosttest.Read(t, f)
			text += filepath.Base(f) + " " + data
		}
	}
	return text
}

const servedAtFirst = `01:00.0 nvidia
01:00.1 snd_hda_intel
02:00.0 nvidia
02:00.1 snd_hda_intel
02:00.2 no driver
nvidia-dcgm.service active 8
nvidia-persistenced.service active 7
0000:01:00.0 0
0000:02:00.0 1
`

// TestServices: services stop before a GPU leaves the driver nvidia, and start again where another
// stays; undo restores them and persistence mode.
func TestServices(t *testing.T) {
	for _, test := range []struct {
		name          string
		cards         []string
		want, undo    []string
		bound, inBind string
	}{
		{"one stays", []string{"02"}, []string{
			"stop nvidia-dcgm.service", "stop nvidia-persistenced.service", "-i 0000:02:00.0 -pm 0", "load vfio-pci",
			"start nvidia-persistenced.service", "start nvidia-dcgm.service",
		}, []string{
			"stop nvidia-dcgm.service", "stop nvidia-persistenced.service",
			"start nvidia-persistenced.service", "start nvidia-dcgm.service", "-i 0000:02:00.0 -pm 1",
		}, "02", "active"},
		{"another one in persistence mode stays", []string{"01"}, []string{
			"stop nvidia-dcgm.service", "stop nvidia-persistenced.service", "load vfio-pci",
			"start nvidia-persistenced.service", "start nvidia-dcgm.service", "-i 0000:02:00.0 -pm 1",
		}, []string{
			"stop nvidia-dcgm.service", "stop nvidia-persistenced.service",
			"start nvidia-persistenced.service", "start nvidia-dcgm.service", "-i 0000:02:00.0 -pm 1",
		}, "01", "active"},
		{"none stays", []string{"01", "02"}, []string{
			"stop nvidia-dcgm.service", "stop nvidia-persistenced.service", "-i 0000:02:00.0 -pm 0", "load vfio-pci",
		}, []string{"start nvidia-persistenced.service", "start nvidia-dcgm.service", "-i 0000:02:00.0 -pm 1"}, "", "inactive"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, served)
			k := serve(t, root)
			b := binder(t, root, k)
			programs := func() (list []string) {
				for _, line := range k.log {
					if !strings.Contains(line, " > ") && !strings.HasPrefix(line, "open ") {
						list = append(list, line)
					}
				}
				k.log = nil
				return list
			}
			e, err := b.Apply(t.Context(), servicePlan(t, root, test.cards...), "test")
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.want, programs())
			if got := services(t, root); !strings.Contains(got, "nvidia-dcgm.service "+test.inBind) || !strings.Contains(got, "nvidia-persistenced.service "+test.inBind) {
				t.Errorf("bound:\n%s", got)
			}
			if _, err := b.Undo(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			hosttest.EqualIn(t, "undo", test.undo, programs())
			hosttest.EqualIn(t, "undone", servedAtFirst, services(t, root))
		})
	}
}

// TestServicesFail: whatever fails, drivers, services and persistence mode are as before, and no
// entry is left.
func TestServicesFail(t *testing.T) {
	once := func(verb, unit, state string) func(string, string) string {
		done := false
		return func(v, u string) string {
			if v == verb && u == unit && !done {
				done = true
				return state
			}
			return ""
		}
	}
	for _, test := range []struct {
		name  string
		fault func(k *kernel)
		want  string
	}{
		{"a unit does not stop", func(k *kernel) { k.stays = once("stop", driver.Persistenced, "deactivating") },
			"nvidia-persistenced.service: did not stop in time (30ms): deactivating (of deactivating)"},
		{"a unit does not start again", func(k *kernel) { k.stays = once("start", "nvidia-dcgm.service", "failed") },
			"nvidia-dcgm.service: did not start: failed (of failed)"},
		{"a process that outlives its unit", func(k *kernel) {
			k.stays = func(verb, unit string) string {
				if verb == "stop" && unit == driver.Persistenced {
					k.open("9", true)
				}
				return ""
			}
		}, "0000:02:00.0:  (pid 9) has /dev/nvidia1 open"},
		{"nvidia-smi fails", func(k *kernel) {
			failed := false
			k.die = func(_ int, done bool) {
				if k.smi = nil; len(k.log) == 2 && !failed && !done {
					k.smi, failed = errors.New("nvidia-smi: exit status 15"), true
				}
			}
		}, "nvidia-smi: exit status 15"},
		{"the driver refuses", func(k *kernel) { k.answer("nvidia/unbind 0000:02:00.0", errors.New("no")) }, "0000:02:00.0: unbind from nvidia: no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, served)
			k := serve(t, root)
			test.fault(k)
			_, err := binder(t, root, k).Apply(t.Context(), servicePlan(t, root, "02"), "test")
			hosttest.Equal(t, test.want, fmt.Sprint(err))
			hosttest.Equal(t, servedAtFirst, services(t, root))
			if left := entries(t, root); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestServicesInterrupted ends the context before each request: services are as before.
func TestServicesInterrupted(t *testing.T) {
	for _, cards := range [][]string{{"02"}, {"01", "02"}} {
		for at := 1; ; at++ {
			root := hosttest.Lay(t, served)
			ctx, cancel := context.WithCancelCause(context.Background())
			k := serve(t, root)
			k.die = func(count int, done bool) {
				if count == at && !done {
					cancel(errSignal)
				}
			}
			_, err := binder(t, root, k).Apply(ctx, servicePlan(t, root, cards...), "test")
			if err == nil {
				if at < 10 {
					t.Errorf("only %d requests", at)
				}
				break
			}
			want := "interrupted, all drivers were rolled back, and services are as before; modules stay loaded: vfio-pci"
			if !errors.Is(err, errSignal) || err.Error() != want {
				t.Errorf("at %d: %v", at, err)
			}
			if diff := cmp.Diff(servedAtFirst, services(t, root)); diff != "" || len(entries(t, root)) > 0 {
				t.Errorf("at %d (-want +got):\n%s", at, diff)
			}
		}
	}
}

// TestServicesKilled kills runs between all requests. The next run recovers: services run wherever
// the driver nvidia has a GPU, and undo restores what is left.
func TestServicesKilled(t *testing.T) {
	for _, what := range []string{"one", "both", "undo one", "undo both"} {
		cards := []string{"01", "02"}
		if strings.HasSuffix(what, "one") {
			cards = cards[1:]
		}
		for count := 1; ; count++ {
			root := hosttest.Lay(t, served)
			if strings.HasPrefix(what, "undo") {
				if _, err := binder(t, root, serve(t, root)).Apply(t.Context(), servicePlan(t, root, cards...), "test"); err != nil {
					t.Fatal(err)
				}
			}
			when := fmt.Sprintf("after%d", count)
			out, err := exec.Command(os.Args[0], "die", root.Path("/"), "service "+what, when).CombinedOutput()
			if err == nil {
				if count < 10 {
					t.Errorf("%s: only %d requests: %s", what, count, out)
				}
				break
			}
			if !strings.Contains(err.Error(), "killed") {
				t.Fatalf("%s %s: %v: %s", what, when, err, out)
			}
			b := binder(t, root, serve(t, root))
			if dealt, err := b.Recover(t.Context()); err != nil || len(dealt) != 1 {
				t.Fatal(what, when, dealt, err)
			}
			state := "inactive"
			if len(b.Kernel.(*kernel).gpus()) > 0 {
				state = "active"
			}
			if got := services(t, root); !strings.Contains(got, "nvidia-dcgm.service "+state) || !strings.Contains(got, "nvidia-persistenced.service "+state) {
				t.Errorf("%s %s: recovered, want %s:\n%s", what, when, state, got)
			}
			if e, err := change.Pick(entries(t, root), 0); err == nil {
				if _, err := b.Undo(t.Context(), e); err != nil {
					t.Fatal(what, when, err)
				}
			}
			hosttest.EqualIn(t, what+" "+when+": undone", servedAtFirst, services(t, root))
		}
	}
}

// TestServicesJob: a systemctl that outlives the killed run may have asked systemd to stop a unit
// that still runs. Recovery starts it, which replaces that job.
func TestServicesJob(t *testing.T) {
	root := hosttest.Lay(t, served)
	if out, err := exec.Command(os.Args[0], "die", root.Path("/"), "service one", "after1").CombinedOutput(); err == nil {
		t.Fatalf("%s", out)
	}
	k := serve(t, root)
	k.check(os.WriteFile(root.Path("/units/"+driver.Persistenced), []byte("active 7 42\n"), 0o600))
	if dealt, err := binder(t, root, k).Recover(t.Context()); err != nil || len(dealt) != 1 {
		t.Fatal(dealt, err)
	}
	if !slices.Contains(k.log, "start "+driver.Persistenced) {
		t.Errorf("%q", k.log)
	}
	hosttest.Equal(t, servedAtFirst, services(t, root))
}

// TestServicesMasked: what a recovery leaves to the operator is said after what it has done,
// wherever the run was killed.
func TestServicesMasked(t *testing.T) {
	const left = "; " + driver.Persistenced + " stays stopped: it is masked"
	for what, want := range map[string][]string{
		"one": {"was interrupted: complete IOMMU groups stay as changed: 0000:02:00.0, 0000:02:00.1, 0000:02:00.2" + left,
			"was interrupted: rolled back" + left},
		"undo one": {"was being undone: finished" + left, "was interrupted: complete IOMMU groups stay as changed: 0000:02:00.0, 0000:02:00.1, 0000:02:00.2" + left},
	} {
		said := map[string]bool{}
		for count := 1; ; count++ {
			root := hosttest.Lay(t, served)
			if what == "undo one" {
				if _, err := binder(t, root, serve(t, root)).Apply(t.Context(), servicePlan(t, root, "02"), "test"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := exec.Command(os.Args[0], "die", root.Path("/"), "service "+what, fmt.Sprintf("after%d", count)).CombinedOutput(); err == nil {
				break
			}
			k := serve(t, root)
			k.check(os.WriteFile(root.Path("/units/"+driver.Persistenced), []byte("masked 7\n"), 0o600))
			dealt, err := binder(t, root, k).Recover(t.Context())
			if err != nil || len(dealt) != 1 {
				t.Fatal(what, count, dealt, err)
			}
			said[dealt[0].Text] = true
		}
		hosttest.EqualIn(t, what, want, slices.Sorted(maps.Keys(said)))
	}
}

// TestReadUnits: units are read with all that systemd stops with them.
func TestReadUnits(t *testing.T) {
	shown := map[string]string{
		"a.service": "Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\nJob=12\nCanStop=yes\nCanStart=no\nRequiredBy=b.service c.service\nConsistsOf=b.service\n",
		"b.service": "Id=b.service\nLoadState=loaded\nActiveState=inactive\nSubState=dead\nBoundBy=a.service\n",
		"c.service": "Id=c.service\nLoadState=not-found\nActiveState=failed\nSubState=failed\n",
	}
	run := func(_ context.Context, argv []string) ([]byte, error) {
		var blocks []string
		for _, name := range argv[slices.Index(argv, "--")+1:] {
			blocks = append(blocks, shown[name])
		}
		return []byte(strings.Join(blocks, "\n")), nil
	}
	units, err := driver.ReadUnits(t.Context(), run, []string{"a.service"})
	want := map[string]driver.Unit{
		"a.service": {Name: "a.service", Load: "loaded", Active: "active", Sub: "running", Job: true, CanStop: true, Needs: []string{"b.service", "c.service"}},
		"b.service": {Name: "b.service", Load: "loaded", Active: "inactive", Sub: "dead", Needs: []string{"a.service"}},
		"c.service": {Name: "c.service", Load: "not-found", Active: "failed", Sub: "failed", Needs: []string{}},
	}
	if diff := cmp.Diff(want, units); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for text, want := range map[string]string{
		"":               `systemctl show: not a unit as systemctl shows one: ""`,
		"Id=a.service\n": `systemctl show: not a unit as systemctl shows one: Id "a.service", LoadState "", ActiveState ""`,
		shown["a.service"] + "\n" + shown["c.service"]: "systemctl show: not a unit as systemctl shows one: 2 of 1 are shown",
	} {
		_, err := driver.ReadUnits(t.Context(), func(context.Context, []string) ([]byte, error) { return []byte(text), nil }, []string{"a.service"})
		hosttest.Equal(t, want, fmt.Sprint(err))
	}
	_, err = driver.ReadUnits(t.Context(), func(context.Context, []string) ([]byte, error) { return nil, host.ErrNoProgram }, []string{"a.service"})
	if !errors.Is(err, driver.ErrNoSystemd) {
		t.Errorf("without systemctl: %v", err)
	}
}

// TestReadPersistence: modes as nvidia-smi prints them.
func TestReadPersistence(t *testing.T) {
	for text, want := range map[string]string{
		"00000000:84:00.0, Enabled\n00010000:3B:00.0, Disabled\n": "map[0000:84:00.0:true 10000:3b:00.0:false] <nil>",
		"No devices were found\n":                                 `map[] nvidia-smi: the persistence mode of its GPUs is unknown: "No devices were found"`,
		"00000000:84:00.0, [N/A]\n":                               `map[] nvidia-smi: the persistence mode of its GPUs is unknown: "00000000:84:00.0, [N/A]"`,
		"":                                                        "map[] <nil>",
	} {
		modes, err := driver.ReadPersistence(t.Context(), func(context.Context, []string) ([]byte, error) { return []byte(text), nil })
		hosttest.Equal(t, want, fmt.Sprint(modes, " ", err))
	}
}

// TestServicesReleased: services that were stopped for good are started by host release, once, and
// its undo stops them before the GPUs leave again.
func TestServicesReleased(t *testing.T) {
	root := hosttest.Lay(t, served)
	k := serve(t, root)
	b := binder(t, root, k)
	if _, err := b.Apply(t.Context(), servicePlan(t, root, "01", "02"), "host bind"); err != nil {
		t.Fatal(err)
	}
	bound := services(t, root)
	stopped := func() driver.Services {
		s, err := driver.Stopped(root, entries(t, root))
		hosttest.NoError(t, err)
		return s
	}
	two := address(t, "02:00.0")
	want := driver.Services{Start: []string{driver.Persistenced, "nvidia-dcgm.service"}, On: []pci.Address{two}}
	hosttest.EqualIn(t, "stopped", want, stopped())
	var goals []driver.Goal
	for _, a := range functions {
		goal := driver.Goal{Address: address(t, a), State: hosts[a]}
		if goal.Driver == "nouveau" {
			goal.Driver = "nvidia"
		}
		goals = append(goals, goal)
	}
	p := plan(t, root, goals, true)
	p.Services = stopped()
	e, err := b.Apply(t.Context(), p, "host release")
	hosttest.NoError(t, err)
	hosttest.EqualIn(t, "released", servedAtFirst, services(t, root))
	if s := stopped(); len(s.Start) > 0 {
		t.Errorf("still stopped: %q", s.Start)
	}
	if _, err := b.Undo(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	hosttest.EqualIn(t, "bound again", bound, services(t, root))
	boot(t, root)
	if s := stopped(); len(s.Start)+len(s.On) > 0 {
		t.Errorf("after a boot: %v", s)
	}
}
