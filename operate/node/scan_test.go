package node_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/container/containercheck"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/operate/node"
)

// filter returns a filter of devices.
func filter(t *testing.T, words ...string) pci.Filter {
	t.Helper()
	return pci.Filter{Devices: devices(t, words...).Add}
}

// outline writes a scan: its functions with state and role, and the next command.
func outline(r node.Scan) string {
	var words []string
	for _, d := range r.Devices {
		state, role := "-", "-"
		if d.State != nil {
			state = string(*d.State)
		}
		if d.Role != nil {
			role = string(*d.Role)
		}
		words = append(words, fmt.Sprintf("%s %s %s", strings.TrimPrefix(d.Address.String(), "0000:"), state, role))
	}
	return strings.Join(words, ", ") + "; " + nextOf(r)
}

// nextOf returns the command that a scan proposes, "" for none.
func nextOf(r node.Scan) string {
	if r.Next == nil {
		return ""
	}
	return r.Next.Command.String()
}

// TestScan: which functions a scan lists, with state and role, and which command it proposes.
func TestScan(t *testing.T) {
	t.Parallel()
	taken := hosttest.Each(func(f string) hosttest.Step { return bound("0000:"+f, "vfio-pci") })
	for name, test := range map[string]struct {
		step     hosttest.Step
		options  node.ScanOptions
		want     string
		scope    nova.Scope
		complete bool
		err      string
	}{
		"GPUs":               {hosttest.Steps(), node.ScanOptions{}, "01:00.0 host host, 01:00.1 host host, 02:00.0 host host, 02:00.1 host host; gpustack host prepare --dry-run", nova.ScopeGPUs, true, ""},
		"one of them":        {hosttest.Steps(), node.ScanOptions{Filter: filter(t, gpu1)}, "02:00.0 host host; gpustack host prepare --dry-run --device 0000:02:00.0", nova.ScopeFiltered, false, ""},
		"none that is there": {hosttest.Steps(), node.ScanOptions{Filter: filter(t, "0000:05:00.0")}, "", "", false, "device 0000:05:00.0: not among the 7 PCI functions of this machine"},
		"the console":        {hosttest.Write("sys/bus/pci/devices/"+gpu0+"/boot_vga", "1\n"), node.ScanOptions{}, "01:00.0 host host, 01:00.1 host host, 02:00.0 host host, 02:00.1 host host; gpustack host prepare --dry-run --device 0000:02:00.0", nova.ScopeGPUs, true, ""},
		"one for containers": {ofContainers, node.ScanOptions{}, "01:00.0 host host, 01:00.1 host host, 02:00.0 blocked container, 02:00.1 host host; gpustack host prepare --dry-run", nova.ScopeGPUs, true, ""},
		"bound": {taken, node.ScanOptions{},
			"01:00.0 unknown host, 01:00.1 unknown host, 02:00.0 unknown host, 02:00.1 unknown host; gpustack host check", nova.ScopeGPUs, true, ""},
		"prepared": {func(t *testing.T, root host.Root) { prepared(t, root, nil) }, node.ScanOptions{},
			"01:00.0 host guest, 01:00.1 host guest, 02:00.0 host guest, 02:00.1 host guest; gpustack host check", nova.ScopeGPUs, true, ""},
		"a class is unread": {hosttest.Steps(hosttest.Remove("sys/bus/pci/devices/0000:04:00.0/modalias"),
			hosttest.Remove("sys/bus/pci/devices/0000:04:00.0/class")), node.ScanOptions{},
			"01:00.0 host host, 01:00.1 host host, 02:00.0 host host, 02:00.1 host host; gpustack host prepare --dry-run", nova.ScopeGPUs, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			test.step(t, root)
			r, all, err := node.ReadScan(root, test.options)
			if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Fatalf("%v, want %s", err, test.err)
			}
			if err != nil {
				return
			}
			if got := outline(r); got != test.want || r.Scope != test.scope || r.Complete != test.complete || len(all) != 7 {
				t.Errorf("%s, %s, complete: %v, of %d\nwant %s", got, r.Scope, r.Complete, len(all), test.want)
			}
		})
	}
}

// TestScanDocument: what only documents show is read for them alone, and what cannot be read is a
// warning.
func TestScanDocument(t *testing.T) {
	t.Parallel()
	conf := hosttest.Write("etc/nova/nova.conf", "[DEFAULT]\nhost = compute-7\n")
	for name, test := range map[string]struct {
		step    hosttest.Step
		options node.ScanOptions
		nova    string
		machine bool
		warning string
	}{
		"a table":          {conf, node.ScanOptions{}, "", false, ""},
		"a document":       {conf, node.ScanOptions{Document: true}, "compute-7", false, ""},
		"without a name":   {hosttest.Steps(), node.ScanOptions{Document: true}, "node", false, ""},
		"with the machine": {conf, node.ScanOptions{Machine: true}, "", true, ""},
		"nova.conf is unread": {hosttest.Write("etc/nova/nova.conf/x", ""), node.ScanOptions{Document: true}, "", false,
			"cannot determine the host's name in Nova: "},
		"the record is malformed": {hosttest.Write(machine.ContractFile, "{"), node.ScanOptions{}, "", false, "cannot determine which GPUs are prepared: "},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			hosttest.Steps(hosttest.Write("etc/hostname", "node\n"), test.step)(t, root)
			r, _, err := node.ReadScan(root, test.options)
			hosttest.NoError(t, err)
			got := ""
			if r.NovaHost != nil {
				got = *r.NovaHost
			}
			if got != test.nova || (r.Machine != nil) != test.machine {
				t.Errorf("in Nova %q, machine %v", got, r.Machine)
			}
			warnings := strings.Join(r.AllWarnings(), "\n")
			if test.warning != "" && !strings.Contains(warnings, test.warning) || test.warning == "" && strings.Contains(warnings, "cannot determine") {
				t.Errorf("warnings %q, want %q", warnings, test.warning)
			}
		})
	}
}

// TestPlanCommand: where host prepare refuses what it selects by default, host check proposes the
// command that host scan does, unless there are several reasons, which have remedies of their own.
func TestPlanCommand(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	const plan = "gpustack host prepare --dry-run"
	console := hosttest.Write("sys/bus/pci/devices/"+gpu0+"/boot_vga", "1\n")
	for name, test := range map[string]struct {
		step    hosttest.Step
		refused []error
		want    string
	}{
		"as it is":            {hosttest.Steps(), nil, plan},
		"the console":         {console, []error{refused}, plan + " --device " + gpu1},
		"bound by others":     {hosttest.Link("sys/bus/pci/devices/"+gpu0+"/driver", "../../../bus/pci/drivers/vfio-pci"), nil, plan},
		"several reasons":     {console, []error{refused, refused}, plan},
		"prepared":            {func(t *testing.T, root host.Root) { prepared(t, root, nil) }, nil, plan},
		"no function is read": {hosttest.Remove("sys/bus/pci"), nil, plan},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			test.step(t, root)
			m := machine.ObserveCheck(root, nil, nil)
			hosttest.Equal(t, test.want, node.PlanCommand(root, m, test.refused).String())
		})
	}
}

// TestRDMAScan: which adapters are listed, with the links to GPUs, and what uses their VFs.
func TestRDMAScan(t *testing.T) {
	t.Parallel()
	const other = "0000:0d:00.0"
	for name, test := range map[string]struct {
		step     hosttest.Step
		only     []pci.Address
		adapters int
		links    int
		warning  string
		err      string
	}{
		"all":                    {hosttest.Steps(), nil, 1, 2, "", ""},
		"one":                    {hosttest.Steps(), []pci.Address{hosttest.Address(t, adapter)}, 1, 2, "", ""},
		"one that is not there":  {hosttest.Steps(), []pci.Address{hosttest.Address(t, other)}, 0, 0, "", other},
		"one that is no adapter": {hosttest.Steps(), []pci.Address{hosttest.Address(t, gpu0)}, 0, 0, "", gpu0},
		"a record is malformed":  {hosttest.Write("var/lib/gpustack/rdma.json", "{"), nil, 1, 2, "adapters that are assigned to guests as a whole are not listed: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			test.step(t, root)
			r, all, err := node.ReadRDMA(root, test.only, true)
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Fatalf("%v, want %s", err, test.err)
			}
			if len(r.Adapters) != test.adapters || len(r.Links) != test.links || err == nil && len(all) != 7 {
				t.Errorf("%d adapters, %d links, %d functions", len(r.Adapters), len(r.Links), len(all))
			}
			if text := strings.Join(r.Warnings, "\n"); !strings.Contains(text, test.warning) || test.warning == "" && text != "" {
				t.Errorf("warnings %q", text)
			}
		})
	}
}

// TestOffered: which GPUs nova-compute offers to guests, and by which line. Absent, unset and
// unreadable configurations are different answers.
func TestOffered(t *testing.T) {
	t.Parallel()
	conf := func(text string) hosttest.Step { return hosttest.Write("etc/nova/nova.conf", text) }
	byProduct := `[pci]` + "\n" + `device_spec = {"vendor_id": "10de", "product_id": "11b4"}` + "\n"
	for name, test := range map[string]struct {
		step hosttest.Step
		want string
		virt string
		err  string
	}{
		"no nova.conf":          {hosttest.Steps(), "", "", ""},
		"nothing":               {conf("[libvirt]\nvirt_type = kvm\n"), "", "kvm", ""},
		"by product":            {conf(byProduct), gpu0 + ":2 false, " + gpu1 + ":2 false", "", ""},
		"by address":            {conf("[pci]\ndevice_spec = {\"address\": \"" + gpu1 + "\"}\n"), gpu1 + ":2 true", "", ""},
		"the first line counts": {conf(byProduct + "device_spec = {\"address\": \"" + gpu1 + "\"}\n"), gpu0 + ":2 false, " + gpu1 + ":2 false", "", ""},
		"no GPU":                {conf("[pci]\ndevice_spec = {\"vendor_id\": \"8086\", \"product_id\": \"1533\"}\n"), "0000:04:00.0:2 false", "", ""},
		"unread":                {hosttest.Write("etc/nova/nova.conf/x", ""), "", "", "nova.conf"},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			test.step(t, root)
			all := hosttest.Devices(t, root)
			offered := node.Offered(root, all)
			hosttest.Equal(t, test.want, lines(offered.Value))
			virt := node.ReadVirtType(root)
			hosttest.EqualIn(t, "virt_type", test.virt, virt.Value)
			for _, err := range []error{offered.Err, virt.Err} {
				if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v, want %q", err, test.err)
				}
			}
		})
	}
}

// lines writes offered functions: address, line, and whether the spec names the address.
func lines(offered []containercheck.Offered) string {
	var words []string
	for _, o := range offered {
		words = append(words, fmt.Sprintf("%s:%d %v", o.Address, o.Line, o.ByAddress))
	}
	return strings.Join(words, ", ")
}

// TestScanOfProcesses: a document names the container that has a GPU open and the driver's version.
// A GPU that is bound to VFIO is no free one while no process can be seen.
func TestScanOfProcesses(t *testing.T) {
	t.Parallel()
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	driven := hosttest.Steps(bound(gpu0, "nvidia"), bound(gpu1, "nvidia"), hosttest.Write("sys/module/nvidia/version", "580.95.05\n"),
		hosttest.Write("proc/driver/nvidia/gpus/"+gpu0+"/information", "Device Minor: 	 0\n"),
		hosttest.Write("proc/driver/nvidia/gpus/"+gpu1+"/information", "Device Minor: 	 1\n"))
	process := func(pid, cgroup, file string) hosttest.Step {
		return hosttest.Steps(hosttest.Write("proc/"+pid+"/comm", "python3\n"),
			hosttest.Write("proc/"+pid+"/stat", pid+" (python3) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 1 1 1 1\n"),
			hosttest.Write("proc/"+pid+"/cgroup", cgroup), hosttest.Link("proc/"+pid+"/fd/3", file), hosttest.Write("proc/"+pid+"/task/"+pid+"/maps", ""))
	}
	in := process("77", "0::/system.slice/docker-"+id+".scope\n", "/dev/nvidia0")
	for name, test := range map[string]struct {
		step    hosttest.Step
		want    [2]string // the containers of both GPUs
		version string
		unknown int
	}{
		"no process":        {driven, [2]string{"null", "null"}, "580.95.05", 0},
		"in a container":    {hosttest.Steps(driven, in), [2]string{"container 0123456789ab", ""}, "580.95.05", 0},
		"outside of one":    {hosttest.Steps(driven, process("77", "0::/user.slice\n", "/dev/nvidia0")), [2]string{"", ""}, "580.95.05", 0},
		"only shared nodes": {hosttest.Steps(driven, process("77", "0::/system.slice/docker-"+id+".scope\n", "/dev/nvidia-uvm")), [2]string{"", ""}, "580.95.05", 0},
		"bound to VFIO":     {hosttest.Each(func(f string) hosttest.Step { return bound("0000:"+f, "vfio-pci") }), [2]string{"null", "null"}, "null", 2},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			test.step(t, root)
			r, _, err := node.ReadScan(root, node.ScanOptions{Document: true})
			hosttest.NoError(t, err)
			text := func(s *string) string {
				if s == nil {
					return "null"
				}
				return *s
			}
			var got [2]string
			for _, d := range r.Devices {
				switch d.Address.String() {
				case gpu0:
					got[0] = text(d.Container)
					hosttest.EqualIn(t, "version", test.version, text(d.DriverVersion))
				case gpu1:
					got[1] = text(d.Container)
				}
			}
			if got != test.want || r.GPUs.Unknown != test.unknown || r.GPUs.GuestReady != 0 {
				t.Errorf("containers %q, want %q; %+v", got, test.want, r.GPUs)
			}
		})
	}
}
