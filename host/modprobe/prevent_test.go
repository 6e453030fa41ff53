package modprobe_test

import (
	"slices"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/modprobe"
)

func TestReadPreventing(t *testing.T) {
	for name, test := range map[string]struct {
		tree string
		want []string
	}{
		"nothing": {"-- proc/cmdline --\nquiet\n", nil},
		"no kernel runs": {
			"-- etc/modprobe.d/x.conf --\nblacklist nvidia\n",
			[]string{"/etc/modprobe.d/x.conf:1: blacklist nvidia"},
		},
		"a program that does nothing": {
			"-- etc/modprobe.d/x.conf --\ninstall nvidia-uvm /bin/false\ninstall nvidia /sbin/modprobe --ignore-install nvidia\n",
			[]string{"/etc/modprobe.d/x.conf:1: install nvidia_uvm"},
		},
		"arguments": {
			"-- proc/cmdline --\nroot=/dev/vda1 modprobe.blacklist=nouveau,nvidia module_blacklist=nvidia-uvm\n",
			[]string{"/proc/cmdline: modprobe.blacklist=nvidia", "/proc/cmdline: module_blacklist=nvidia_uvm"},
		},
		"quotes": {
			"-- proc/cmdline --\n\"modprobe.blacklist=nvidia\" module_blacklist=\"nouveau,nvidia\"\n",
			[]string{"/proc/cmdline: modprobe.blacklist=nvidia", "/proc/cmdline: module_blacklist=nvidia"},
		},
		"another module, and other arguments": {"-- proc/cmdline --\nmodprobe.blacklist=nvidiafb rd.driver.blacklist=nvidia nvidia.x=1\n", nil},
		"an argument without a value":         {"-- proc/cmdline --\nmodprobe.blacklist module_blacklist=\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			lines, err := modprobe.ReadPreventing(hosttest.Lay(t, test.tree), "nvidia", "nvidia-uvm")
			hosttest.NoError(t, err)
			var got []string
			for _, line := range lines {
				got = append(got, line.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	if _, err := modprobe.ReadPreventing(hosttest.Lay(t, "-- proc/cmdline/x --\n")); err == nil {
		t.Error("a folder was read as the kernel's arguments")
	}
}
