package oci_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"gpustack/host/oci"
)

// TestRootOfImage: no entry replaces or removes the folder that an image is unpacked into, or the
// folder above it.
func TestRootOfImage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		entry tar.Header
	}{
		{"link", tar.Header{Name: "/", Linkname: "/etc", Typeflag: tar.TypeSymlink}},
		{"link by a dot", tar.Header{Name: "usr/..", Linkname: "/etc", Typeflag: tar.TypeSymlink}},
		{"file", tar.Header{Name: "usr/..", Typeflag: tar.TypeReg}},
		{"device", tar.Header{Name: ".", Typeflag: tar.TypeChar}},
		{"whiteout of the folder above", tar.Header{Name: ".wh...", Typeflag: tar.TypeReg}},
		{"whiteout of the folder above a folder", tar.Header{Name: "usr/.wh...", Typeflag: tar.TypeReg}},
		{"whiteout of the root", tar.Header{Name: ".wh..", Typeflag: tar.TypeReg}},
		{"whiteout without a name", tar.Header{Name: ".wh.", Typeflag: tar.TypeReg}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			above := t.TempDir()
			outside, to := filepath.Join(above, "kept"), filepath.Join(above, "to")
			for _, dir := range []string{outside, to} {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if test.entry.Linkname != "" {
				test.entry.Linkname = outside
			}
			dir, _ := save(t, layer(t, "usr/", "usr/lib/", "usr/lib/libcuda.so.1"), archive(t, &test.entry), layer(t, "libcuda.so.1"))
			if _, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, to); !errors.Is(err, oci.ErrPath) {
				t.Errorf("error %v, want %v", err, oci.ErrPath)
			}
			if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
				t.Errorf("the folder outside has %v, error %v", names, err)
			}
			if info, err := os.Lstat(to); err != nil || !info.IsDir() {
				t.Errorf("the folder is %v, error %v", info, err)
			}
		})
	}
}

// archive returns a tar archive of headers, without content.
func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	b, err := archiveOf(headers)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func archiveOf(headers []*tar.Header) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(bytes.Repeat([]byte{'x'}, int(h.Size))); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
