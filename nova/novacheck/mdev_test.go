package novacheck_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/novacheck"
)

// TestMediated: types of mediated devices of which nova-compute uses only the first, or with which it
// does not start.
func TestMediated(t *testing.T) {
	for name, test := range map[string]struct {
		lines string
		want  []string
	}{
		"one type": {"[devices]\nenabled_mdev_types = nvidia-35", nil},
		"two with addresses": {"[devices]\nenabled_mdev_types = nvidia-35, nvidia-36\n" +
			"[mdev_nvidia-35]\ndevice_addresses = 0000:84:00.0\n[vgpu_nvidia-36]\ndevice_addresses = 0000:85:00.0", nil},
		"one of two without": {"[devices]\nenabled_vgpu_types = nvidia-35,nvidia-36\n[mdev_nvidia-35]\ndevice_addresses = 0000:84:00.0",
			[]string{"nvidia-36 of mediated devices has no device_addresses"}},
		"an address of two": {"[devices]\nenabled_mdev_types = nvidia-35,nvidia-36\n" +
			"[mdev_nvidia-35]\ndevice_addresses = 0000:84:00.0\n[mdev_nvidia-36]\ndevice_addresses = 0000:84:00.0",
			[]string{"0000:84:00.0 is an address of nvidia-35 and of nvidia-36"}},
		"an address named twice": {"[devices]\nenabled_mdev_types = nvidia-35\n[mdev_nvidia-35]\ndevice_addresses = 0000:84:00.0,0000:84:00.0", nil},
	} {
		var seen []string
		for _, f := range novacheck.Run(nova.Epoxy, []nova.Side{sideOf(t, nova.Compute, strings.Split(test.lines, "\n")...)}, nil, nil) {
			if f.Check == "option" {
				seen = append(seen, f.Seen)
			}
		}
		hosttest.EqualIn(t, name, test.want, seen)
	}
}
