package host_test

import (
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestReadSNP: SEV-SNP is on by the parameter of kvm_amd, or by the flag of the CPU.
func TestReadSNP(t *testing.T) {
	const parameter = "-- sys/module/kvm_amd/parameters/sev_snp --\n"
	for name, test := range map[string]struct {
		tree string
		want bool
	}{
		"the parameter":                  {parameter + "Y\n", true},
		"off":                            {parameter + "N\n-- proc/cpuinfo --\nflags : svm sev sev_es\n", false},
		"the flag, kvm_amd is not there": {"-- proc/cpuinfo --\nflags : svm sev sev_es sev_snp\n", true},
		"arm64":                          {"-- proc/cpuinfo --\nFeatures : fp\n", false},
		"nothing":                        {"-- x --\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := host.ReadSNP(hosttest.Lay(t, test.tree)); err != nil || got != test.want {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
