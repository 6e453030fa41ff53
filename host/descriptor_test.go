package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestDescriptors: a device node that a process has by another name, as containers do, has the
// kernel's name. /dev/pts/ptmx is another node of /dev/ptmx.
func TestDescriptors(t *testing.T) {
	const other, node = "/dev/pts/ptmx", "/dev/ptmx"
	fd, err := unix.Open(other, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err) // only root may open it where /dev/ptmx is no link to it
	}
	defer unix.Close(fd)
	name := filepath.Join(t.TempDir(), "x")
	hosttest.NoError(t, os.WriteFile(name, nil, 0o600))
	for _, file := range []string{name, os.DevNull} {
		f, err := os.Open(file)
		hosttest.NoError(t, err)
		defer f.Close()
	}
	root := hosttest.Root(t, "/")
	opened, err := host.Descriptors(root, os.Getpid())
	hosttest.NoError(t, err)
	said := map[host.Descriptor]string{}
	for _, d := range opened {
		said[d] = d.String()
	}
	for d, want := range map[host.Descriptor]string{
		{Name: other, Node: node}: "/dev/ptmx (as /dev/pts/ptmx)",
		{Name: name}:              name,
		{Name: os.DevNull}:        os.DevNull,
	} {
		if said[d] != want {
			t.Errorf("%+v: %q, want %q, of %v", d, said[d], want, opened)
		}
	}
}

// TestDescriptorsOfTree: the links of a tree do not lead to devices of this machine.
func TestDescriptorsOfTree(t *testing.T) {
	root := hosttest.Lay(t, "symlink proc/7/fd/3 -> /dev/ptmx\nsymlink proc/7/fd/4 -> /dev/ptmx\nsymlink proc/7/fd/5 -> /dev/x (deleted)\n")
	opened, err := host.Descriptors(root, 7)
	if err != nil || len(opened) != 2 || opened[0] != (host.Descriptor{Name: "/dev/ptmx"}) || opened[1].String() != "/dev/x" {
		t.Errorf("%+v, %v", opened, err)
	}
}
