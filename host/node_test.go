package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNode(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"uvm": "c 511:0 666\n", "disk": "b 8:0 660", "file": "no node\n", "long": "c 1:3 666 and more", "number": "c 99999999999:3 666", "type": "d 1:3 666", "space": "c b 1:3 666",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o640); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"link": "uvm", "dangling": "absent"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := NewRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"uvm": "c 511:0 666", "/disk": "b 8:0 660", "pipe": "p 0:0 640"} {
		if n, err := root.Node(name); err != nil || n == nil || n.String() != want {
			t.Errorf("%s: %v, %v, want %s", name, n, err, want)
		}
	}
	for _, name := range []string{"absent", "absent/below"} {
		if n, err := root.Node(name); n != nil || err != nil {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
	for _, name := range []string{"file", "long", "number", "type", "space", "link", "dangling", "."} {
		if n, err := root.Node(name); n != nil || !errors.Is(err, ErrNotNode) {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
	if n, err := root.Node("file/below"); n != nil || err == nil || errors.Is(err, ErrNotNode) {
		t.Errorf("a node below a file: %v, %v", n, err)
	}

	live, err := NewRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := live.Node("/dev/null"); err != nil || n == nil || n.Type != "c" || n.Major != 1 || n.Minor != 3 {
		t.Errorf("/dev/null: %v, %v", n, err)
	}
}
