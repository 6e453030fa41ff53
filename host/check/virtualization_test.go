package check_test

import (
	"io/fs"
	"strings"
	"testing"

	"gpustack/host/check"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	startup "gpustack/host/steps" // steps are what changes a tree here
)

// flags is a line of /proc/cpuinfo that ends with the flags of a server's CPU.
func flags(last string) step {
	return replace("proc/cpuinfo", "GenuineIntel\n", "GenuineIntel\nflags\t\t: fpu vme de pse "+strings.Repeat("avx512 ", 400)+last+"\nvmx flags\t: vnmi\n")
}

// TestVirtualization: guests need a CPU that runs them, and KVM.
func TestVirtualization(t *testing.T) {
	const novaConf = "/etc/nova/nova.conf"
	running := func(kvm bool) func(*machine.Machine) {
		return func(m *machine.Machine) { m.KVM = machine.Look[bool]{Value: kvm, File: "/dev/kvm"} }
	}
	nova := func(virtType string, err error) func(*machine.Machine) {
		return func(m *machine.Machine) {
			m.VirtType = machine.Look[string]{Value: virtType, File: novaConf, Err: err}
		}
	}
	machines := masters(t)
	for _, test := range []struct {
		name    string
		from    string
		change  step
		sees    []func(*machine.Machine)
		verdict checklist.Verdict
		want    string
	}{
		{"a tree without flags", isReady, steps(), nil, checklist.Ready, "n/a: /proc/cpuinfo: no flags line"},
		{"a tree without processors", isReady, remove("proc/cpuinfo"), nil, checklist.Ready, "n/a: /proc/cpuinfo is missing"},
		{"processors that cannot be read", isReady, steps(remove("proc/cpuinfo"), write("proc/cpuinfo/x", "")), nil, checklist.Ready,
			"n/a: /proc/cpuinfo: not a regular file"},
		{"flags that are cut off", isReady, replace("proc/cpuinfo", "GenuineIntel\n", "GenuineIntel\nflags : "+strings.Repeat("avx512 ", 2000)), nil, checklist.Ready,
			"n/a: /proc/cpuinfo: the flags line is truncated"},
		{"flags that an older snapshot has cut off", isReady, replace("proc/cpuinfo", "GenuineIntel\n", "GenuineIntel\nflags : fpu vm"), nil, checklist.Ready,
			"n/a: /proc/cpuinfo: the flags line is truncated"},
		{"a tree with VMX", isReady, flags("vmx smx"), nil, checklist.Ready, "pass: the CPU has vmx"},
		{"a tree with SVM", isReady, flags("svm"), nil, checklist.Ready, "pass: the CPU has svm"},
		{"a tree without either", isReady, flags("vmxoff svmlike"), nil, checklist.NotReady, "fail: the CPU has neither vmx nor svm"},
		{"not prepared, without either", isBare, flags("smx"), nil, checklist.NotPrepared, "fail: the CPU has neither vmx nor svm"},
		{"to be booted, without either", isPlanned, flags("smx"), nil, checklist.NotReady, "fail: the CPU has neither vmx nor svm"},
		{"without either, emulated by Nova", isReady, flags("smx"), []func(*machine.Machine){nova("qemu", nil)}, checklist.Ready,
			"n/a: guests are emulated: virt_type = qemu in /etc/nova/nova.conf"},
		{"without either, and not emulated", isReady, flags("smx"), []func(*machine.Machine){nova("kvm", nil)}, checklist.NotReady,
			"fail: the CPU has neither vmx nor svm"},
		{"without either, and Nova's files cannot be read", isReady, flags("smx"), []func(*machine.Machine){nova("", fs.ErrPermission)}, checklist.NotReady,
			"fail: the CPU has neither vmx nor svm (whether guests are emulated is unknown: /etc/nova/nova.conf: permission denied)"},
		{"running, with KVM", isReady, flags("vmx"), []func(*machine.Machine){running(true)}, checklist.Ready, "pass: the CPU has vmx, and /dev/kvm exists"},
		{"running on ARM, with KVM", isReady, steps(), []func(*machine.Machine){running(true)}, checklist.Ready, "pass: /dev/kvm exists"},
		{"running, without KVM", isReady, flags("vmx"), []func(*machine.Machine){running(false)}, checklist.NotReady, "fail: /dev/kvm is missing"},
		{"running on ARM, without KVM", isReady, steps(), []func(*machine.Machine){running(false)}, checklist.NotReady, "fail: /dev/kvm is missing"},
		{"running, without KVM and emulated", isReady, steps(), []func(*machine.Machine){running(false), nova("qemu", nil)}, checklist.Ready,
			"n/a: guests are emulated: virt_type = qemu in /etc/nova/nova.conf"},
		{"running, KVM comes at the next boot", isPlanned, flags("vmx"), []func(*machine.Machine){running(false)}, checklist.PendingReboot,
			"n/a: /dev/kvm is missing; the next boot loads KVM"},
		{"running, KVM does not come by a boot", isPlanned, steps(), []func(*machine.Machine){running(false)}, checklist.NotReady, "fail: /dev/kvm is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := like(t, machines[test.from])
			test.change(t, root)
			m := observe(root)
			for _, see := range test.sees {
				see(&m)
			}
			findings, verdict := check.Verify(m, nil, startup.State{})
			bad(t, findings)
			var got string
			for _, f := range findings {
				if f.Check == "virtualization" {
					got += string(f.Status) + ": " + f.Seen
				}
			}
			if verdict != test.verdict || got != test.want {
				t.Errorf("verdict %s, want %s\ngot  %s\nwant %s", verdict, test.verdict, got, test.want)
			}
		})
	}
}
