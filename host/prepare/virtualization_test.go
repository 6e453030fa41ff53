package prepare_test

import (
	"io/fs"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/prepare"
)

// flags is a line of /proc/cpuinfo that ends with the flags of a server's CPU.
func flags(last string) step {
	return replace("proc/cpuinfo", "GenuineIntel\n", "GenuineIntel\nflags\t\t: fpu vme de pse "+strings.Repeat("avx512 ", 400)+last+"\nvmx flags\t: vnmi\n")
}

// TestVirtualization: guests need a CPU that runs them, and KVM.
func TestVirtualization(t *testing.T) {
	const novaConf = "/etc/nova/nova.conf"
	running := func(kvm bool) func(*prepare.Machine) {
		return func(m *prepare.Machine) { m.KVM = prepare.Look[bool]{Value: kvm, File: "/dev/kvm"} }
	}
	nova := func(virtType string, err error) func(*prepare.Machine) {
		return func(m *prepare.Machine) {
			m.VirtType = prepare.Look[string]{Value: virtType, File: novaConf, Err: err}
		}
	}
	machines := masters(t)
	for _, test := range []struct {
		name    string
		from    string
		change  step
		sees    []func(*prepare.Machine)
		verdict prepare.Verdict
		want    string
	}{
		{"a tree without flags", isReady, steps(), nil, prepare.Ready, "n/a: /proc/cpuinfo: no flags line"},
		{"a tree without processors", isReady, remove("proc/cpuinfo"), nil, prepare.Ready, "n/a: /proc/cpuinfo is not there"},
		{"processors that cannot be read", isReady, steps(remove("proc/cpuinfo"), write("proc/cpuinfo/x", "")), nil, prepare.Ready, "n/a: /proc/cpuinfo: not a regular file"},
		{"flags that are cut off", isReady, replace("proc/cpuinfo", "GenuineIntel\n", "GenuineIntel\nflags : "+strings.Repeat("avx512 ", 2000)), nil, prepare.Ready,
			"n/a: /proc/cpuinfo: the flags line is truncated"},
		{"flags that an older snapshot has cut off", isReady, replace("proc/cpuinfo", "GenuineIntel\n", "GenuineIntel\nflags : fpu vm"), nil, prepare.Ready,
			"n/a: /proc/cpuinfo: the flags line is truncated"},
		{"a tree with VMX", isReady, flags("vmx smx"), nil, prepare.Ready, "pass: the CPU has vmx"},
		{"a tree with SVM", isReady, flags("svm"), nil, prepare.Ready, "pass: the CPU has svm"},
		{"a tree without either", isReady, flags("vmxoff svmlike"), nil, prepare.NotReady, "fail: the CPU has neither vmx nor svm"},
		{"not prepared, without either", isBare, flags("smx"), nil, prepare.NotPrepared, "fail: the CPU has neither vmx nor svm"},
		{"to be booted, without either", isPlanned, flags("smx"), nil, prepare.NotReady, "fail: the CPU has neither vmx nor svm"},
		{"without either, emulated by Nova", isReady, flags("smx"), []func(*prepare.Machine){nova("qemu", nil)}, prepare.Ready,
			"n/a: guests are emulated: /etc/nova/nova.conf says virt_type = qemu"},
		{"without either, and not emulated", isReady, flags("smx"), []func(*prepare.Machine){nova("kvm", nil)}, prepare.NotReady, "fail: the CPU has neither vmx nor svm"},
		{"without either, and Nova's files cannot be read", isReady, flags("smx"), []func(*prepare.Machine){nova("", fs.ErrPermission)}, prepare.NotReady,
			"fail: the CPU has neither vmx nor svm (whether guests are emulated is unknown: /etc/nova/nova.conf: permission denied)"},
		{"running, with KVM", isReady, flags("vmx"), []func(*prepare.Machine){running(true)}, prepare.Ready, "pass: the CPU has vmx, and /dev/kvm is there"},
		{"running on ARM, with KVM", isReady, steps(), []func(*prepare.Machine){running(true)}, prepare.Ready, "pass: /dev/kvm is there"},
		{"running, without KVM", isReady, flags("vmx"), []func(*prepare.Machine){running(false)}, prepare.NotReady, "fail: /dev/kvm is not there"},
		{"running on ARM, without KVM", isReady, steps(), []func(*prepare.Machine){running(false)}, prepare.NotReady, "fail: /dev/kvm is not there"},
		{"running, without KVM and emulated", isReady, steps(), []func(*prepare.Machine){running(false), nova("qemu", nil)}, prepare.Ready,
			"n/a: guests are emulated: /etc/nova/nova.conf says virt_type = qemu"},
		{"running, KVM comes at the next boot", isPlanned, flags("vmx"), []func(*prepare.Machine){running(false)}, prepare.PendingReboot,
			"n/a: /dev/kvm is not there; the next boot loads KVM"},
		{"running, KVM does not come by a boot", isPlanned, steps(), []func(*prepare.Machine){running(false)}, prepare.NotReady, "fail: /dev/kvm is not there"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := like(t, machines[test.from])
			test.change(t, root)
			m, err := prepare.ReadMachine(root)
			if err != nil {
				t.Fatal(err)
			}
			for _, see := range test.sees {
				see(&m)
			}
			findings, verdict := prepare.Check(m)
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

// TestLoadKVM: systemd-modules-load fails where a module does, so that the module that the
// CPU has no use for is not named.
func TestLoadKVM(t *testing.T) {
	for _, test := range []struct{ name, cpu, flags, want string }{
		{"Intel, no flags shown", "GenuineIntel", "", "kvm\nkvm_intel\n"},
		{"Intel with VMX", "GenuineIntel", "flags\t\t: fpu vmx smx\n", "kvm\nkvm_intel\n"},
		{"Intel without VMX", "GenuineIntel", "flags\t\t: fpu smx\nvmx flags\t: vnmi\n", "kvm\n"},
		{"AMD with SVM", "AuthenticAMD", "flags\t\t: fpu svm\n", "kvm\nkvm_amd\n"},
		{"AMD without SVM", "AuthenticAMD", "flags\t\t: fpu\n", "kvm\n"},
		{"Hygon with SVM", "HygonGenuine", "flags\t\t: fpu svm\n", "kvm\nkvm_amd\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, strings.Replace(node{cpu: test.cpu}.archive(), test.cpu+"\n", test.cpu+"\n"+test.flags, 1))
			if got := modulesLoad(t, root); got != "vfio\nvfio_iommu_type1\nvfio_pci\n"+test.want {
				t.Errorf("modules to load:\n%s", got)
			}
		})
	}
}

// modulesLoad returns the modules that host prepare has loaded at boot, a line each.
func modulesLoad(t *testing.T, root host.Root) string {
	t.Helper()
	p, err := plan(t, root, prepare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var modules strings.Builder
	for _, c := range p.Files {
		if c.After == nil || !strings.HasPrefix(c.Name, "/etc/modules-load.d/") {
			continue
		}
		for line := range strings.Lines(string(c.After.Content)) {
			if !strings.HasPrefix(line, "#") {
				modules.WriteString(line)
			}
		}
	}
	return modules.String()
}
