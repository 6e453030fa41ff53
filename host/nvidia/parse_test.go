package nvidia

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

func TestParseVersionFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line    string
		version Version
		open    bool
	}{
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\nGCC version:  gcc version 12.3.0", "550.90.07", false},
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  352.39  Fri Aug 14 18:09:10 PDT 2015", "352.39", false},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.58.02  Release Build  (dvs-builder@U16)  Tue Jun 25", "555.58.02", true},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (buildbrain@m)  Thu Sep  5\n", "540.4.0", true},
		{"NVRM version: NVIDIA UNIX x86_64  550.90.07", "", false},
		{"GCC version:  Module 12.3.0", "", false},
		{"", "", false},
	} {
		v, open, err := parseVersionFile(c.line)
		if v != c.version || open != c.open || (err == nil) != (c.version != "") {
			t.Errorf("%q: %q, %v, %v, want %q, %v", c.line, v, open, err, c.version, c.open)
		}
	}
}

func TestModuleName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"nvidia": true, "nvidia_current": true, "nvidia_current_open": true, "nvidia_open": true, "nvidia_tesla_470": true, "nvidia_tesla": true,
		"nvidia_legacy_390xx": true, "nvidia_uvm": false, "nvidia_drm": false, "nvidia_current_modeset": false, "nvidia_tesla_470_uvm": false,
		"nvidiafb": false, "nvidia_wmi_ec_backlight": false, "nvidia_vgpu_vfio": false, "nvidia_fs": false,
	} {
		hosttest.EqualIn(t, name, want, moduleName().MatchString(name))
	}
}

// TestNumbers has the minors of nv-chardev-numbers.h and of nvidia-modprobe.
func TestNumbers(t *testing.T) {
	t.Parallel()
	d := Driver{Majors: map[string]int{"nvidia-uvm": 509}}
	for file, want := range map[string][2]int{
		"/dev/nvidia0": {195, 0}, "/dev/nvidia15": {195, 15}, "/dev/nvidiactl": {195, 255},
		"/dev/nvidia-uvm": {509, 0}, "/dev/nvidia-uvm-tools": {509, 1},
	} {
		if major, minor, ok := d.Numbers(file); !ok || major != want[0] || minor != want[1] {
			t.Errorf("%s: %d:%d, %v, want %v", file, major, minor, ok, want)
		}
	}
	for _, file := range []string{
		"/dev/nvidia248", "/dev/nvidia01", "/dev/nvidia-1", "/dev/nvidia", "/dev/nvidia-fs0", "/dev/nvidia-modeset",
		"/dev/nvidia-caps/nvidia-cap", "/dev/null", "/tmp/nvidia0",
	} {
		if major, minor, ok := d.Numbers(file); ok {
			t.Errorf("%s: %d:%d", file, major, minor)
		}
	}
	if _, _, ok := (Driver{}).Numbers("/dev/nvidia-uvm"); ok {
		t.Error("nvidia-uvm has numbers while its module is not loaded")
	}
}

func FuzzParseVersionFile(f *testing.F) {
	f.Add("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n")
	f.Add("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.58.02  Release Build  (x)  Tue Jun 25 01:26:03 UTC 2024\n")
	f.Fuzz(func(t *testing.T, text string) {
		v, _, err := parseVersionFile(text)
		again, ok := ParseVersion(string(v))
		if (err == nil) != ok || again != v && ok || !strings.Contains(text, string(v)) {
			t.Errorf("%q: %q, %v", text, v, err)
		}
	})
}

func FuzzInformation(f *testing.F) {
	f.Add("Model: \t\t NVIDIA L4\nGPU UUID: \t GPU-3291dfa4-fcc4-0110-615b-c894a0d7c689\nBus Location: \t 0000:70:00.0\nDevice Minor: \t 0\nGPU Excluded:\t No\n")
	f.Add("GPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 247\nGPU Firmware: \t N/A\n")
	f.Fuzz(func(t *testing.T, text string) {
		g := GPU{Address: pci.Address{Bus: 0x70}}
		if err := g.parse(text); err == nil && !strings.Contains(text, "Device Minor") && g.Minor != nil {
			t.Errorf("%q: %+v", text, g)
		}
		if g.Minor != nil && (*g.Minor < 0 || *g.Minor > maxMinor) || g.UUID != nil && strings.Contains(*g.UUID, "??") {
			t.Errorf("%q: %+v", text, g)
		}
	})
}
