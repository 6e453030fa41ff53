package container

import (
	"errors"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
)

// NVIDIA Container Toolkit since 1.18.0 writes the specs of nvidia.com/gpu itself, by a unit that
// reads an environment file.
const (
	RefreshUnit   = "nvidia-cdi-refresh.service"
	RefreshEnv    = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env" // the operator's
	RefreshKey    = "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS"
	RefreshReads  = nvidia.Version("1.19.0") // from here on the key is read
	RefreshDropIn = "/etc/systemd/system/nvidia-cdi-refresh.service.d/gpustack.conf"
	// RefreshFile has the key as each boot finds the machine: one UUID that the driver does not show
	// makes NVIDIA's generator fail as a whole.
	RefreshFile = "/run/gpustack/nvidia-cdi-refresh.env"
)

// Toolkit is what NVIDIA Container Toolkit has installed below a root.
type Toolkit struct {
	Refresh string         // the path of its unit, "" before 1.18.0
	Version nvidia.Version // "" if unknown
	Output  string         // the file that the unit writes
	Limited bool           // the operator has set which GPUs it writes
}

// ReadToolkit finds the programs and the unit of NVIDIA Container Toolkit, and its configuration.
// Its version is that of its library, whose file name has it.
func ReadToolkit(root host.Root) (t Toolkit, failed error) {
	t.Output = path.Join("/run/cdi", "nvidia.yaml")
	t.Refresh, failed = root.FindUnit(RefreshUnit)
	for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", nvidia.ToolkitFolder} {
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			failed = errors.Join(failed, err)
		}
		for _, name := range names {
			if version, ok := strings.CutPrefix(name, "libnvidia-container.so."); ok && strings.Count(version, ".") > 1 {
				t.Version = nvidia.Version(version)
			}
		}
	}
	data, err := root.ReadFile(RefreshEnv)
	if err != nil && !host.IsAbsent(err) {
		failed = errors.Join(failed, err)
	}
	for line := range strings.Lines(string(data)) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key {
		case RefreshKey:
			t.Limited = true
		case "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH":
			t.Output = strings.TrimPrefix(strings.Trim(value, `"'`), "/var")
		}
	}
	return t, failed
}

// BootFiles returns the paths of all files of which [PutSpec], [BootSpec] and [RefreshList] need to
// know.
func BootFiles() []string {
	return append(specFiles(), RefreshFile, RefreshDropIn)
}

// RefreshList returns the change of the list by which NVIDIA's unit gives containers only the GPUs
// that are recorded for them: those that the driver shows now. There is none without the drop-in
// that has the unit read it, where has says whether it is planned, and without such a GPU.
func RefreshList(files edit.Files, c *machine.Containers, driver nvidia.Driver, has bool) (edit.Change, error) {
	var ids []string
	gpus := false
	for _, f := range c.All() {
		gpus = gpus || !f.HCA
		gpu := driver.GPU(f.Address)
		switch {
		case f.HCA || gpu == nil || gpu.Minor == nil:
		case gpu.UUID != nil:
			ids = append(ids, *gpu.UUID)
		case f.UUID != "":
			ids = append(ids, f.UUID) // which the driver shows after the first use
		}
	}
	if !has || !gpus {
		return files.Remove(RefreshFile)
	}
	slices.Sort(ids)
	if ids == nil {
		ids = []string{"none"} // an empty list would name every GPU
	}
	list, err := files.Put(RefreshFile, []byte(RefreshKey+"="+strings.Join(ids, ",")+"\n"), 0o644, false)
	list.Purpose = "which GPUs " + RefreshUnit + " gives containers"
	return list, err
}

// HasRefreshList reports whether NVIDIA's unit reads the list.
func HasRefreshList(files edit.Files) (bool, error) {
	f, err := files.Read(RefreshDropIn)
	return f != nil, err
}
