package container_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/container"
	"gpustack/host/hosttest"
)

// TestTakes: in which folders the loader of an image looks by default, and which libcuda its
// programs load instead of a mounted one.
func TestTakes(t *testing.T) {
	t.Parallel()
	read := func(archive string) container.Image {
		return container.ReadImage(hosttest.Lay(t, archive).Path("/"), "amd64")
	}
	debian, fedora := read("mkdir usr/lib/x86_64-linux-gnu\n-- etc/os-release --\n"), read("mkdir usr/lib64\n-- etc/os-release --\n")
	own := read("symlink opt/cuda/libcuda.so.1 -> libcuda.so.470.1.1\nmkdir usr/lib/x86_64-linux-gnu\n-- opt/cuda/libcuda.so.470.1.1 --\n-- etc/ld.so.conf --\n/opt/cuda\n")
	for _, test := range []struct {
		image container.Image
		want  []string
	}{
		{debian, []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib"}},
		{own, []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib"}},
		{fedora, []string{"/usr/lib64"}},
	} {
		if got := test.image.Folders; !slices.Equal(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	for _, test := range []struct {
		image       container.Image
		folder      string
		libraryPath bool
		own         string // libcuda that its programs load
		found       bool   // any
	}{
		{debian, "/usr/lib/x86_64-linux-gnu", false, "", true},
		{debian, "/usr/local/nvidia/lib64", false, "", false},
		{debian, "/usr/local/nvidia/lib64", true, "", true},
		{own, "/usr/lib/x86_64-linux-gnu", false, "/opt/cuda/libcuda.so.1", true},
		{own, "/usr/lib/x86_64-linux-gnu", true, "", true},
	} {
		if own, found := test.image.Takes(container.Injection{Folder: test.folder, Env: test.libraryPath}); own != test.own || found != test.found {
			t.Errorf("%+v: %q, %t", test, own, found)
		}
	}
}

// TestNoLibraries: an image in which nothing loads libraries is an error, and so is each image.
func TestNoLibraries(t *testing.T) {
	t.Parallel()
	static := hosttest.Lay(t, "-- usr/bin/program --\n").Path("/")
	_, err := container.ReadImages([]string{static, filepath.Join(static, "absent")}, "amd64")
	if !errors.Is(err, container.ErrNoLibraries) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), static+": has no libraries") {
		t.Errorf("error %v", err)
	}
}

// TestReadImage: what is no image, links that lead out of it, and mounts in it.
func TestReadImage(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	if i := container.ReadImage(empty, "amd64"); i.Err == nil {
		t.Error("an empty folder is an image")
	}
	if i := container.ReadImage(filepath.Join(empty, "absent"), "amd64"); i.Err == nil {
		t.Error("an absent folder is an image")
	}
	outside := filepath.Join(t.TempDir(), "libcuda.so.999.99")
	hosttest.NoError(t, os.WriteFile(outside, nil, 0o600))
	i := container.ReadImage(hosttest.Lay(t, "symlink usr/lib64/libcuda.so.1 -> "+outside+"\n-- usr/lib64/libc.so.6 --\n").Path("/"), "amd64")
	if i.Err != nil || len(i.Libraries) != 0 {
		t.Errorf("a link out of the image leads to %+v, error %v", i.Libraries, i.Err)
	}
	const process, library = "-- proc/1/map_files/libcudart.so.12 --\n", "-- opt/dev/libcudart.so.12 --\n-- usr/lib64/libc.so.6 --\n"
	i = container.ReadImage(hosttest.Lay(t, process+library).Path("/"), "amd64")
	if i.Err != nil || len(i.Runtimes) != 1 || i.Runtimes[0].Path != "/opt/dev/libcudart.so.12" {
		t.Errorf("with /proc mounted: runtimes %+v, error %v", i.Runtimes, i.Err)
	}
}
