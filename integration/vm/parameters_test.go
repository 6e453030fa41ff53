package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/modprobe"
)

// TestModuleParameters: what gpustack reads of the parameters of Debian's modules is what modinfo
// prints. mlx4_core's tell its parameter num_vfs from that of MLNX_OFED.
func TestModuleParameters(t *testing.T) {
	for _, module := range []string{"drivers/net/ethernet/mellanox/mlx4/mlx4_core", "drivers/infiniband/core/ib_core", "drivers/vfio/pci/vfio-pci"} {
		files, err := filepath.Glob(filepath.Join(linux.Modules, "kernel", module+".ko*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", module, files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		at := filepath.Join(dir, host.ModulesDir, linux.Release)
		name := filepath.Base(files[0])
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, content := range map[string][]byte{name: text, "modules.dep": []byte(name + ":\n")} {
			if err := os.WriteFile(filepath.Join(at, file), content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		root, err := host.NewRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, known, err := modprobe.ReadParameters(root, linux.Release, strings.TrimSuffix(filepath.Base(module), ".ko"))
		if err != nil || !known || len(got) == 0 {
			t.Fatalf("%s: %v, %v, %v", module, got, known, err)
		}
		out, err := exec.Command("modinfo", "-p", files[0]).Output()
		if err != nil {
			t.Fatal(err)
		}
		length := 0
		for _, p := range got {
			line := fmt.Sprintf("%s:%s (%s)\n", p.Name, p.Text, p.Type)
			length += len(line)
			if !strings.Contains(string(out), line) {
				t.Errorf("%s: modinfo does not print %q", module, line)
			}
		}
		if length != len(out) {
			t.Errorf("%s: %v, but modinfo prints\n%s", module, got, out)
		}
	}
}
