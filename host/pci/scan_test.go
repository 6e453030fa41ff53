package pci_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

func scan(t *testing.T, tree string) ([]pci.Device, []string) {
	t.Helper()
	devices, warnings, err := pci.Scan(hosttest.Lay(t, tree), pci.Options{})
	hosttest.NoError(t, err)
	return devices, warnings
}

const dir = "/sys/bus/pci/devices/0000:84:00.0"

// modalias is a well-formed one.
const modalias = "modalias = pci:v000010DEd000011B4sv0000103Csd00001096bc03sc02i00"

// TestAttributes shows, for each attribute, what becomes of its value when it is
// right, absent, malformed and unreadable. Fields are named as in JSON.
func TestAttributes(t *testing.T) {
	for _, test := range []struct {
		name    string
		files   string // below the function's folder; "NAME = VALUE" each, or a command of the archive
		field   string
		want    string // JSON
		warning string // the whole of it, below the function's folder
	}{
		{"class", "class = 0x030200", "class", `"0302"`, ""},
		{"class absent", "", "class", `null`, ""},
		{"class malformed", "class = 0x3D", "class", `null`, `/class: not a PCI class: "0x3D"`},
		{"class empty", "class =", "class", `null`, `/class: not a PCI class: ""`},
		{"class is a folder", "mkdir class", "class", `null`, `/class: is a directory`},
		{"vendor", "vendor = 0x10de", "vendor_id", `"10de"`, ""},
		{"vendor absent", "device = 0x11b4", "vendor_id", `null`, ""},
		{"vendor malformed", "vendor = NVIDIA", "vendor_id", `null`, `/vendor: not an id of four hexadecimal digits: "NVIDIA"`},
		{"vendor is a link", "symlink vendor -> /etc/shadow", "vendor_id", `null`, `/vendor: too many levels of symbolic links`},
		{"product", "device = 0x11b4", "product_id", `"11b4"`, ""},
		{"product malformed", "device = 0x11b", "product_id", `null`, `/device: not an id of four hexadecimal digits: "0x11b"`},
		{"subsystem vendor", "subsystem_vendor = 0x1028", "subsystem_vendor_id", `"1028"`, ""},
		{"subsystem", "subsystem_device = 0x0518", "subsystem_id", `"0518"`, ""},
		{"revision", "revision = 0xA1", "revision", `"a1"`, ""},
		{"revision malformed", "revision = a1a1", "revision", `null`, `/revision: not a revision of two hexadecimal digits: "a1a1"`},
		{"modalias", modalias, "modalias", `"pci:v000010DEd000011B4sv0000103Csd00001096bc03sc02i00"`, ""},
		{"vendor from the modalias alone", modalias, "vendor_id", `"10de"`, ""},
		{"product from the modalias alone", modalias, "product_id", `"11b4"`, ""},
		{"subsystem vendor from the modalias alone", modalias, "subsystem_vendor_id", `"103c"`, ""},
		{"subsystem from the modalias alone", modalias, "subsystem_id", `"1096"`, ""},
		{"class from the modalias alone", modalias, "class", `"0302"`, ""},
		{"files beside a modalias are not read", modalias + "\nvendor = NVIDIA\nclass = 0x3D\nmkdir device", "vendor_id", `"10de"`, ""},
		{"modalias malformed", "modalias = pci:v000010DEd000011B4", "modalias", `"pci:v000010DEd000011B4"`,
			`/modalias: not the modalias of a PCI function: "pci:v000010DEd000011B4"`},
		{"modalias in lower case", "modalias = pci:v000010ded000011b4sv0000103csd00001096bc03sc02i00\nvendor = 0x8086", "vendor_id", `"8086"`,
			`/modalias: not the modalias of a PCI function: "pci:v000010ded000011b4sv0000103csd00001096bc03sc02i00"`},
		{"files beside a malformed modalias", "modalias = pci:\nvendor = 0x10de", "vendor_id", `"10de"`, `/modalias: not the modalias of a PCI function: "pci:"`},
		{"files beside an unreadable modalias", "mkdir modalias\nclass = 0x030200", "class", `"0302"`, `/modalias: is a directory`},
		{"modalias empty", "modalias =", "modalias", `null`, `/modalias: empty`},
		{"modalias of bytes that steer a terminal", "modalias = pci:\x1b[31m", "modalias", `null`, `/modalias: not plain text: "pci:\x1b[31m"`},
		{"driver", "symlink driver -> ../../drivers/nouveau", "driver", `"nouveau"`, ""},
		{"driver absent", "class = 0x030000", "driver", `null`, ""},
		{"driver is a file", "driver = nouveau", "driver", `null`, `/driver: invalid argument`},
		{"override", "driver_override = vfio-pci", "driver_override", `"vfio-pci"`, ""},
		{"no override, as the kernel prints it", "driver_override = (null)", "driver_override", `null`, ""},
		{"group", "symlink iommu_group -> ../../../../kernel/iommu_groups/42", "iommu_group", `42`, ""},
		{"group malformed", "symlink iommu_group -> ../../../../kernel/iommu_groups/x", "iommu_group", `null`, `/iommu_group: not a count: "x"`},
		{"NUMA node", "numa_node = 1", "numa_node", `1`, ""},
		{"no NUMA node, as the kernel prints it", "numa_node = -1", "numa_node", `null`, ""},
		{"NUMA node malformed", "numa_node = -2", "numa_node", `null`, `/numa_node: not a NUMA node: "-2"`},
		{"an NVIDIA display controller", "class = 0x030200\nvendor = 0x10de", "candidate", `true`, ""},
		{"an NVIDIA accelerator", "class = 0x120000\nvendor = 0x10de", "candidate", `true`, ""},
		{"another vendor's accelerator", "class = 0x120000\nvendor = 0x1002", "candidate", `false`, ""},
		{"boot VGA", "boot_vga = 1", "boot_vga", `true`, ""},
		{"not boot VGA", "boot_vga = 0", "boot_vga", `false`, ""},
		{"boot VGA malformed", "boot_vga = yes", "boot_vga", `null`, `/boot_vga: neither 0 nor 1: "yes"`},
		{"reset methods", "reset_method = flr bus", "reset_methods", `["flr","bus"]`, ""},
		{"no reset method", "reset_method =", "reset_methods", `[]`, ""},
		{"reset methods not told", "", "reset_methods", `null`, ""},
		{"no SR-IOV", "class = 0x030200", "sriov", `{"role":"none","total_vfs":null,"num_vfs":null,"pf":null}`, ""},
		{"physical function", "sriov_totalvfs = 16\nsriov_numvfs = 2", "sriov", `{"role":"pf","total_vfs":16,"num_vfs":2,"pf":null}`, ""},
		{"virtual function", "symlink physfn -> ../0000:84:00.4", "sriov", `{"role":"vf","total_vfs":null,"num_vfs":null,"pf":"0000:84:00.4"}`, ""},
		{"physical function malformed", "symlink physfn -> ../pf", "sriov",
			`{"role":null,"total_vfs":null,"num_vfs":null,"pf":null}`, `/physfn: not a PCI address: "pf"`},
		{"number of VFs malformed", "sriov_totalvfs = many", "sriov", `{"role":null,"total_vfs":null,"num_vfs":null,"pf":null}`,
			`/sriov_totalvfs: not a count: "many"`},
		{"Nova's type of a plain function", "class = 0x030200", "device_type", `"type-PCI"`, ""},
		{"Nova's type of a physical function, none enabled", "sriov_totalvfs = 16\nsriov_numvfs = 0", "device_type", `"type-PF"`, ""},
		{"Nova's type where the driver allows no VF", "sriov_totalvfs = 0\nsriov_numvfs = 0", "device_type", `"type-PCI"`, ""},
		{"Nova's type of a virtual function", "symlink physfn -> ../0000:84:00.4", "device_type", `"type-VF"`, ""},
		{"Nova's type unknown", "sriov_totalvfs = many", "device_type", `null`, `/sriov_totalvfs: not a count: "many"`},
		{"a GPU", "class = 0x030200\nvendor = 0x10de", "candidate", `true`, ""},
		{"a virtual function of a GPU is no default", "class = 0x030200\nvendor = 0x10de\nsymlink physfn -> ../0000:84:00.4", "candidate", `false`, ""},
		{"a sound function is no GPU", "class = 0x040300\nvendor = 0x10de", "candidate", `false`, ""},
		{"another's display is no candidate", "class = 0x030000\nvendor = 0x1a03", "candidate", `false`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			devices, warnings := scan(t, folder(test.files))
			if len(devices) != 1 || len(warnings) > 0 {
				t.Fatalf("%d functions, warnings %q", len(devices), warnings)
			}
			hosttest.EqualIn(t, test.field, test.want, fields(t, devices[0])[test.field])
			var want []string
			if test.warning != "" {
				want = []string{dir + test.warning}
			}
			hosttest.EqualIn(t, "warnings", want, devices[0].Warnings, cmp.Comparer(func(a, b []string) bool {
				return strings.Join(a, "\n") == strings.Join(b, "\n")
			}))
		})
	}
}

// folder makes a tree of one function of files.
func folder(files string) string {
	comment, archive := "mkdir sys/bus/pci/devices/0000:84:00.0\n", ""
	for line := range strings.Lines(files) {
		line = strings.TrimSuffix(line, "\n")
		if name, value, ok := strings.Cut(line, " ="); ok {
			archive += "-- " + dir[1:] + "/" + name + " --\n" + strings.TrimPrefix(value, " ") + "\n"
			continue
		}
		command, rest, _ := strings.Cut(line, " ")
		comment += command + " " + dir[1:] + "/" + rest + "\n"
	}
	return comment + archive
}

// fields returns a function's JSON by field.
func fields(t *testing.T, d pci.Device) map[string]string {
	t.Helper()
	text, err := json.Marshal(d)
	hosttest.NoError(t, err)
	var raw map[string]json.RawMessage
	hosttest.NoError(t, json.Unmarshal(text, &raw))
	fields := map[string]string{}
	for name, value := range raw {
		fields[name] = string(value)
	}
	return fields
}

func TestOneBadFunctionEmptiesNoList(t *testing.T) {
	devices, warnings := scan(t, `
symlink sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0
symlink sys/bus/pci/devices/0000:02:00.0 -> ../../../devices/pci0000:00/gone/0000:02:00.0
symlink sys/bus/pci/devices/0000:03:00.0 -> ../../../devices/pci0000:00/0000:09:00.0
mkdir sys/bus/pci/devices/nonsense
mkdir sys/bus/pci/devices/0000:0A:00.0
-- sys/devices/pci0000:00/0000:01:00.0/vendor --
0x10de
-- sys/devices/pci0000:00/0000:09:00.0/vendor --
0x8086
-- sys/bus/pci/devices/0000:04:00.0 --
a file
-- sys/bus/pci/devices/20000:00:00.0/modalias --
-- sys/bus/pci/devices/10000:00:00.0/vendor --
0x144d
`)
	want := "01:00.0 02:00.0 03:00.0 04:00.0 10000:00:00.0 20000:00:00.0"
	if got := addresses(devices); got != want {
		t.Errorf("got %s, want %s, in order of address", got, want)
	}
	wantWarnings := []string{
		`/sys/bus/pci/devices/0000:0A:00.0: not as the kernel writes 0000:0a:00.0`,
		`/sys/bus/pci/devices/nonsense: not a PCI address: "nonsense"`,
	}
	hosttest.EqualIn(t, "warnings", wantWarnings, warnings)
	for i, want := range []string{
		"",
		"/sys/bus/pci/devices/0000:02:00.0: no such file or directory",
		"/sys/bus/pci/devices/0000:03:00.0: leads to ../../../devices/pci0000:00/0000:09:00.0",
		"/sys/bus/pci/devices/0000:04:00.0: not a directory",
		"",
		"/sys/bus/pci/devices/20000:00:00.0/modalias: empty",
	} {
		hosttest.EqualIn(t, fmt.Sprintf("%s: warning", devices[i].Address), want, strings.Join(devices[i].Warnings, "\n"))
	}
	if !devices[1].DriverUnread() || devices[0].DriverUnread() {
		t.Error("what drives a function is unknown where its folder cannot be read, and there only")
	}
}

func TestParents(t *testing.T) {
	devices, _ := scan(t, `
symlink sys/bus/pci/devices/0000:80:02.0 -> ../../../devices/pci0000:80/0000:80:02.0
symlink sys/bus/pci/devices/0000:84:00.0 -> ../../../devices/pci0000:80/0000:80:02.0/0000:84:00.0
symlink sys/bus/pci/devices/10000:e1:00.0 -> ../../../devices/pci0000:80/0000:80:05.5/pci10000:e0/10000:e0:01.0/10000:e1:00.0
symlink sys/bus/pci/devices/10000:e0:01.0 -> ../../../devices/pci0000:80/0000:80:05.5/pci10000:e0/10000:e0:01.0
mkdir sys/devices/pci0000:80/0000:80:02.0/0000:84:00.0
mkdir sys/devices/pci0000:80/0000:80:05.5/pci10000:e0/10000:e0:01.0/10000:e1:00.0
mkdir sys/bus/pci/devices/0000:90:00.0
`)
	for i, want := range []struct{ parent, controller string }{
		{"null", "null"}, {`"0000:80:02.0"`, "null"}, {"null", "null"},
		{"null", `"0000:80:05.5"`}, {`"10000:e0:01.0"`, `"0000:80:05.5"`}, // of a VMD controller
	} {
		got := fields(t, devices[i])
		if got["parent"] != want.parent || got["controller"] != want.controller {
			t.Errorf("%s: parent %s, controller %s, want %+v", devices[i].Address, got["parent"], got["controller"], want)
		}
	}
}

func TestGroupMembersNeedNoGroupFolder(t *testing.T) {
	devices, _ := scan(t, `
symlink sys/bus/pci/devices/0000:01:00.0/iommu_group -> ../../../../kernel/iommu_groups/7
symlink sys/bus/pci/devices/0000:01:00.1/iommu_group -> ../../../../kernel/iommu_groups/7
mkdir sys/bus/pci/devices/0000:02:00.0
`)
	for i, want := range []string{`["0000:01:00.0","0000:01:00.1"]`, `["0000:01:00.0","0000:01:00.1"]`, `[]`} {
		hosttest.EqualIn(t, fmt.Sprintf("%s: members", devices[i].Address), want, fields(t, devices[i])["group_members"])
	}
}

func TestScanFails(t *testing.T) {
	for _, test := range []struct {
		name, tree, want string
		noPCI            bool
	}{
		{"no sys", "mkdir etc\n", "no PCI devices folder", true},
		{"sys without PCI", "mkdir sys/bus\n", "no PCI devices folder", true},
		{"sys is a file", "-- sys --\n", "not a directory", false},
		{"the list is a file", "-- sys/bus/pci/devices --\n", "not a directory", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, test.tree)
			devices, _, err := pci.Scan(root, pci.Options{})
			if err == nil || devices != nil {
				t.Fatalf("%d functions and no error", len(devices))
			}
			if want := "/sys/bus/pci/devices: " + test.want; err.Error() != want {
				t.Errorf("error %q, want %q", err, want)
			}
			if errors.Is(err, pci.ErrNoPCI) != test.noPCI {
				t.Errorf("ErrNoPCI %v", !test.noPCI)
			}
		})
	}
}

func TestMachineWithoutFunctions(t *testing.T) {
	devices, warnings := scan(t, "mkdir sys/bus/pci/devices\n")
	if devices == nil || len(devices) != 0 || len(warnings) != 0 {
		t.Errorf("functions %v, warnings %v", devices, warnings)
	}
}

// What is written to JSON is what is read back: nova configure takes inventories.
func TestDeviceRoundTrip(t *testing.T) {
	devices, _ := scan(t, folder(`class = 0x030200
vendor = 0x10de
device = 0x20b2
subsystem_vendor = 0x10de
revision = 0xa1
numa_node = 1
boot_vga = 0
reset_method = flr
sriov_totalvfs = 20
sriov_numvfs = 0
symlink driver -> ../../drivers/nvidia
symlink iommu_group -> ../../../../kernel/iommu_groups/9`))
	text, err := json.Marshal(devices)
	hosttest.NoError(t, err)
	var back []pci.Device
	hosttest.NoError(t, json.Unmarshal(text, &back))
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(text) {
		t.Errorf("%v\nwrote %s\nread  %s", err, text, again)
	}
	if *back[0].AliasHint != "A100-SXM4-80GB" || *back[0].DeviceType != pci.TypePF {
		t.Errorf("read %s", text)
	}
}

// FuzzAttributes feeds one value to every attribute: the list must stand, and
// each attribute must be known, absent or warned of. boot_vga is not read of
// functions of another class, and a text that is no modalias is shown with a warning.
func FuzzAttributes(f *testing.F) {
	for _, seed := range []string{"0x10de\n", "0x030000\n", "-1\n", "(null)\n", "1\n", "flr bus\n", "", "\x00\n", "0x", "ff\nff\n",
		"pci:v000010DEd000011B4sv0000103Csd00001096bc03sc00i00\n"} {
		f.Add([]byte(seed))
	}
	names := []string{
		"class", "vendor", "device", "subsystem_vendor", "subsystem_device", "revision", "modalias",
		"driver_override", "numa_node", "boot_vga", "reset_method", "sriov_totalvfs", "sriov_numvfs",
	}
	tree := f.TempDir()
	folder := filepath.Join(tree, dir)
	hosttest.NoError(f, os.MkdirAll(folder, 0o755))
	root := hosttest.Root(f, tree)
	f.Fuzz(func(t *testing.T, value []byte) {
		for _, name := range names {
			hosttest.NoError(t, os.WriteFile(filepath.Join(folder, name), value, 0o600))
		}
		devices, warnings, err := pci.Scan(root, pci.Options{})
		if err != nil || len(devices) != 1 || len(warnings) > 0 {
			t.Fatalf("%d functions, warnings %q, %v", len(devices), warnings, err)
		}
		d := devices[0]
		known := 0
		_, noModalias := pci.ParseModalias(strings.TrimSuffix(string(value), "\n"))
		for _, is := range []bool{
			d.Class != nil, d.VendorID != nil, d.ProductID != nil, d.SubsystemVendorID != nil, d.SubsystemID != nil,
			d.Revision != nil, d.Modalias != nil && noModalias == nil, d.DriverOverride != nil || strings.TrimSuffix(string(value), "\n") == "(null)",
			d.NUMANode != nil || strings.TrimSuffix(string(value), "\n") == "-1", d.BootVGA.Known() || d.Class != nil && !d.IsDisplay() && *d.Class != 1,
			d.ResetMethods != nil,
			d.SRIOV.TotalVFs != nil, d.SRIOV.NumVFs != nil,
		} {
			if is {
				known++
			}
		}
		if known+len(d.Warnings) != len(names) {
			t.Fatalf("%q: %d values known and %d warnings, of %d attributes\n%s", value, known, len(d.Warnings), len(names), d.Warnings)
		}
	})
}
