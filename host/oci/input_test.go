package oci_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"gpustack/host/oci"
)

// TestNoLayout: what operators name in place of a folder is an error that says what it is.
func TestNoLayout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	docker := archive(t, &tar.Header{Name: "0a/", Typeflag: tar.TypeDir}, &tar.Header{Name: "0a/layer.tar", Size: 4096}, &tar.Header{Name: "manifest.json"})
	both := archive(t, &tar.Header{Name: "blobs/sha256/0a", Size: 4096}, &tar.Header{Name: "manifest.json"}, &tar.Header{Name: "./oci-layout"})
	for _, test := range []struct {
		name string
		want error
	}{
		{file("docker.tar", docker), oci.ErrDockerArchive},
		{file("docker.tar.gz", compressed(t, gz, docker)), oci.ErrDockerArchive},
		{file("oci.tar", both), oci.ErrOCIArchive},
		{file("text", bytes.Repeat([]byte("text"), 999)), oci.ErrArchive},
		{file("empty", nil), oci.ErrArchive},
		{"/dev/null", oci.ErrArchive},
	} {
		if _, err := oci.IsLayout(test.name); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.name) {
			t.Errorf("%s: error %v, want %v", test.name, err, test.want)
		}
	}
	for name, isReference := range map[string]bool{
		"nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04": true, "localhost:5000/x@sha256:" + strings.Repeat("0", 64): true, "docker://nvidia/cuda": true,
		filepath.Join(dir, "absent"): false, "./absent": false,
	} {
		_, err := oci.IsLayout(name)
		hint := interface{ Hint() string }(nil)
		if !errors.Is(err, os.ErrNotExist) || errors.As(err, &hint) != isReference {
			t.Errorf("%s: error %v with a hint: %t, want %t", name, err, hint != nil, isReference)
		}
	}
}

// TestPlatforms: of an index, the image for the node's architecture is read, and what the image's
// configuration says of it.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var manifests []any
	for _, architecture := range []string{"amd64", "arm64"} {
		l := blob(t, dir, layer(t, architecture+"/libcuda.so.1"))
		config := blob(t, dir, []byte(`{"architecture":"`+architecture+`"}`))
		manifest := blob(t, dir, document(t, map[string]any{"config": config, "layers": []any{l}}))
		manifest["platform"] = map[string]any{"architecture": architecture, "os": "linux"}
		manifests = append(manifests, manifest, manifest) // by two tags
	}
	if err := os.WriteFile(filepath.Join(dir, "index.json"), document(t, map[string]any{"manifests": manifests}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		to := t.TempDir()
		config, err := oci.Unpack(t.Context(), dir, architecture, to)
		if err != nil || config.Architecture != architecture {
			t.Errorf("%s: %+v, error %v", architecture, config, err)
		}
		if names := listed(t, to); len(names) != 1 || names[0] != architecture+"/libcuda.so.1" {
			t.Errorf("%s: %q", architecture, names)
		}
	}
	if _, err := oci.Unpack(t.Context(), dir, "riscv64", t.TempDir()); !errors.Is(err, oci.ErrPlatform) {
		t.Errorf("error %v, want %v (on %s)", err, oci.ErrPlatform, runtime.GOARCH)
	}
}
