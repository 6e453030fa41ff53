package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeOf: device nodes are named by their numbers.
func TestNodeOf(t *testing.T) {
	root, err := NewRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"block/259:0": "MAJOR=259\nMINOR=0\nDEVNAME=nvme0n1\nDEVTYPE=disk\n",
		"char/231:1":  "MAJOR=231\nMINOR=1\nDEVNAME=infiniband/uverbs1\n",
		"char/10:9":   "MAJOR=10\n",
		"char/10:10":  strings.Repeat("x", MaxAttribute+1),
	} {
		dir := root.Path("sys/dev/" + name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "uevent"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		of   device
		want string
	}{
		{"a disk", device{true, 259, 0}, "/dev/nvme0n1"},
		{"in a folder of /dev", device{false, 231, 1}, "/dev/infiniband/uverbs1"},
		{"no name", device{false, 10, 9}, ""},
		{"not in sysfs", device{false, 259, 0}, ""},
		{"a GPU of NVIDIA", device{false, 195, 12}, "/dev/nvidia12"},
		{"NVIDIA's control node", device{false, 195, 255}, "/dev/nvidiactl"},
		{"NVIDIA's mode setting", device{false, 195, 254}, "/dev/nvidia-modeset"},
		{"a disk with NVIDIA's number", device{true, 195, 0}, ""},
		{"a terminal", device{false, 137, 1}, ""},
	} {
		if got, err := root.nodeOf(test.of); got != test.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
	}
	if _, err := root.nodeOf(device{false, 10, 10}); err == nil || !strings.Contains(err.Error(), "/sys/dev/char/10:10/uevent") {
		t.Errorf("what cannot be read: %v", err)
	}
}
