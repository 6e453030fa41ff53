package check_test

import (
	"slices"
	"strings"
	"testing"

	"gpustack/host/container/check"
	"gpustack/host/hosttest"
)

// TestPlace: in which folders the loader of an image looks for libraries of glibc, and which
// libraries its programs load instead of mounted ones.
func TestPlace(t *testing.T) {
	t.Parallel()
	read := func(archive string) check.Image {
		return check.ReadImage(t.Context(), hosttest.Lay(t, archive).Path("/"), "amd64")
	}
	debian, fedora := read("mkdir usr/lib/x86_64-linux-gnu\n-- etc/os-release --\n"), read("mkdir usr/lib64\n-- etc/os-release --\n")
	alpine := read("-- lib/ld-musl-x86_64.so.1 --\n")
	own := read("symlink opt/cuda/libcuda.so.1 -> libcuda.so.470.1.1\nmkdir usr/lib/x86_64-linux-gnu\n-- opt/cuda/libcuda.so.470.1.1 --\n-- etc/ld.so.conf --\n/opt/cuda\n")
	for _, test := range []struct {
		image check.Image
		want  []string
	}{
		{debian, []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib"}},
		{own, []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib"}},
		{fedora, []string{"/usr/lib64"}},
		{alpine, nil},
	} {
		if got := test.image.LibraryFolders(); !slices.Equal(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	for _, test := range []struct {
		image       check.Image
		folder      string
		libraryPath bool
		want        string
	}{
		{debian, "/usr/lib/x86_64-linux-gnu", false, ""},
		{debian, "/usr/local/nvidia/lib64", false, "does not look into /usr/local/nvidia/lib64"},
		{debian, "/usr/local/nvidia/lib64", true, ""},
		{own, "/usr/lib/x86_64-linux-gnu", false, "its own /opt/cuda/libcuda.so.1"},
		{own, "/usr/lib/x86_64-linux-gnu", true, ""},
	} {
		if got := test.image.Loads(test.folder, test.libraryPath); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
