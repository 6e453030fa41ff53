package host_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestReadBelow: files are read as Root reads them, and no link leads out of the root.
func TestReadBelow(t *testing.T) {
	root := hosttest.Lay(t, `
mkdir sys/folder
symlink sys/devices/link -> ../../real/device
symlink sys/devices/absolute -> /real/device
symlink sys/devices/climbing -> ../../../../../../../../../../../../real/device
symlink sys/devices/outside -> /etc
symlink real/device/last -> config
-- real/device/config --
0123456789
`)
	c := counter{of: map[string]int{}}
	top, err := root.Recorded(&c).OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for _, dir := range []string{"sys/devices/link", "/sys/devices/absolute", "sys/devices/climbing", "real/device"} {
		for n, want := range map[int]string{4: "0123", 64: "0123456789\n"} {
			if data, err := top.ReadBelow(dir+"/config", make([]byte, n)); err != nil || string(data) != want {
				t.Errorf("%s: %q, %v, want %q", dir, data, err, want)
			}
		}
		if ok, err := top.ExistsBelow(dir + "/config"); !ok || err != nil {
			t.Errorf("%s: %t, %v", dir, ok, err)
		}
		if ok, err := top.ExistsBelow(dir + "/reset"); ok || err != nil {
			t.Errorf("%s: %t, %v", dir, ok, err)
		}
	}
	if n := c.of["real/device/config"]; n != 3 {
		t.Errorf("recorded %d times: %v", n, c.of)
	}
	for name, is := range map[string]error{"sys/none/config": unix.ENOENT, "sys/devices/outside/passwd": unix.ENOENT, "sys/devices/link/last": unix.ELOOP} {
		if data, err := top.ReadBelow(name, make([]byte, 64)); !errors.Is(err, is) {
			t.Errorf("%s: %q, %v, want %v", name, data, err, is)
		}
	}
	if _, err := top.ReadBelow("sys/folder", make([]byte, 64)); err == nil || host.Cause(err).Error() != "not a regular file" {
		t.Errorf("a folder: %v", err)
	}
	if ok, err := top.ExistsBelow("real/device/config/x"); ok || !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %t, %v", ok, err)
	}
}
