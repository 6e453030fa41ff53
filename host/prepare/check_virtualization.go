package prepare

import (
	"errors"
	"fmt"
	"os"

	"gpustack/host"
)

// aboutVirtualization is the name of the check, a public face as those of check.go.
const aboutVirtualization = "virtualization"

// kvmFile is how programs reach KVM (Linux, Documentation/virt/kvm/api.rst).
const kvmFile = "/dev/kvm"

// errNotRunning says that the tree is not the running machine's.
var errNotRunning = errors.New("not the root of the running machine")

// readKVM looks for KVM on the running machine. Of another tree /dev tells nothing.
func readKVM(root host.Root) Look[bool] {
	if root.Path("/") != "/" {
		return look(kvmFile, false, errNotRunning)
	}
	ok, err := root.Exists(kvmFile)
	return look(kvmFile, ok, err)
}

// virtualization looks whether the machine can run guests with KVM.
func (v view) virtualization() []host.Finding {
	flag := v.Virtualization.Value
	noKVM := v.KVM.seen() && !v.KVM.Value
	switch {
	case v.VirtType.seen() && v.VirtType.Value == "qemu":
		return na("guests are emulated: %s says virt_type = qemu", v.VirtType.File)
	case v.Virtualization.seen() && flag == "":
		return v.cannotRunGuests(host.CPUInfo, "the CPU has neither vmx nor svm",
			"turn on VT-x, or AMD-V (SVM), in the firmware's setup; for a virtual machine, nested virtualization on its host")
	case noKVM && v.phase == pending && flag != "":
		return na("%s is not there; the next boot loads KVM", kvmFile)
	case noKVM:
		module := map[string]string{"vmx": "kvm_intel", "svm": "kvm_amd"}[flag]
		if module == "" {
			module = "kvm"
		}
		return v.cannotRunGuests(kvmFile, kvmFile+" is not there",
			"modprobe "+module+"; if that fails, journalctl -k -g kvm shows why: the firmware may have virtualization switched off")
	case v.KVM.seen() && flag != "":
		return pass("the CPU has %s, and %s is there", flag, kvmFile)
	case v.KVM.seen():
		return pass("%s is there", kvmFile)
	case flag != "":
		return pass("the CPU has %s", flag)
	case !v.Virtualization.seen():
		return v.Virtualization.blind()
	}
	return v.KVM.blind()
}

// cannotRunGuests is a failure, unless nova.conf asks for emulation; whether it does may be
// unknown, and then the failure says so.
func (v view) cannotRunGuests(file, seen, remedy string) []host.Finding {
	if err := v.VirtType.Err; err != nil && !host.IsAbsent(err) {
		seen += fmt.Sprintf(" (whether guests are emulated is unknown: %s)", withFile(v.VirtType.File, host.Cause(err).Error()))
		if errors.Is(err, os.ErrPermission) {
			remedy = "run gpustack as root; unless guests are emulated, " + remedy
		}
	}
	return one(host.Finding{
		Status: host.Fail, File: file, Seen: seen,
		Effect: "Nova cannot run guests with KVM on this host", Remedy: remedy,
	})
}
