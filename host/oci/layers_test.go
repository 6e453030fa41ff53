package oci_test

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/oci"
)

// listed returns the links and files in a folder, links with their targets.
func listed(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(file, dir+"/")
		if target, err := os.Readlink(file); err == nil {
			name += " -> " + target
		}
		names = append(names, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// TestLayers: layers are applied as container runtimes apply them.
func TestLayers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		layers [][]string
		want   []string
	}{
		{"whiteout of a folder after a file in it", [][]string{{"a/b/libcuda.so.1"}, {"a/b/libcuda.so.2", "a/.wh.b"}}, []string{"a/b/libcuda.so.2"}},
		{"whiteout of a folder before a file in it", [][]string{{"a/b/libcuda.so.1"}, {"a/.wh.b", "a/b/libcuda.so.2"}}, []string{"a/b/libcuda.so.2"}},
		{"whiteout of a folder that is made again", [][]string{{"a/b/libcuda.so.1"}, {"a/b/", "a/.wh.b"}}, nil},
		{"whiteout of a file that is made again", [][]string{{"libcuda.so.1"}, {"libcuda.so.1", ".wh.libcuda.so.1"}}, []string{"libcuda.so.1"}},
		{"opaque folder after a file in it", [][]string{{"a/b/libcuda.so.1", "a/libcuda.so.1"}, {"a/libcuda.so.2", "a/.wh..wh..opq"}}, []string{"a/libcuda.so.2"}},
		{"folder in place of a link", [][]string{{"usr/lib/libcuda.so.1", "lib -> usr/lib"}, {"lib/", "lib/libcuda.so.2"}},
			[]string{"lib/libcuda.so.2", "usr/lib/libcuda.so.1"}},
		{"file in place of a folder", [][]string{{"a/libcuda.so.1"}, {"a"}}, nil},
		{"whiteout through a link", [][]string{{"usr/lib/libcuda.so.1", "lib -> usr/lib"}, {"lib/.wh.libcuda.so.1"}}, []string{"lib -> usr/lib"}},
		{"whiteout of a link", [][]string{{"usr/lib/libcuda.so.1", "lib -> usr/lib"}, {".wh.lib"}}, []string{"usr/lib/libcuda.so.1"}},
		{"absolute link", [][]string{{"usr/lib/", "lib -> /usr/lib"}, {"lib/libcuda.so.1"}}, []string{"lib -> /usr/lib", "usr/lib/libcuda.so.1"}},
		{"hard link to a file of an earlier layer", [][]string{{"libcuda.so.1"}, {"libcuda.so.2 => libcuda.so.1", ".wh.libcuda.so.1"}}, []string{"libcuda.so.2"}},
		{"name that is not UTF-8", [][]string{{"a/\xff/libcuda.so.1"}, {"a/.wh..wh..opq"}}, nil},
		{"CUDA runtimes of Python packages", [][]string{{"opt/v/nvidia/cuda_runtime/lib/libcudart.so.12", "opt/v/torch/lib/libcudart-9335f6a2.so.12"}},
			[]string{"opt/v/nvidia/cuda_runtime/lib/libcudart.so.12", "opt/v/torch/lib/libcudart-9335f6a2.so.12"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var layers [][]byte
			for _, names := range test.layers {
				layers = append(layers, layer(t, names...))
			}
			dir, _ := save(t, layers...)
			to := t.TempDir()
			if _, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, to); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, listed(t, to)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOpaqueFolders: an opaque folder has no folder of earlier layers, where a loader would look.
func TestOpaqueFolders(t *testing.T) {
	t.Parallel()
	dir, _ := save(t, layer(t, "usr/lib/", "usr/lib/x/"), archive(t, &tar.Header{Name: "usr/.wh..wh..opq"}))
	to := t.TempDir()
	if _, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, to); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(filepath.Join(to, "usr")); err != nil || len(names) > 0 {
		t.Errorf("the folder has %v, error %v", names, err)
	}
}

// TestSparseFile: a sparse file is a file, and a header of no file is none.
func TestSparseFile(t *testing.T) {
	t.Parallel()
	dir, _ := save(t, archive(t,
		&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: ".", PAXRecords: map[string]string{"comment": "of git archive"}},
		&tar.Header{Typeflag: tar.TypeCont, Name: "usr/lib/libcuda.so.1"}, &tar.Header{Typeflag: tar.TypeReg, Name: "usr/lib/os-release", Size: 100}))
	to := t.TempDir()
	if _, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, to); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"usr/lib/libcuda.so.1", "usr/lib/os-release"}, listed(t, to)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
