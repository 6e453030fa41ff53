package pci_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestSwitchedOff: a bridge above a GPU counts whose control lacks a part of what it supports, behind
// other capabilities too. One whose extended capabilities are not shown does not.
func TestSwitchedOff(t *testing.T) {
	const gpu, bridge = "0000:01:00.0", "sys/devices/pci0000:00/0000:00:01.0/"
	capability := func(id, next, supported, on byte) string {
		return string([]byte{id, 0, 1, next, supported, 0, on, 0})
	}
	header := strings.Repeat("\x01", 0x100)
	for name, test := range map[string]struct{ config, want string }{
		"as at boot":                    {header + capability(0x0d, 0, 0x1f, 0x1d), ""},
		"requests are not redirected":   {header + capability(0x0d, 0, 0x1f, 0x19), "0000:00:01.0"},
		"all is off":                    {header + capability(0x0d, 0, 0x5f, 0), "0000:00:01.0"},
		"what it does not support":      {header + capability(0x0d, 0, 0x01, 0x01), ""},
		"behind another capability":     {header + capability(0x01, 0x11, 0, 0) + strings.Repeat("\x00", 8) + capability(0x0d, 0, 0x1f, 0), "0000:00:01.0"},
		"no such capability":            {header + capability(0x01, 0, 0xff, 0), ""},
		"a capability that is its next": {header + capability(0x01, 0x10, 0xff, 0), ""},
		"as a user sees it":             {header[:64], ""},
		"no configuration":              {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tree := "symlink sys/bus/pci/devices/" + gpu + " -> ../../../devices/pci0000:00/0000:00:01.0/" + gpu + "\n" +
				"symlink sys/bus/pci/devices/0000:00:01.0 -> ../../../devices/pci0000:00/0000:00:01.0\n" +
				"-- " + bridge + gpu + "/class --\n0x030200\n-- " + bridge + "class --\n0x060400\n-- " + bridge + "config --\n" + test.config + "\n"
			root := hosttest.Lay(t, tree)
			devices := hosttest.Devices(t, root)
			got, err := devices.SwitchedOff(root, devices)
			if err != nil || pci.Joined(got, " ") != test.want {
				t.Errorf("%v, %v, want %s", got, err, test.want)
			}
		})
	}
}
