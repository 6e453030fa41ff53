package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/integration/cudaparts"
)

// askCUDA prints as JSON what libraries answer on a machine without a driver: whether libcuda could
// be loaded and its version of CUDA, the result of the CUDA runtime and its text, and the result of
// NVML. Its arguments are the folder of the driver's libraries, or "", and the CUDA runtime.
const askCUDA = `
import ctypes, json, sys
folder, runtime = sys.argv[1:]
answer = {}
if folder:
    version = ctypes.c_int()
    cuda = ctypes.CDLL(folder + "/libcuda.so.1")
    assert cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
    answer["cuda"] = version.value
    answer["nvml"] = ctypes.CDLL(folder + "/libnvidia-ml.so.1").nvmlInit_v2()
cudart, count = ctypes.CDLL(runtime), ctypes.c_int()
cudart.cudaGetErrorString.restype = ctypes.c_char_p
answer["cudart"] = cudart.cudaGetDeviceCount(ctypes.byref(count))
answer["text"] = cudart.cudaGetErrorString(answer["cudart"]).decode()
print(json.dumps(answer))
`

// Results of CUDA's runtime (cudaErrorInsufficientDriver, cudaErrorNoDevice) and of NVML
// (NVML_ERROR_DRIVER_NOT_LOADED).
const (
	insufficientDriver = 35
	noDevice           = 100
	driverNotLoaded    = 9
)

// TestCUDA compares the table of toolkits with real libraries: each CUDA runtime with each libcuda.
// A driver that is accepted gets as far as to look for a GPU, one that is too old does not, and
// neither does an image without libcuda.
func TestCUDA(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	type pair struct {
		driver, toolkit nvidia.Version // no driver: an image without libcuda
	}
	var pairs []pair
	script := "cat >$dir/ask.py <<'END'\n" + askCUDA + "END\n"
	drivers := []nvidia.Version{""}
	folders := []string{""}
	for _, release := range cudaparts.Releases() {
		part, err := cudaparts.Fetch(t.Context(), release, "libcuda1")
		hosttest.NoError(t, err)
		folder := filepath.Join(dir, string(release))
		layDriver(t, release, folder)
		drivers, folders = append(drivers, nvidia.Version(part.Upstream())), append(folders, folder)
	}
	for _, release := range cudaparts.Releases() {
		part, err := cudaparts.Cudart(t.Context(), release)
		hosttest.NoError(t, err)
		toolkit, ok := nvidia.ToolkitOf(part.Upstream())
		if !ok {
			t.Fatalf("CUDA runtime %s: no version of a toolkit", part.Upstream())
		}
		runtime := filepath.Join(part.Dir, multiarch, "libcudart.so."+part.Upstream())
		for i, folder := range folders {
			pairs = append(pairs, pair{drivers[i], toolkit})
			script += fmt.Sprintf("LD_LIBRARY_PATH=%s python3 $dir/ask.py '%[1]s' %s\n", folder, runtime)
		}
	}
	out, talk, status := withContainers(t, script)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if status != 0 || len(lines) != len(pairs) {
		t.Fatalf("exit status %d, %d answers for %d pairs:\n%s%s", status, len(lines), len(pairs), out, talk)
	}
	tooOld, minor := 0, 0
	for i, p := range pairs {
		var answer struct {
			CUDA, NVML, Cudart int
			Text               string
		}
		hosttest.NoError(t, json.Unmarshal([]byte(lines[i]), &answer))
		name := fmt.Sprintf("CUDA %s with driver %q: %+v", p.toolkit, p.driver, answer)
		t.Log(name)
		if p.driver == "" {
			if answer.Cudart != insufficientDriver {
				t.Errorf("%s, want %d", name, insufficientDriver)
			}
			continue
		}
		accepted, _ := nvidia.Accepts(string(p.toolkit), p.driver)
		want := noDevice
		switch accepted {
		case nvidia.TooOld:
			tooOld++
			want = insufficientDriver
		case nvidia.Minor:
			minor++
		case nvidia.Full:
		default:
			t.Errorf("%s: %s", name, accepted)
		}
		if answer.Cudart != want {
			t.Errorf("%s, our verdict is %q, want %d", name, accepted, want)
		}
		if got := fmt.Sprintf("%d.%d", answer.CUDA/1000, answer.CUDA%1000/10); got != string(nvidia.CUDA(p.driver)) {
			t.Errorf("%s, our table has CUDA %s", name, nvidia.CUDA(p.driver))
		}
		if answer.NVML != driverNotLoaded {
			t.Errorf("%s, want %d of NVML", name, driverNotLoaded)
		}
	}
	if tooOld == 0 || minor == 0 {
		t.Errorf("%d pairs with a driver that is too old, %d with minor version compatibility: the fetched versions do not show both", tooOld, minor)
	}
}

// TestCUDALibraries reads real libraries of each driver: the version of their names is in them, the
// version of a copy without a version in its name is unknown. The newest driver has all core
// libraries.
func TestCUDALibraries(t *testing.T) {
	t.Parallel()
	for _, release := range cudaparts.Releases() {
		names := []string{"libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "libnvcuvid1"}
		if release == cudaparts.Trixie {
			names = append(names, "libnvidia-ptxjitcompiler1", "libnvidia-nvvm4", "nvidia-opencl-icd", "libcudadebugger1", "libnvidia-encode1")
		}
		dir := t.TempDir()
		const folder, plain = "usr/lib64", "lib64"
		hosttest.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
		var version string
		for _, name := range names {
			part, err := cudaparts.Fetch(t.Context(), release, name)
			hosttest.NoError(t, err)
			version = part.Upstream()
			run(t, "cp", "-a", filepath.Join(part.Dir, cudaparts.Folder)+"/.", filepath.Join(dir, folder))
		}
		for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
			data := hosttest.Read(t, filepath.Join(dir, folder, name))
			writeFile(t, filepath.Join(dir, plain, name), data)
		}
		root := hosttest.Root(t, dir)
		d, err := nvidia.Read(root, pci.Devices{})
		if err != nil || len(d.Warnings) > 0 || len(d.Libraries) != len(names)+2 {
			t.Fatalf("%s: %+v, %v", release, d, err)
		}
		for _, l := range d.Libraries {
			if plainly := l.Folder == "/"+plain; plainly != (l.Version == "") || !plainly && string(l.Version) != version {
				t.Errorf("%s: %+v", release, l)
			}
		}
		for _, core := range nvidia.CoreLibraries(nvidia.Version(version)) {
			// libnvidia-gpucomp is of another package, which libcuda of this driver does not need.
			if release == cudaparts.Trixie && !core.Versioned && d.Library(core.Name) == nil {
				t.Errorf("%s has no %s", release, core.Name)
			}
		}
	}
}
