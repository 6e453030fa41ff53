package main

import (
	"errors"
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
	if err := os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	// An initramfs of a distribution has mounted these and loaded the drivers before.
	if mounted, err := isMountPoint("/run"); mounted || err != nil {
		return err
	}
	for _, m := range []struct{ kind, dir string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
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

// isMountPoint reports whether a file system of its own is mounted at a folder.
func isMountPoint(dir string) (bool, error) {
	var top, at unix.Stat_t
	if err := errors.Join(unix.Stat("/", &top), unix.Stat(dir, &at)); err != nil {
		return false, fmt.Errorf("%s: %w", dir, err)
	}
	return at.Dev != top.Dev, nil
}
