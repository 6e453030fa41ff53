package integration

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/hosttest"
	"gpustack/host/nvidia"
	"gpustack/host/rdma"
	"gpustack/integration/cudaparts"
)

// TestNvidiaCTK compares the nodes and libraries of compute with those that NVIDIA's own generator
// finds on the same tree, which has the real libraries of driver 550: ours are at least those. The
// generator creates /dev/nvidiactl, so it has a /dev of its own, where nodes of the driver are
// played by another device. nvidia-modeset serves graphics.
func TestNvidiaCTK(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	tree := filepath.Join(base, "tree")
	hosttest.NoError(t, os.Mkdir(tree, 0o755))
	for _, name := range []string{
		"libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "libnvidia-nvvm4", "libnvidia-cfg1", "nvidia-opencl-icd", "libcudadebugger1", "libnvcuvid1", "libnvidia-encode1",
	} {
		part, err := cudaparts.Fetch(t.Context(), cudaparts.Trixie, name)
		hosttest.NoError(t, err)
		run(t, "cp", "-a", part.Dir+"/.", tree)
	}
	tool, err := filepath.Abs("../build/tools/nvidia-ctk")
	hosttest.NoError(t, err)
	out, talk, status := withContainers(t, `
for name in nvidia0 nvidia1 nvidia-uvm nvidia-uvm-tools nvidia-modeset; do mknod -m 666 /dev/$name c 1 3; done
"$1" cdi generate --mode=management --driver-root="$2" --dev-root=/ --nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook --format=json
`, tool, tree)
	if status != 0 {
		t.Fatalf("exit status %d\n%s", status, talk)
	}
	spec, problems := cdi.Parse("/run/cdi/nvidia.yaml", []byte(out))
	if spec == nil || len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, out)
	}

	root := hosttest.Root(t, tree)
	driver, err := nvidia.Read(root, nil)
	hosttest.NoError(t, err)
	ours := map[string]string{} // the link of each file
	for _, core := range nvidia.CoreLibraries("550.163.01") {
		if core.Versioned { // of packages that libcuda of this driver does not need
			continue
		}
		if l := driver.Library(core.Name); l == nil {
			t.Errorf("%s is not found: %+v", core.Name, driver.Libraries)
		} else {
			ours[l.File] = core.Name
		}
	}
	libraries := 0
	for _, m := range spec.ContainerEdits.Mounts {
		file := strings.TrimPrefix(m.HostPath, tree)
		if !strings.Contains(path.Base(file), ".so.") {
			continue
		}
		libraries++
		if ours[file] == "" {
			t.Errorf("nvidia-ctk mounts %s, ours are %v", file, ours)
		}
	}
	if libraries < 9 {
		t.Errorf("nvidia-ctk mounts %d libraries:\n%s\n%s", libraries, out, talk)
	}

	// What a container would get by theirs lacks nothing, by the one function that judges ours too.
	edits := spec.ContainerEdits
	edits.DeviceNodes = append(slices.Clone(edits.DeviceNodes), spec.Devices[0].ContainerEdits.DeviceNodes...)
	edits.Mounts = slices.Clone(edits.Mounts)
	if g := container.Gives(edits, driver, rdma.Stack{}); !g.GPU || len(g.Lacks) > 0 || !g.Triton || !g.Hooked {
		t.Errorf("by nvidia-ctk's spec a container gets %+v\n%s", g, out)
	}

	nodes := nvidia.Nodes(0, 1)
	var theirs []string
	for _, n := range spec.Devices[0].ContainerEdits.DeviceNodes {
		theirs = append(theirs, n.Path)
		if n.Path != "/dev/nvidia-modeset" && !slices.Contains(nodes, n.Path) {
			t.Errorf("nvidia-ctk injects %s, ours are %q", n.Path, nodes)
		}
	}
	if len(theirs) < 5 {
		t.Errorf("nvidia-ctk injects %q:\n%s", theirs, talk)
	}
}
