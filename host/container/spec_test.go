package container_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/rdma"
)

// drivers are what drivers install of the libraries of compute: links, which lead to files with the
// version, and plain files. VERSION stands for the driver's.
var drivers = map[string][]string{
	"390.157": {
		"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-cfg.so.1", "libnvidia-fatbinaryloader.so.VERSION", "libnvidia-compiler.so.VERSION",
	},
	"470.256.02": {
		"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libnvidia-nvvm.so", "libnvidia-cfg.so.1",
		"libnvidia-compiler.so.VERSION",
	},
	"550.163.01": {"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libnvidia-nvvm.so", "libnvidia-cfg.so.1", "libnvidia-gpucomp.so.VERSION"},
	// This one was seen without libnvidia-nvvm70.so.4.
	"580.159.04": {"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libcudadebugger.so.1", "libnvidia-cfg.so.1", "libnvidia-gpucomp.so.VERSION"},
	"590.48.01": {
		"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libnvidia-nvvm70.so.4", "libnvidia-gpucomp.so.VERSION",
		"libnvidia-tileiras.so.VERSION", "libcudadebugger.so.1", "libnvidia-cfg.so.1",
	},
	"615.71.09": {
		"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libnvidia-nvvm70.so.4", "libnvidia-gpucomp.so.VERSION",
		"libnvidia-tileiras.so.VERSION", "libcudadebugger.so.1", "libnvidia-cfg.so.1",
	},
}

// driverTree returns a machine with a GPU and the libraries of a driver.
func driverTree(version string) string {
	const folder = "usr/lib64"
	links, files := "symlink sys/bus/pci/devices/0000:84:00.0/driver -> ../../drivers/nvidia\n", gpuOfDriver(version)
	for _, name := range drivers[version] {
		name = strings.ReplaceAll(name, "VERSION", version)
		file := name
		if stem, suffix, _ := strings.Cut(name, ".so"); suffix != "."+version && name != "libnvidia-nvvm70.so.4" {
			file = stem + ".so." + version
			links += "symlink " + folder + "/" + name + " -> " + file + "\n"
		}
		if line := "-- " + folder + "/" + file + " --\n"; !strings.Contains(files, line) {
			files += line + version + "\n"
		}
	}
	return links + files
}

// gpuOfDriver returns a GPU that is bound to a driver.
func gpuOfDriver(version string) string {
	return fmt.Sprintf("-- %s/class --\n0x030200\n-- %[1]s/vendor --\n0x10de\n-- %[1]s/device --\n0x20b2\n-- sys/module/nvidia/version --\n%s\n"+
		"-- proc/driver/nvidia/gpus/0000:84:00.0/information --\nDevice Minor: 0\n", "sys/bus/pci/devices/0000:84:00.0", version)
}

// specOf returns the spec of the GPU of a tree.
func specOf(t *testing.T, root host.Root, static bool) container.Specs {
	t.Helper()
	devices := hosttest.Devices(t, root)
	driver, err := nvidia.Read(root, devices)
	hosttest.NoError(t, err)
	d := devices[0]
	return container.SpecOf(&machine.Containers{
		Functions: []machine.ContainerFunction{{Address: d.Address, VendorID: *d.VendorID, ProductID: *d.ProductID}},
		Options:   machine.ContainerOptions{Static: static},
	}, driver, rdma.Stack{}, devices)
}

func mounts(s container.Specs) (names []string) {
	for _, m := range s.GPU.ContainerEdits.Mounts {
		names = append(names, path.Base(m.ContainerPath))
	}
	return names
}

// TestSpecLibraries: a spec mounts each library of compute that the driver has, by the name that
// programs load, and no other: none with the driver's version in its name that CUDA does not open.
func TestSpecLibraries(t *testing.T) {
	t.Parallel()
	for version, names := range drivers {
		want := slices.Clone(names)
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], "VERSION", version)
		}
		want = append(want, "libcuda.so") // Triton links with it
		unopened := []string{"libnvidia-gpucomp.so.550.163.01", "libnvidia-gpucomp.so.580.159.04"}
		want = slices.DeleteFunc(want, func(name string) bool {
			return name == "libnvidia-nvvm.so" && version != "470.256.02" || slices.Contains(unopened, name)
		})
		slices.Sort(want)
		// Another driver has left a library.
		root := hosttest.Lay(t, driverTree(version)+"-- usr/lib64/libnvidia-gpucomp.so.575.51.03 --\n")
		got := mounts(specOf(t, root, false))
		slices.Sort(got)
		hosttest.EqualIn(t, version, want, got)
	}
}

// TestSpecUpgrade: what an upgrade without a boot takes away from a spec, written by a boot or
// static: names with the driver's version that programs of its driver load, and no other.
func TestSpecUpgrade(t *testing.T) {
	t.Parallel()
	versions := []string{"390.157", "470.256.02", "550.163.01", "580.159.04", "590.48.01", "615.71.09"}
	for i, from := range versions[:len(versions)-1] {
		to := hosttest.Lay(t, driverTree(versions[i+1]))
		missing := func(s container.Specs) (names []string) {
			for _, m := range s.GPU.ContainerEdits.Mounts {
				if ok, err := to.Exists(m.HostPath); !ok || err != nil {
					names = append(names, path.Base(m.HostPath))
				}
			}
			return names
		}
		var want []string // what programs of the old driver load by that name
		switch from {
		case "390.157":
			want = []string{"libnvidia-fatbinaryloader.so.390.157", "libnvidia-compiler.so.390.157"}
		case "470.256.02":
			want = []string{"libnvidia-compiler.so.470.256.02"}
		case "590.48.01":
			want = []string{"libnvidia-gpucomp.so.590.48.01", "libnvidia-tileiras.so.590.48.01"}
		}
		for _, static := range []bool{false, true} {
			if diff := cmp.Diff(want, missing(specOf(t, hosttest.Lay(t, driverTree(from)), static))); diff != "" {
				t.Errorf("spec of %s after the upgrade to %s, static %t (-want +got):\n%s", from, versions[i+1], static, diff)
			}
		}
	}
}

// TestSpecPrograms: programs that link with libcuda find it, as torch.compile does, and nvidia-smi is
// there if the host has it, of the driver's own source.
func TestSpecPrograms(t *testing.T) {
	t.Parallel()
	inContainer := "symlink run/nvidia/driver/usr/lib64/libcuda.so.1 -> libcuda.so.580.159.04\n-- run/nvidia/driver/usr/lib64/libcuda.so.580.159.04 --\n"
	for name, test := range map[string]struct {
		tree string
		want string
	}{
		"none":             {driverTree("580.159.04"), ""},
		"the host's":       {driverTree("580.159.04") + "-- usr/bin/nvidia-smi --\n", "/usr/bin/nvidia-smi"},
		"of the container": {inContainer + "-- usr/bin/nvidia-smi --\n-- run/nvidia/driver/usr/bin/nvidia-smi --\n" + gpuOfDriver("580.159.04"), "/run/nvidia/driver/usr/bin/nvidia-smi"},
	} {
		s := specOf(t, hosttest.Lay(t, test.tree), true)
		got := ""
		for _, m := range s.GPU.ContainerEdits.Mounts {
			if m.ContainerPath == "/usr/bin/nvidia-smi" {
				got = m.HostPath
			}
		}
		hosttest.EqualIn(t, name+": nvidia-smi", test.want, got)
		if len(s.Missing) > 0 || !slices.Contains(s.GPU.ContainerEdits.Env, "TRITON_LIBCUDA_PATH=/usr/local/nvidia/lib64") || !slices.Contains(mounts(s), "libcuda.so") {
			t.Errorf("%s: %q, %q, %+v", name, s.GPU.ContainerEdits.Env, mounts(s), s.Missing)
		}
	}
}

// TestSpecStray: a libcuda without a version and a file that no link leads to do not make a spec
// mount the folder that has them.
func TestSpecStray(t *testing.T) {
	t.Parallel()
	tree := strings.Replace(driverTree("615.71.09"), "symlink usr/lib64/libcuda.so.1 -> libcuda.so.615.71.09\n", "", 1)
	tree = strings.Replace(tree, "-- usr/lib64/libcuda.so.615.71.09 --\n615.71.09\n",
		"-- usr/lib64/libcuda.so.1 --\nnone\n-- usr/lib64/libcuda.so.535.54.03 --\n535.54.03\n", 1)
	s := specOf(t, hosttest.Lay(t, tree), false)
	if !slices.Contains(mounts(s), "libcuda.so.1") {
		t.Errorf("mounts: %q", mounts(s))
	}
	for _, m := range s.GPU.ContainerEdits.Mounts {
		if !strings.HasPrefix(path.Base(m.HostPath), "lib") || !strings.Contains(m.HostPath, ".so") || !strings.HasPrefix(path.Base(m.HostPath), path.Base(m.ContainerPath)) {
			t.Errorf("%+v", m)
		}
	}
}

// TestSpecOneDriver: a spec has the libraries of one driver, the container's, beside a stale
// package.
func TestSpecOneDriver(t *testing.T) {
	t.Parallel()
	tree := strings.ReplaceAll(driverTree("580.159.04"), "usr/lib64/", "run/nvidia/driver/usr/lib64/")
	links, files, _ := strings.Cut(tree, "-- ")
	s := specOf(t, hosttest.Lay(t, links+"symlink usr/lib/x86_64-linux-gnu/libcuda.so.1 -> libcuda.so.535.161.07\n-- "+files+
		"-- usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07 --\n535.161.07\n"), true)
	for _, m := range s.GPU.ContainerEdits.Mounts {
		if !strings.HasPrefix(m.HostPath, "/run/nvidia/driver/usr/lib64/") {
			t.Errorf("%s", m.HostPath)
		}
	}
	if n := len(s.GPU.ContainerEdits.Mounts); n != 7 {
		t.Errorf("%d mounts: %q", n, mounts(s))
	}
}

// TestSpecNamespaces: a VF whose RDMA device a container has now, in mode exclusive, stays in the
// spec with its nodes.
func TestSpecNamespaces(t *testing.T) {
	t.Parallel()
	const vf = "0000:0c:00.1"
	root := hosttest.Lay(t, hosttest.Fabric([]hosttest.HCA{{Address: "0000:0c:00.0", Device: "mlx5_0", Total: 8, VFs: []string{vf}},
		{Address: vf, Product: "101c", Device: "mlx5_2", Index: 1, PF: "0000:0c:00.0", Elsewhere: true}}, "-- sys/module/ib_core/parameters/netns_mode --\nN\n"))
	devices, stack, err := rdma.Scan(root, rdma.Options{})
	hosttest.NoError(t, err)
	address := stack.Adapters[1].Address
	record := machine.Containers{Options: machine.ContainerOptions{UMAD: true}, Functions: []machine.ContainerFunction{
		{Address: *address, HCA: true, VendorID: 0x15b3, ProductID: 0x101c, Path: devices.Path(devices.At(*address))}}}
	s := container.SpecOf(&record, nvidia.Driver{}, stack, devices)
	if s.HCA == nil || len(s.Missing) > 0 {
		t.Fatalf("%+v", s)
	}
	var got []string
	for _, d := range s.HCA.Devices {
		got = append(got, d.Name+" "+d.ContainerEdits.DeviceNodes[0].Path)
	}
	hosttest.EqualIn(t, "devices", []string{vf + " /dev/infiniband/uverbs1", vf + "-umad /dev/infiniband/umad2"}, got)
}
