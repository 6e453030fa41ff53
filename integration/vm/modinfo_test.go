package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/modprobe"
)

// TestModuleInfo: what gpustack reads of Debian's modules is what modinfo prints.
func TestModuleInfo(t *testing.T) {
	for _, module := range []string{"drivers/infiniband/core/ib_core", "drivers/vfio/pci/vfio-pci"} {
		files, err := filepath.Glob(filepath.Join(linux.Modules, "kernel", module+".ko*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", module, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		dir, name := t.TempDir(), filepath.Base(files[0])
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		root, err := host.NewRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		info, err := modprobe.ReadInfo(root, "/"+name)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"license", "vermagic"} {
			out, err := exec.Command("modinfo", "-F", key, files[0]).Output()
			if want := strings.TrimSpace(string(out)); err != nil || info.Value(key) != want || want == "" {
				t.Errorf("%s: %s is %q, want %q, %v", module, key, info.Value(key), want, err)
			}
		}
	}
}
