package check

import (
	"errors"
	"fmt"
	"os"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// virtualization checks whether the CPU and KVM can run guests; n/a if nova.conf has virt_type =
// qemu.
func (v view) virtualization() []host.Finding {
	flag := v.Virtualization.Value
	noKVM := v.KVM.Seen() && !v.KVM.Value
	switch {
	case v.VirtType.Seen() && v.VirtType.Value == "qemu":
		return checklist.NA("guests are emulated: virt_type = qemu in %s", v.VirtType.File)
	case v.Virtualization.Seen() && flag == "":
		return v.cannotRunGuests(host.CPUInfo, "the CPU has neither vmx nor svm",
			host.Plain("turn on VT-x, or AMD-V (SVM), in the firmware's setup; for a virtual machine, nested virtualization on its host"))
	case noKVM && v.phase == pending && flag != "":
		return checklist.NA("%s is missing; the next boot loads KVM", machine.KVMFile)
	case noKVM:
		module := map[string]string{"vmx": "kvm_intel", "svm": "kvm_amd"}[flag]
		if module == "" {
			module = "kvm"
		}
		return v.cannotRunGuests(machine.KVMFile, machine.KVMFile+" is missing",
			host.Plain("modprobe "+module+"; if that fails, journalctl -k -g kvm shows why: virtualization may be turned off in the firmware"))
	case v.KVM.Seen() && flag != "":
		return checklist.Pass("the CPU has %s, and %s exists", flag, machine.KVMFile)
	case v.KVM.Seen():
		return checklist.Pass("%s exists", machine.KVMFile)
	case flag != "":
		return checklist.Pass("the CPU has %s", flag)
	case !v.Virtualization.Seen():
		return unread(v.Virtualization)
	}
	return unread(v.KVM)
}

// cannotRunGuests returns a failure. If nova.conf cannot be read, it adds that guests may be
// emulated.
func (v view) cannotRunGuests(file, seen string, remedy host.Text) []host.Finding {
	if err := v.VirtType.Err; err != nil && !host.IsAbsent(err) {
		seen += fmt.Sprintf(" (whether guests are emulated is unknown: %s)", checklist.WithFile(v.VirtType.File, err))
		if errors.Is(err, os.ErrPermission) {
			remedy = host.Textf("%s; unless guests are emulated, %s", host.AsRoot(), remedy)
		}
	}
	return []host.Finding{{
		Status: host.Fail, File: file, Seen: seen,
		Effect: "Nova cannot run guests with KVM on this host", Remedy: remedy,
	}}
}
