package containercheck_test

import (
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/nvidia"
)

// contained moves the libraries of the driver into a driver container.
func (n *tree) contained() {
	const root = "/run/nvidia/driver"
	n.files["run/nvidia/driver/usr/bin/nvidia-smi"] = ""
	for i := range n.libraries {
		l := &n.libraries[i]
		l.Folder, l.File = root+l.Folder, root+l.File
	}
}

// TestLibraries: what a spec mounts decides, and a remedy can be carried out.
func TestLibraries(t *testing.T) {
	t.Parallel()
	stale := nvidia.Library{
		Folder: "/usr/lib/x86_64-linux-gnu", Link: "libcuda.so.1", File: "/usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07", Version: "535.161.07",
	}
	for name, test := range map[string]struct {
		change               func(*tree)
		status               host.Status
		seen, effect, remedy string // parts
		without              string // in no finding
	}{
		"a stale package beside a driver container": {func(n *tree) {
			n.contained()
			n.libraries = append([]nvidia.Library{stale}, n.libraries...)
		}, host.Pass, "9 libraries of version 550.163.01", "", "", "535.161.07"},
		"a driver container of another version": {func(n *tree) { n.install("575.51.03"); n.contained() },
			host.Fail, "is of version 575.51.03, the loaded module is 550.163.01", "in containers", "restart the driver container", "install module"},
		"a driver container alone": {(*tree).contained, host.Pass, "9 libraries of version 550.163.01", "", "", "of another"},
		"a libcuda without a version": {func(n *tree) {
			n.libraries[0].File, n.libraries[0].Version = "/usr/lib/x86_64-linux-gnu/libcuda.so.1", ""
		}, host.Warn, "the version of /usr/lib/x86_64-linux-gnu/libcuda.so.1 is not known", "names with the driver's version", "install", ": version"},
		"NVML of another version": {func(n *tree) { n.libraries[1].Version = "535.161.07" },
			host.Fail, "libnvidia-ml.so.1 is of version 535.161.07", "in containers", "reboot", "not installed"},
		"a link that leads nowhere": {func(n *tree) { n.libraries[0].File, n.libraries[0].Version = "", "" },
			host.Fail, "libcuda.so.1 leads nowhere", "35 cudaErrorInsufficientDriver", "install", "not installed"},
		"Ubuntu, nothing loaded nor on disk": {func(n *tree) {
			n.unload()
			n.libraries, n.onDisk, n.files["etc/os-release"] = nil, nil, "ID=ubuntu\n"
		}, host.Fail, "libcuda.so.1 is not installed", "35", "libnvidia-compute-BRANCH and nvidia-utils-BRANCH", "libcuda1"},
		"Ubuntu": {func(n *tree) { n.libraries, n.files["etc/os-release"] = nil, "ID=ubuntu\n" },
			host.Fail, "libcuda.so.1 is not installed", "35", "apt-get install libnvidia-compute-550 nvidia-utils-550", "libcuda1"},
	} {
		n := healthy()
		test.change(n)
		findings, _, err := n.verify(t)
		hosttest.NoError(t, err)
		found := false
		var of []host.Finding
		for _, f := range findings {
			if f.Check != "libraries" {
				continue
			}
			of = append(of, f)
			found = found || f.Status == test.status && strings.Contains(f.Seen, test.seen) && strings.Contains(f.Effect, test.effect) &&
				strings.Contains(f.Remedy.String(), test.remedy)
			if strings.Contains(f.Seen+f.Effect+f.Remedy.String(), test.without) {
				t.Errorf("%s: %q in %+v", name, test.without, f)
			}
		}
		if !found {
			t.Errorf("%s: no such finding in %+v", name, of)
		}
	}
}
