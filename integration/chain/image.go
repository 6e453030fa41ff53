package chain

import (
	"context"
	_ "embed" // for the script

	"gpustack/integration/vm"
)

//go:embed image/customize
var customize string

// imageSize is that of the disk. The files take 1.4 GiB; the rest is room for what a compute node
// writes, and takes no space before.
const imageSize = 4 << 30

// packages are those of a compute node that runs guests with libvirt. nova-compute-kvm needs
// QEMU for x86 only, nova-compute-qemu that for all processors. Nova writes config drives with
// genisoimage (mkisofs_cmd in nova/conf/configdrive.py), and copies a disk to another host by ssh
// (nova/virt/libvirt/volume/remotefs.py).
var packages = []string{
	"initramfs-tools", "dbus", "pciutils", "procps",
	"nova-compute", "nova-compute-kvm", "libvirt-clients", "qemu-system-x86", "qemu-utils",
	"genisoimage", "openssh-server", "openssh-client",
}

// Image returns the disk of a compute node of Debian's, before anything was configured. It takes
// some minutes where the cache does not have it.
func Image(ctx context.Context) (string, error) {
	return vm.Disk{Name: "compute", Packages: packages, Customize: customize, Size: imageSize}.Make(ctx)
}
