package pci_test

import (
	"io/fs"
	"path"
	"strings"
	"sync"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// opened records which attributes of which function were read.
type opened struct {
	sync.Mutex
	of map[string][]string
}

func (o *opened) add(name string) {
	o.Lock()
	defer o.Unlock()
	if dir, attribute := path.Split(name); strings.HasPrefix(dir, devicesDir) && dir != devicesDir {
		function := path.Base(dir)
		o.of[function] = append(o.of[function], attribute)
	}
}

func (o *opened) File(name string, _ []byte, _ error) { o.add(name) }
func (o *opened) Link(name, _ string, _ error)        { o.add(name) }
func (o *opened) Dir(string, []string, error)         {}
func (o *opened) Mode(string, fs.FileMode)            {}

const devicesDir = "sys/bus/pci/devices/"

// TestNeeds: of a function that is not needed, only what identifies it and its group is read; a
// needed function is read with all functions that share its slot or group, directly or through
// others, and so are NVIDIA's GPUs.
func TestNeeds(t *testing.T) {
	var tree, links strings.Builder
	for _, f := range []struct{ address, modalias, group string }{
		{"0000:00:01.0", "pci:v00008086d00002F02sv00000000sd00000000bc06sc04i00", "1"},
		{"0000:01:00.0", "pci:v00001002d000074A1sv00000000sd00000000bc12sc00i00", "1"}, // needed
		{"0000:01:00.1", "pci:v00001002d000074A2sv00000000sd00000000bc04sc03i00", "2"}, // in its slot
		{"0000:02:00.0", "pci:v000015B3d00001021sv00000000sd00000000bc02sc07i00", "2"}, // in that one's group
		{"0000:02:00.1", "pci:v000015B3d00001021sv00000000sd00000000bc02sc07i00", "3"}, // in that one's slot
		{"0000:03:00.0", "pci:v000015B3d00001021sv00000000sd00000000bc02sc07i00", "4"}, // in none
		{"0000:04:00.0", "pci:v000010DEd000011B4sv00000000sd00000000bc03sc00i00", "5"}, // NVIDIA's
	} {
		at := devicesDir + f.address
		links.WriteString("symlink " + at + "/iommu_group -> ../../../../kernel/iommu_groups/" + f.group + "\n")
		links.WriteString("symlink " + at + "/driver -> ../../drivers/x\n")
		tree.WriteString("-- " + at + "/modalias --\n" + f.modalias + "\n")
		tree.WriteString("-- " + at + "/vendor --\n0xffff\n-- " + at + "/numa_node --\n1\n-- " + at + "/revision --\n0x01\n")
	}
	root := hosttest.Lay(t, links.String()+tree.String())
	needs := func([]pci.Device) func(*pci.Device) bool {
		return func(d *pci.Device) bool { return d.IsVendor(0x1002) && d.IsGPU() }
	}
	// A recorder is given the files beside the modalias too.
	identifying := "class vendor device subsystem_vendor subsystem_device modalias iommu_group"
	o := opened{of: map[string][]string{}}
	devices, warnings, err := pci.Scan(root.Recorded(&o), pci.Options{Needs: needs})
	if err != nil || len(warnings) > 0 || len(devices) != 7 {
		t.Fatal(len(devices), warnings, err)
	}
	for i := range devices {
		d := &devices[i]
		whole := d.Address.String() != "0000:03:00.0"
		if d.Driver != nil != whole || d.NUMANode != nil != whole || d.SRIOV.Role != nil != whole {
			t.Errorf("%s: driver %v, NUMA node %v, want them read: %v", d.Address, d.Driver, d.NUMANode, whole)
		}
		if d.VendorID == nil || d.Class == nil || d.IOMMUGroup == nil || len(d.GroupMembers) == 0 || d.ClassName == nil {
			t.Errorf("%s is not identified: %+v", d.Address, d)
		}
		for _, attribute := range o.of[d.Address.String()] {
			if !whole && !strings.Contains(identifying, attribute) {
				t.Errorf("%s of %s was read", attribute, d.Address)
			}
		}
	}
	if len(o.of["0000:03:00.0"]) == 0 {
		t.Error("nothing was recorded")
	}

	// Without a recorder, the five files beside a modalias are not opened: one that is a folder is
	// no warning.
	other := hosttest.Lay(t, "mkdir "+devicesDir+"0000:04:00.0/class\n"+links.String()+tree.String())
	if devices, _, err := pci.Scan(other, pci.Options{}); err != nil || len(devices[6].Warnings) > 0 {
		t.Error(devices[6].Warnings, err)
	}
}

// TestNeedsVanished: a function that can be identified but whose folder cannot be opened later has
// a warning, and its driver is unknown.
func TestNeedsVanished(t *testing.T) {
	root := hosttest.Lay(t, "-- "+devicesDir+"0000:04:00.0/modalias --\npci:v00001002d000074A1sv00000000sd00000000bc12sc00i00\n")
	devices, _, err := pci.Scan(root, pci.Options{Needs: func([]pci.Device) func(*pci.Device) bool {
		hosttest.Steps(hosttest.Remove(devicesDir+"0000:04:00.0"))(t, root)
		return func(*pci.Device) bool { return true }
	}})
	if err != nil || len(devices) != 1 {
		t.Fatal(devices, err)
	}
	want := "/" + devicesDir + "0000:04:00.0: no such file or directory"
	if got := strings.Join(devices[0].Warnings, "\n"); got != want || !devices[0].DriverUnread() {
		t.Errorf("warning %q, want %q; driver unread %v", got, want, devices[0].DriverUnread())
	}
}
