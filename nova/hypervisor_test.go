package nova_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

func TestInstalledHypervisor(t *testing.T) {
	const debian = "-- var/lib/dpkg/status --\nPackage: libvirt-daemon\nStatus: install ok installed\nVersion: 10.0.0-2ubuntu8\n\nPackage: qemu-system-x86\nStatus: install ok installed\nVersion: 1:8.2.2+ds-0ubuntu1\n"
	for _, test := range []struct{ name, tree, libvirt, qemu string }{
		{"Ubuntu", debian, "10.0.0", "8.2.2"},
		{"removed", strings.ReplaceAll(debian, "install ok installed", "deinstall ok config-files"), "", ""},
		{"by the library", "-- usr/lib64/libvirt.so.0.11003.2 --\n-- usr/lib64/libvirt.so.0 --\n", "11.3.2", ""},
		{"two libraries", "-- usr/lib64/libvirt.so.0.11003.2 --\n-- usr/lib64/libvirt.so.0.9000.0 --\n", "", ""},
		{"nothing", "mkdir etc\n", "", ""},
	} {
		h, err := nova.InstalledHypervisor(hosttest.Lay(t, test.tree))
		if err != nil || h.Libvirt.String() != test.libvirt || h.QEMU.String() != test.qemu {
			t.Errorf("%s: libvirt %s, QEMU %s, %v", test.name, h.Libvirt, h.QEMU, err)
		}
	}
}
