// Package vm starts machines with a real Linux kernel and an emulated IOMMU, in QEMU,
// as targets for the binary. They are emulated in full (-accel tcg), so that they run
// wherever tests do; GPUSTACK_VM_ACCEL=kvm opts in to hardware.
//
// Real: Debian's kernel and its drivers, vfio-pci and pci-stub among them, its IOMMU
// groups, and in the Debian machine GRUB, systemd, udev, update-grub and
// update-initramfs. Not real: the cards. Those of NVIDIA have the ids, classes and
// BARs of a Quadro K4200 and nothing behind them (function.go); those of QEMU work
// with their own drivers (bochs-drm, snd_hda_intel) and have QEMU's ids. So this
// package does not test NVIDIA's drivers, resets of real cards, firmware, vGPU or
// speed. A module of ours with the name of NVIDIA's (nvidia/) waits in remove as NVIDIA's does, so
// that unbinding it with services that have GPUs open is tested.
//
// Where to look: topology.go says which machines there are, machine.go starts them and talks to the
// agent inside (agent/, guest/), kernel.go and initramfs.go make the small machine, which has
// nothing but a kernel and this package's own init, debian.go makes the one that boots from a disk,
// which image.go makes, rxe.go adds an RDMA device to the small one, nvidia.go compiles the module,
// cache.go keeps what is slow to make. Package integration/chain makes compute nodes of the same
// parts: Disk, Server, Start.
//
// It needs root, and Debian's packages that the Makefile lists; of QEMU one before 8.2,
// or KVM. GPUSTACK_VM_KERNEL names the package file of another kernel than that of this
// Debian release, for the machines without a disk.
package vm
