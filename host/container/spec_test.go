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
	"gpustack/host/pci"
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
	"615.71.09": {
		"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4", "libnvidia-nvvm70.so.4", "libnvidia-gpucomp.so.VERSION",
		"libnvidia-tileiras.so.VERSION", "libcudadebugger.so.1", "libnvidia-cfg.so.1",
	},
}

// driverTree returns a machine with a GPU and the libraries of a driver.
func driverTree(version string) string {
	const folder = "usr/lib64"
	const gpu = "sys/bus/pci/devices/0000:84:00.0"
	links, files := "symlink "+gpu+"/driver -> ../../drivers/nvidia\n", fmt.Sprintf(
		"-- %s/class --\n0x030200\n-- %[1]s/vendor --\n0x10de\n-- %[1]s/device --\n0x20b2\n-- sys/module/nvidia/version --\n%s\n"+
			"-- proc/driver/nvidia/gpus/0000:84:00.0/information --\nDevice Minor: 0\n", gpu, version)
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

// specOf returns the spec of the GPU of a tree.
func specOf(t *testing.T, root host.Root, static bool) container.Specs {
	t.Helper()
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := nvidia.Read(root, devices)
	if err != nil {
		t.Fatal(err)
	}
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
// programs load, and no other.
func TestSpecLibraries(t *testing.T) {
	t.Parallel()
	for version, names := range drivers {
		want := slices.Clone(names)
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], "VERSION", version)
		}
		want = slices.DeleteFunc(want, func(name string) bool { return name == "libnvidia-nvvm.so" && version != "470.256.02" })
		slices.Sort(want)
		// Another driver has left a library.
		root := hosttest.Lay(t, driverTree(version)+"-- usr/lib64/libnvidia-gpucomp.so.575.51.03 --\n")
		got := mounts(specOf(t, root, false))
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

// TestSpecUpgrade: after an upgrade of the driver, the spec that a boot writes has the names of the
// new one. A static spec has no name that the upgrade takes away, unless programs of its driver do
// not work without it.
func TestSpecUpgrade(t *testing.T) {
	t.Parallel()
	versions := []string{"390.157", "470.256.02", "550.163.01", "580.159.04", "615.71.09"}
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
		if names := missing(specOf(t, to, false)); names != nil {
			t.Errorf("%s, written by a boot: %v", versions[i+1], names)
		}
		var want []string // what programs of the old driver load by that name
		switch from {
		case "390.157":
			want = []string{"libnvidia-fatbinaryloader.so.390.157", "libnvidia-compiler.so.390.157"}
		case "470.256.02":
			want = []string{"libnvidia-compiler.so.470.256.02"}
		}
		if diff := cmp.Diff(want, missing(specOf(t, hosttest.Lay(t, driverTree(from)), true))); diff != "" {
			t.Errorf("static spec of %s after the upgrade to %s (-want +got):\n%s", from, versions[i+1], diff)
		}
	}
	static := mounts(specOf(t, hosttest.Lay(t, driverTree("615.71.09")), true))
	if !slices.Contains(static, "libnvidia-gpucomp.so.615.71.09") {
		t.Errorf("static spec of 615.71.09: %v", static)
	}
}
