// Package chain walks the whole way from two bare GPU servers to GPUs that are counted inside a
// guest: host prepare, a reboot, host check, nova configure, a real nova-compute with libvirt, a
// flavor, a guest. The servers are machines in QEMU, emulated in full as those of integration/vm
// are, and their guests are machines in that emulation.
//
// Real: all that Debian ships of it, such as GRUB, systemd, the kernel, vfio-pci, libvirt, QEMU and
// Nova. Not real: the GPUs, which have the ids, classes and BARs of a Quadro K4200 and nothing
// behind them (integration/vm, function.go), and Neutron (integration/nova, neutron.go).
//
// Where to look: image.go says what is installed on a compute node, prepare.go prepares one for GPU
// instances, machine.go starts it, compute.go configures its nova-compute as a site would, with
// conf.go, and undo.go undoes all that gpustack did there. guest.go makes what guests boot from,
// and controllers.go the control plane outside that has it. chain_test.go is the way, waves_test.go
// the part up to nova-compute by Ansible, and README.md has what was seen on it.
//
// The tests take minutes and some GiB of memory, and run with -full only.
package chain
