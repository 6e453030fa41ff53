package nvidia_test

import (
	"fmt"
	"slices"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/nvidia"
)

// TestCoreLibraries: what a driver of each time can have, by the names that its programs load.
func TestCoreLibraries(t *testing.T) {
	t.Parallel()
	links := []string{"libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"}
	others := []string{"libnvidia-cfg.so.1", "libnvidia-opencl.so.1"}
	video := []string{"libnvcuvid.so.1", "libnvidia-encode.so.1"}
	for _, test := range []struct {
		version nvidia.Version
		want    []string
	}{
		{"390.157", slices.Concat(links, others, video, []string{"libnvidia-fatbinaryloader.so.390.157", "libnvidia-compiler.so.390.157"})},
		{"470.256.02", slices.Concat(links, []string{"libnvidia-nvvm.so", "libnvidia-nvvm.so.4"}, others, video, []string{"libnvidia-compiler.so.470.256.02"})},
		{"535.261.03", slices.Concat(links, []string{"libnvidia-nvvm.so.4"}, others, []string{"libcudadebugger.so.1"}, video,
			nil)},
		{"580.159.04", slices.Concat(links, []string{"libnvidia-nvvm.so.4", "libnvidia-nvvm70.so.4"}, others, []string{"libcudadebugger.so.1"}, video,
			nil)},
		{"615.71.09", slices.Concat(links, []string{"libnvidia-nvvm.so.4", "libnvidia-nvvm70.so.4"}, others, []string{"libcudadebugger.so.1"}, video,
			[]string{"libnvidia-gpucomp.so.615.71.09", "libnvidia-tileiras.so.615.71.09"})},
	} {
		var got []string
		for _, c := range nvidia.CoreLibraries(test.version) {
			got = append(got, c.FileName(test.version))
		}
		hosttest.EqualIn(t, fmt.Sprint(test.version), test.want, got)
	}
}

// TestReadCoreLibraries: libraries that are plain files, with the driver's version in the name and
// without, are found by the names that programs load.
func TestReadCoreLibraries(t *testing.T) {
	t.Parallel()
	got := read(t, hosttest.Lay(t, "symlink usr/lib64/libcuda.so.1 -> libcuda.so.615.71.09\n-- usr/lib64/libcuda.so.615.71.09 --\n615.71.09\n"+
		"-- usr/lib64/libnvidia-nvvm70.so.4 --\n-- usr/lib64/libnvidia-gpucomp.so.615.71.09 --\n-- usr/lib64/libnvidia-glcore.so.615.71.09 --\n"+
		"-- usr/lib64/libnvidia-gpucomp.so.580.159.04 --\n-- usr/lib64/libnvidia-gpucomp.so --\n"))
	for name, version := range map[string]nvidia.Version{
		"libcuda.so.1": "615.71.09", "libnvidia-nvvm70.so.4": "", "libnvidia-gpucomp.so.615.71.09": "615.71.09",
	} {
		if l := got.Library(name); l == nil || l.Version != version {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if l := got.Library("libnvidia-gpucomp.so.580.159.04"); l != nil {
		t.Errorf("of another driver: %+v", l)
	}
	if len(got.Libraries) != 4 || len(got.Warnings) > 0 {
		t.Errorf("%+v, %v", got.Libraries, got.Warnings)
	}
}

// TestReadContainer: the libraries of a driver container are below its root.
func TestReadContainer(t *testing.T) {
	t.Parallel()
	const below = "run/nvidia/driver/usr/lib/x86_64-linux-gnu"
	got := read(t, hosttest.Lay(t, "symlink "+below+"/libcuda.so.1 -> libcuda.so.580.95.05\n-- "+below+"/libcuda.so.580.95.05 --\n580.95.05\n"))
	l := got.Library("libcuda.so.1")
	if got.Container != "/run/nvidia/driver" || l == nil || l.Folder != "/"+below || l.Version != "580.95.05" || len(got.Warnings) > 0 {
		t.Errorf("%+v, %+v", got, l)
	}
}
