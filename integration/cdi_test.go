package integration

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/hosttest"
	"gpustack/host/nvidia"
	"gpustack/host/rdma"
	"gpustack/integration/cudaparts"
)

// cdiSet is a set of CDI specs, good or malformed. The unit test of host/cdi compares the same sets
// with the CDI library.
type cdiSet struct {
	name, ask string
	podman    string // what podman 4.3.1 does where its library differs from version 1.1.1: "starts", "unresolvable" or "crashes"
	root      host.Root
	folders   cdi.Folders
}

func readCDISets(t *testing.T, dir string) (sets []cdiSet) {
	t.Helper()
	files, err := filepath.Glob("../host/cdi/testdata/sets/*.txtar")
	if err != nil || len(files) < 18 {
		t.Fatalf("%d sets: %v", len(files), err)
	}
	for _, file := range files {
		data := hosttest.Read(t, file)
		s := cdiSet{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
		for line := range strings.Lines(data) {
			if name, ok := strings.CutPrefix(line, "# ask "); ok {
				s.ask = strings.TrimSpace(name)
			}
			if does, ok := strings.CutPrefix(line, "# podman-4.3.1 "); ok {
				s.podman = strings.TrimSpace(does)
			}
		}
		root := hosttest.Lay(t, data)
		s.root, s.folders = root, cdi.Read(root)
		for _, folder := range []string{"etc/cdi", "run/cdi"} {
			hosttest.NoError(t, os.MkdirAll(filepath.Join(dir, s.name, folder), 0o755))
			if _, err := os.Stat(root.Path(folder)); err == nil {
				run(t, "cp", "-a", root.Path(folder)+"/.", filepath.Join(dir, s.name, folder))
			}
		}
		sets = append(sets, s)
	}
	return sets
}

// expected returns what podman is to print, and whether a container starts, by our reading alone.
func (s cdiSet) expected() (texts []string, starts bool) {
	edits := s.folders.Edits(s.ask)
	switch {
	case s.podman == "crashes":
		return []string{"panic: runtime error: " + s.folders.All()[0].Library, "\nstatus 2\n"}, false
	case s.podman == "unresolvable" || edits == nil && s.podman == "":
		return []string{"unresolvable CDI devices " + s.ask}, false
	case edits == nil:
		return nil, true // by another version of the library, which reads the file
	}
	for _, p := range s.folders.All() {
		// What is stale is injected, unless the library refuses it: a node of another type.
		injected := p.Kind == cdi.Version || p.Kind == cdi.Stale && p.Library == ""
		if p.Status == "fail" && !p.Skipped && (p.Device == "" || p.Device == s.ask) && !injected {
			texts = append(texts, p.Library)
		}
	}
	if len(texts) > 0 {
		return texts[:1], false // the runtime stops at the first
	}
	for _, n := range edits.DeviceNodes {
		major, minor := n.Major, n.Minor
		if node, err := s.root.Node(cmp.Or(n.HostPath, n.Path)); major == 0 && err == nil && node != nil {
			major, minor = int64(node.Major), int64(node.Minor)
		}
		texts = append(texts, fmt.Sprintf("%s %x:%x", n.Path, major, minor))
	}
	for i, variable := range edits.Env {
		name, _, _ := strings.Cut(variable, "=")
		if !slices.ContainsFunc(edits.Env[i+1:], func(later string) bool { return strings.HasPrefix(later, name+"=") }) {
			texts = append(texts, variable) // of one that is set twice, the last counts
		}
	}
	return texts, true
}

// TestCDISets compares our reading of good and malformed sets with podman: where we say that a name
// leads to no device, podman does not start the container, and names neither file nor reason; where
// we say that the wrong device is injected, it is.
func TestCDISets(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	sets := readCDISets(t, base)
	root := filepath.Join(base, "image")
	for _, dir := range []string{"bin", "dev", "proc", "sys", "usr/lib", "tmp"} {
		hosttest.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	busybox, err := exec.LookPath("busybox")
	hosttest.NoError(t, err)
	run(t, "cp", busybox, filepath.Join(root, "bin/busybox"))
	var script strings.Builder
	script.WriteString("base=$1\n")
	for _, s := range sets {
		fmt.Fprintf(&script, `
rm -rf /etc/cdi /run/cdi
cp -a "$base/%[1]s/etc/cdi" /etc/cdi
cp -a "$base/%[1]s/run/cdi" /run/cdi
if podman run --rm --device %[2]s --rootfs "$base/image" /bin/busybox sh -c '/bin/busybox env; cd /dev; /bin/busybox stat -c "/dev/%%n %%t:%%T" *; echo started' >"$base/%[1]s/out" 2>&1
then echo "status 0" >>"$base/%[1]s/out"
else echo "status $?" >>"$base/%[1]s/out"
fi
`, s.name, s.ask)
	}
	if _, talk, status := withContainers(t, script.String(), base); status != 0 {
		t.Fatalf("exit status %d\n%s", status, talk)
	}
	started := 0
	for _, s := range sets {
		out := hosttest.Read(t, filepath.Join(base, s.name, "out"))
		texts, starts := s.expected()
		if got := strings.Contains(out, "\nstarted\nstatus 0\n"); got != starts {
			t.Errorf("%s: podman starts the container: %t\n%s%v", s.name, got, out, s.folders.All())
			continue
		}
		for _, text := range texts {
			hosttest.ContainsIn(t, s.name+": what podman prints", text, out)
		}
		if starts {
			started++
			continue
		}
		if s.podman != "crashes" && strings.Contains(out, "/cdi/") {
			t.Errorf("%s: podman names the file:\n%s", s.name, out)
		}
		if all := s.folders.All(); len(all) == 0 || !slices.ContainsFunc(all, func(p cdi.Problem) bool { return strings.Contains(p.File, "/cdi/") }) {
			t.Errorf("%s: we do not name the file: %v", s.name, all)
		}
	}
	if started < 5 || started > len(sets)-15 {
		t.Errorf("%d of %d containers started", started, len(sets))
	}
}

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
