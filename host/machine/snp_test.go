package machine_test

import (
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/machine"
)

// TestSNPUnread: where it cannot be read whether SEV-SNP is on, iommu=pt is not added, which would
// switch it off.
func TestSNPUnread(t *testing.T) {
	const cpu = "-- proc/cpuinfo --\nvendor_id : AuthenticAMD\nflags : svm\n"
	for name, test := range map[string]struct{ tree, want string }{
		"off":        {"-- sys/module/kvm_amd/parameters/sev_snp --\nN\n" + cpu, "iommu=pt"},
		"on":         {"-- sys/module/kvm_amd/parameters/sev_snp --\nY\n" + cpu, ""},
		"unreadable": {"mkdir sys/module/kvm_amd/parameters/sev_snp\n" + cpu, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine.ObservePrepare(hosttest.Lay(t, test.tree), false)
			want, known := m.WantIOMMU()
			if got := want.Args(nil).String(); !known || got != test.want {
				t.Errorf("%q, CPU known: %v, want %q", got, known, test.want)
			}
		})
	}
}
