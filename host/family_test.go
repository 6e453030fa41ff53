package host_test

import (
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestFamily: packages are named for the distribution at hand, and for all if it is not known.
func TestFamily(t *testing.T) {
	t.Parallel()
	p := host.Packages{host.DebianFamily: "libcuda1", host.RHELFamily: "nvidia-driver-cuda"}
	for release, want := range map[string]string{
		"ID=debian\nVERSION_ID=12\n":                   "apt-get install libcuda1",
		"ID=ubuntu\nID_LIKE=debian\n":                  "apt-get install libcuda1",
		"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"": "dnf install nvidia-driver-cuda",
		"ID=nobara\nID_LIKE=fedora\n":                  "dnf install nvidia-driver-cuda",
		"ID=sles\n":                                    "the packages of this distribution: apt-get install libcuda1, or dnf install nvidia-driver-cuda",
		"ID=arch\n":                                    "the packages of this distribution: apt-get install libcuda1, or dnf install nvidia-driver-cuda",
	} {
		hosttest.EqualIn(t, release, want, host.ReadFamily(hosttest.Lay(t, "-- etc/os-release --\n"+release)).Install(p))
	}
	hosttest.EqualIn(t, "without os-release", host.UnknownFamily, host.ReadFamily(hosttest.Lay(t, "mkdir etc\n")))
}
