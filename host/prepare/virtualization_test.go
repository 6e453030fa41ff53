package prepare_test

import (
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/selection"
)

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
			root := hosttest.Lay(t, strings.Replace(node{CPU: test.cpu}.Archive(), test.cpu+"\n", test.cpu+"\n"+test.flags, 1))
			hosttest.EqualIn(t, "modules to load", "vfio\nvfio_iommu_type1\nvfio_pci\n"+test.want, modulesLoad(t, root))
		})
	}
}

// modulesLoad returns the modules that host prepare has loaded at boot, a line each.
func modulesLoad(t *testing.T, root host.Root) string {
	t.Helper()
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
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
