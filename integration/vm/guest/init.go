package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// initialize does what an init must before programs can run, and loads the drivers of
// the PCI functions as udev would.
func initialize() error {
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	aliases, err := filepath.Glob("/sys/bus/pci/devices/*/modalias")
	if err != nil {
		return err
	}
	for _, file := range aliases {
		alias, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		// Most functions have no module here. Those that tests need are looked at there.
		_ = exec.Command("modprobe", "-q", strings.TrimSpace(string(alias))).Run()
	}
	return nil
}
