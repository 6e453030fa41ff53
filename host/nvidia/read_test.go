package nvidia_test

import (
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/snapshot"
)

func read(t *testing.T, root host.Root) nvidia.Driver {
	t.Helper()
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil && !strings.Contains(err.Error(), pci.ErrNoPCI.Error()) {
		t.Fatal(err)
	}
	d, err := nvidia.Read(root, devices)
	hosttest.NoError(t, err)
	return d
}

func lay(t *testing.T, name string) host.Root {
	t.Helper()
	text := hosttest.Read(t, filepath.Join("testdata", name+".txtar"))
	return hosttest.Lay(t, text)
}

func ptr[T any](v T) *T { return &v }

// TestReadDebian reads a node with Debian's packages: the module is nvidia-current, and the links
// of libraries lead through two alternatives. The minor of a GPU is not its place in the order of
// addresses, and the major of nvidia-uvm has changed since its node was made.
func TestReadDebian(t *testing.T) {
	t.Parallel()
	root := lay(t, "debian12")
	const file = "/usr/lib/x86_64-linux-gnu/nvidia/current/"
	const main, alternatives = "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia"
	library := func(folder, link, name string) nvidia.Library {
		return nvidia.Library{Folder: folder, Link: link, File: file + name, Version: "535.261.03"}
	}
	want := nvidia.Driver{
		Loaded: &nvidia.Module{Version: "535.261.03"},
		OnDisk: []nvidia.DiskModule{{Kernel: "6.1.0-37-amd64", Running: true}},
		GPUs: []nvidia.GPU{
			{Address: hosttest.Address(t, "0000:27:00.0"), Minor: ptr(1), UUID: ptr("GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b"),
				Model: ptr("Tesla V100-SXM2-16GB")},
			{Address: hosttest.Address(t, "0000:84:00.0"), Minor: ptr(0), Model: ptr("NVIDIA H100 80GB HBM3")},
			{Address: hosttest.Address(t, "0000:a1:00.0")}, // sysfs shows it as bound
		},
		Majors: map[string]int{"nvidia": 195, "nvidia-frontend": 195, "nvidia-uvm": 509, "nvidia-caps": 510},
		Nodes: []nvidia.DeviceNode{
			{Path: "/dev/nvidia-uvm", Major: 511, Mode: 0o666}, {Path: "/dev/nvidia-uvm-tools", Major: 509, Minor: 1, Mode: 0o666},
			{Path: "/dev/nvidia0", Major: 195, Mode: 0o666}, {Path: "/dev/nvidia1", Major: 195, Minor: 2, Mode: 0o666},
			{Path: "/dev/nvidiactl", Major: 195, Minor: 255, Mode: 0o660},
		},
		Libraries: []nvidia.Library{
			library(main, "libcuda.so.1", "libcuda.so.535.261.03"),
			library(main, "libnvidia-ml.so.1", "libnvidia-ml.so.535.261.03"),
			library(file[:len(file)-1], "libcuda.so.1", "libcuda.so.535.261.03"),
			library(file[:len(file)-1], "libnvidia-ml.so.1", "libnvidia-ml.so.535.261.03"),
			library(alternatives, "libcuda.so.1", "libcuda.so.535.261.03"),
			library(alternatives, "libnvidia-ml.so.1", "libnvidia-ml.so.535.261.03"),
		},
	}
	got := read(t, root)
	hosttest.Equal(t, want, got)
	var stale []string
	for _, n := range got.Stale() {
		stale = append(stale, n.String())
	}
	wantStale := []string{"/dev/nvidia-uvm is device 511:0, the driver's is 509:0", "/dev/nvidia1 is device 195:2, the driver's is 195:1"}
	hosttest.EqualIn(t, "stale nodes", wantStale, stale)

	var tree snapshot.Tree
	hosttest.EqualIn(t, "recorded", want, read(t, root.Recorded(&tree)))
	dir := t.TempDir()
	hosttest.NoError(t, tree.Unpack(dir))
	again := hosttest.Root(t, dir)
	hosttest.EqualIn(t, "from the snapshot", want, read(t, again))
}

// TestReadRHEL reads a node with the open module: the libraries of another version are left in the
// folder, 32-bit ones are in /usr/lib, an upgrade of the module waits for a reboot, and one GPU is
// divided by MIG.
func TestReadRHEL(t *testing.T) {
	t.Parallel()
	got := read(t, lay(t, "rhel9"))
	hosttest.EqualIn(t, "loaded", &nvidia.Module{Version: "555.58.02", Open: true}, got.Loaded)
	onDisk := []nvidia.DiskModule{{Kernel: "5.14.0-427.el9.x86_64", Running: true}, {Kernel: "5.14.0-503.el9.x86_64"}}
	hosttest.EqualIn(t, "on disk", onDisk, got.OnDisk)
	lib64 := func(link, file string, v nvidia.Version) nvidia.Library {
		return nvidia.Library{Folder: "/lib64", Link: link, File: file, Version: v}
	}
	plain := lib64("libnvidia-ml.so.1", "/opt/nvidia/lib/libnvidia-ml.so.1", "")
	plain.Folder = "/opt/nvidia/lib"
	libraries := []nvidia.Library{
		plain,
		lib64("libcuda.so.1", "/usr/lib64/libcuda.so.560.28.03", "560.28.03"),
		lib64("libnvidia-encode.so.1", "", ""), // the link leads nowhere
		lib64("libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.560.28.03", "560.28.03"),
		lib64("libnvidia-nvvm.so.4", "/usr/lib64/libnvidia-nvvm.so.4.0.0", ""),
	}
	hosttest.EqualIn(t, "libraries", libraries, got.Libraries)
	if l := got.Library("libcuda.so.1"); l == nil || l.Version != "560.28.03" {
		t.Errorf("libcuda.so.1: %+v", l)
	}
	if l := got.Library("libnvidia-encode.so.1"); l != nil {
		t.Errorf("libnvidia-encode.so.1: %+v", l)
	}
	a100 := hosttest.Address(t, "0000:17:00.0")
	if !got.MIG[a100] || len(got.MIG) != 1 {
		t.Errorf("MIG: %v", got.MIG)
	}
	if got.Warnings != nil {
		t.Errorf("warnings %q", got.Warnings)
	}
}

// TestFabricManager: a process shows that Fabric Manager runs. A socket is not made by default, and
// a pid file is left by a process that was killed.
func TestFabricManager(t *testing.T) {
	t.Parallel()
	const at = "sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0/"
	const board = "symlink sys/bus/pci/devices/0000:21:00.0 -> ../../../devices/pci0000:20/0000:20:00.0/0000:21:00.0\n-- " + at + "class --\n0x068000\n-- " + at + "vendor --\n0x10de\n-- " + at + "device --\n0x1af1\n"
	const pidFile = "-- run/nvidia-fabricmanager/nv-fabricmanager.pid --\n"
	for name, test := range map[string]struct {
		tree string
		want bool
	}{
		"a process":               {board + "-- proc/7/comm --\nnv-fabricmanage\n", true},
		"another process":         {board + "-- proc/7/comm --\nnv-hostengine\n", false},
		"the process of its file": {board + pidFile + "812\n-- proc/812/comm --\nfm\n", true},
		"a file that was left":    {board + pidFile + "812\n-- proc/7/comm --\nfm\n", false},
		"a socket alone":          {board + "-- run/nvidia-fabricmanager/socket --\n", false},
		"no board":                {"-- proc/7/comm --\nnv-fabricmanage\n", false},
	} {
		root := hosttest.Lay(t, test.tree)
		var tree snapshot.Tree
		hosttest.EqualIn(t, name, test.want, read(t, root.Recorded(&tree)).FabricManager)
		dir := t.TempDir()
		hosttest.NoError(t, tree.Unpack(dir))
		again := hosttest.Root(t, dir)
		hosttest.EqualIn(t, name+": from the snapshot", test.want, read(t, again).FabricManager)
	}
}

// TestReadNothing: a machine without the driver has nothing to warn about.
func TestReadNothing(t *testing.T) {
	t.Parallel()
	got := read(t, hosttest.Lay(t, "-- etc/hostname --\nnode\n-- sys/module/nvidia_drm/version --\n1\n"))
	hosttest.Equal(t, nvidia.Driver{}, got)
}

// TestReadMalformed: each file that is malformed or cannot be read is named, and the others are
// read.
func TestReadMalformed(t *testing.T) {
	t.Parallel()
	got := read(t, lay(t, "malformed"))
	want := []string{
		`/proc/driver/nvidia/version: no version of a kernel module in the line that begins with NVRM version`,
		`/proc/driver/nvidia/gpus/0000:84: not a PCI address: "0000:84"`,
		"/proc/driver/nvidia/gpus/0000:84:00.0/information: " +
			`device minor: not 0 to 247: "248"`,
		`/proc/driver/nvidia/gpus/0000:86:00.0/information: not a regular file`,
		`/proc/devices: not a major and a name: "x nvidia-uvm"`,
		`/dev/nvidia-uvm: not a device node`,
		`/dev/nvidiactl: not a character device`,
	}
	hosttest.Equal(t, want, got.Warnings)
	if got.Loaded == nil || got.Loaded.Version != "" || got.Majors["nvidia"] != 195 || got.Node("/dev/nvidia0") == nil || len(got.GPUs) != 3 {
		t.Errorf("%+v", got)
	}
}

// TestReadUnreadable: whether the driver is loaded must not be guessed.
func TestReadUnreadable(t *testing.T) {
	t.Parallel()
	root := hosttest.Lay(t, "-- proc/driver/nvidia/version/file --\n")
	if d, err := nvidia.Read(root, nil); err == nil || !strings.Contains(err.Error(), "/proc/driver/nvidia/version: not a regular file") {
		t.Errorf("%+v, %v", d, err)
	}
}
