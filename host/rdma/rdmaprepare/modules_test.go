package rdmaprepare_test

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// TestMissing: what guests and InfiniBand need of the machine.
func TestMissing(t *testing.T) {
	without := func(module string) func(*testing.T, *rdmaprepare.Machine) {
		return func(t *testing.T, m *rdmaprepare.Machine) {
			root := hosttest.Lay(t, "-- lib/modules/6.1/modules.dep --\nkernel/"+module+".ko:\n")
			names, err := modprobe.ReadNames(root, "6.1")
			if err != nil {
				t.Fatal(err)
			}
			m.Kernels = []modprobe.Modules{names}
		}
	}
	contract := func(_ *testing.T, m *rdmaprepare.Machine) {
		m.IOMMU, m.Contract = iommu.State{Enabled: host.No}, &machine.Contract{}
	}
	for _, test := range []struct {
		name   string
		change func(*testing.T, *rdmaprepare.Machine)
		use    rdma.Use
		want   string
	}{
		{"IOMMU off", func(_ *testing.T, m *rdmaprepare.Machine) { m.IOMMU.Enabled = host.No }, rdma.ForGuests,
			"the IOMMU is off, so no guest can have a device"},
		{"IOMMU off, and on from the next boot", contract, rdma.ForGuests, ""},
		{"IOMMU off, for containers", func(_ *testing.T, m *rdmaprepare.Machine) { m.IOMMU.Enabled = host.No }, rdma.ForContainers, ""},
		{"no ib_ipoib", without("vfio-pci"), rdma.ForGuests,
			"0000:0c:00.0: no installed kernel has the module ib_ipoib, through whose interface the kernel sets the GUIDs of VFs"},
		{"no vfio-pci", without("ib_ipoib"), rdma.ForGuests, "no installed kernel has the module vfio-pci"},
		{"no vfio-pci, for containers", without("ib_ipoib"), rdma.ForContainers, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, machineOf([]hca{infiniband()}, "", ""))
			m, err := rdmaprepare.Observe(root, machine.Observe(root, machine.Record, machine.Options{}), guard.Running{}, rdmaprepare.Options{Add: []pci.Address{{}}})
			if err != nil {
				t.Fatal(err)
			}
			test.change(t, &m)
			_, err = rdmaprepare.NewWant(m, rdmaprepare.Options{Add: []pci.Address{address("0c:00.0")}, VFs: 2, Use: test.use})
			if err == nil && test.want != "" || err != nil && err.Error() != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// TestInitramfs: an initramfs is regenerated if it has a module whose parameters change.
func TestInitramfs(t *testing.T) {
	exclusive := rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2, Netns: rdma.NetnsExclusive}
	shared := rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2}
	const module = "usr/lib/modules/6.1.0-28-amd64/kernel/drivers/infiniband/core/ib_core.ko.xz"
	for _, test := range []struct {
		name    string
		module  string
		options rdmaprepare.Options
		want    []host.Program
	}{
		{"with the module", module, exclusive, []host.Program{{Kind: host.UpdateInitramfs}}},
		{"without it", "usr/lib/modules/6.1.0-28-amd64/kernel/fs/ext4.ko", exclusive, nil},
		{"without a parameter", module, shared, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, machineOf([]hca{ethernet()}, "", "-- usr/sbin/mkinitramfs --\n-- boot/initrd.img-6.1.0-28-amd64 --\n"))
			if err := os.WriteFile(root.Path("/boot/initrd.img-6.1.0-28-amd64"), []byte(newc(test.module)+newc("TRAILER!!!")), 0o644); err != nil {
				t.Fatal(err)
			}
			p, text := plan(t, root, test.options)
			if text != "" || !slices.EqualFunc(p.Programs, test.want, host.Program.Equal) {
				t.Errorf("%s, %v, want %v", text, p.Programs, test.want)
			}
		})
	}
}

// images counts how often an initramfs image is unpacked.
type images struct{ n int }

func (i *images) File(name string, data []byte, _ error) {
	if strings.HasPrefix(name, "boot/initrd.img-") && data != nil {
		i.n++
	}
}

func (*images) Dir(string, []string, error) {}
func (*images) Link(string, string, error)  {}
func (*images) Mode(string, fs.FileMode)    {}

// TestImagesUnpacked: an image is unpacked, which takes seconds, if the parameters of a module
// change, and else it is not.
func TestImagesUnpacked(t *testing.T) {
	exclusive := &rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2, Netns: rdma.NetnsExclusive}
	shared := &rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2}
	more := &rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 4}
	none := &rdmaprepare.Options{None: true}
	for name, test := range map[string]struct {
		first, then *rdmaprepare.Options
		want        int
	}{
		"a parameter is set":               {nil, exclusive, 1},
		"no parameter is set":              {nil, shared, 0},
		"again":                            {exclusive, exclusive, 0},
		"again, without options":           {exclusive, &rdmaprepare.Options{}, 0},
		"more VFs, and the same parameter": {exclusive, more, 0},
		"the parameter is removed":         {exclusive, none, 1},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, machineOf([]hca{ethernet()}, "", "-- usr/sbin/mkinitramfs --\n-- boot/initrd.img-6.1.0-28-amd64 --\n"))
			image := newc("usr/lib/modules/6.1.0-28-amd64/kernel/drivers/infiniband/core/ib_core.ko.xz") + newc("TRAILER!!!")
			if err := os.WriteFile(root.Path("/boot/initrd.img-6.1.0-28-amd64"), []byte(image), 0o644); err != nil {
				t.Fatal(err)
			}
			if test.first != nil {
				p, text := plan(t, root, *test.first)
				if text != "" {
					t.Fatal(text)
				}
				apply(t, root, p)
			}
			var read images
			p, text := plan(t, root.Recorded(&read), *test.then)
			if text != "" || read.n != test.want || p.Initramfs != (test.want > 0) {
				t.Errorf("%s, unpacked %d times, want %d; regenerated: %v", text, read.n, test.want, p.Initramfs)
			}
			if _, err := rdmaprepare.ReadPending(root.Recorded(&read)); err != nil || read.n != test.want {
				t.Errorf("whether a reboot is pending: %v, unpacked %d times", err, read.n-test.want)
			}
		})
	}
}

// newc returns an entry of a cpio archive: an empty file (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst).
func newc(name string) string {
	head := "070701"
	fields := map[int]int{1: 0o100644, 4: 1, 11: len(name) + 1}
	for i := range 13 {
		head += fmt.Sprintf("%08x", fields[i])
	}
	entry := head + name + "\x00"
	return entry + strings.Repeat("\x00", (4-len(entry)%4)%4)
}

// TestWholeIsBound: a whole adapter that is bound to vfio-pci has no RDMA device any more, and can
// be named again.
func TestWholeIsBound(t *testing.T) {
	root := hosttest.Lay(t, machineOf([]hca{infiniband()}, "", ""))
	whole := rdmaprepare.Options{Add: []pci.Address{address("0c:00.0")}, Whole: true, Allow: []pci.Address{address("0c:00.0")}}
	p, text := plan(t, root, whole)
	if text != "" {
		t.Fatal(text)
	}
	apply(t, root, p)
	for _, name := range []string{"/sys/class/infiniband/mlx5_0", "/sys/devices/pci0000:00/0000:00:01.0/0000:0c:00.0/driver"} {
		if err := os.Remove(root.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if p, text = plan(t, root, whole); text != "" || len(p.Files.Pending()) > 0 {
		t.Errorf("again: %s, %v", text, p.Files.Pending())
	}
	whole.Use = rdma.ForContainers
	if p, text = plan(t, root, whole); text != "" || p.Record.Adapters[0].Use != rdma.ForContainers {
		t.Errorf("for containers: %s, %v", text, p.Record.Adapters)
	}
	if _, text = plan(t, root, rdmaprepare.Options{Add: whole.Add, VFs: 2}); text != "0000:0c:00.0: has no RDMA device" {
		t.Errorf("VFs: %s", text)
	}
}
