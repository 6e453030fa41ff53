package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"gpustack/host/oci"
)

// layer returns a tar archive. A name that ends in "/" is a folder, "A -> B" a symbolic link and
// "A => B" a hard link; other names are files that contain their names.
func layer(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		h := &tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(name))}
		if link, target, ok := strings.Cut(name, " -> "); ok {
			h = &tar.Header{Name: link, Linkname: target, Typeflag: tar.TypeSymlink}
		} else if link, target, ok := strings.Cut(name, " => "); ok {
			h = &tar.Header{Name: link, Linkname: target, Typeflag: tar.TypeLink}
		} else if strings.HasSuffix(name, "/") {
			h = &tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeDir}
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// blob writes a blob and returns its descriptor.
func blob(t *testing.T, dir string, content []byte) map[string]any {
	t.Helper()
	sum := sha256.Sum256(content)
	name := hex.EncodeToString(sum[:])
	if err := os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "blobs/sha256", name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"digest": "sha256:" + name, "size": len(content)}
}

func document(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// save makes a layout of an image with layers, and returns it with the layers' descriptors.
func save(t *testing.T, layers ...[]byte) (dir string, descriptors []map[string]any) {
	t.Helper()
	dir = t.TempDir()
	for _, l := range layers {
		descriptors = append(descriptors, blob(t, dir, l))
	}
	config := blob(t, dir, []byte(`{"config":{"Env":["SECRET=hunter2","LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/nvidia/lib64"]}}`))
	manifest := blob(t, dir, document(t, map[string]any{"config": config, "layers": descriptors}))
	manifest["platform"] = map[string]any{"architecture": runtime.GOARCH}
	other := map[string]any{"digest": "sha256:" + strings.Repeat("0", 64), "size": 1, "platform": map[string]any{"architecture": "s390x"}}
	inner := blob(t, dir, document(t, map[string]any{"manifests": []any{other, manifest}}))
	if err := os.WriteFile(filepath.Join(dir, "index.json"), document(t, map[string]any{"manifests": []any{inner}}), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, descriptors
}

func compressed(t *testing.T, to func(io.Writer) io.WriteCloser, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := to(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gz(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }

func zst(w io.Writer) io.WriteCloser {
	e, err := zstd.NewWriter(w)
	if err != nil {
		panic(err)
	}
	return e
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir, _ := save(t,
		layer(t, "usr/", "usr/lib/", "lib -> usr/lib", "usr/lib/libcuda.so.470.256.02", "usr/lib/libcuda.so.1 -> libcuda.so.470.256.02", "usr/lib/libother.so",
			"usr/local/cuda/lib64/libcudart.so.11.8.89", "etc/ld.so.conf", "opt/x/libcudart.so.9.2", "opt/x/sub/libcudart.so.9.1"),
		compressed(t, gz, layer(t, "lib/libcuda.so.550.163.01", "usr/lib/.wh.libcuda.so.470.256.02", "usr/lib/libcuda.so.1 -> libcuda.so.550.163.01",
			"opt/x/libcudart.so.12.4.127", "opt/x/.wh..wh..opq", "usr/lib/libnvidia-ml.so.1 => usr/lib/libcuda.so.550.163.01")),
		compressed(t, zst, layer(t, "usr/local/cuda/.wh.lib64", "/etc/libibverbs.d/mlx5.driver")))
	to := t.TempDir()
	config, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, to)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(oci.Config{LibraryPath: []string{"/usr/local/nvidia/lib", "/usr/local/nvidia/lib64"}}, config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	var got []string
	err = filepath.WalkDir(to, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := strings.TrimPrefix(file, to+"/")
		if target, err := os.Readlink(file); err == nil {
			name += " -> " + target
		} else if data, err := os.ReadFile(file); err != nil {
			return err
		} else if len(data) > 0 {
			name += ": " + string(data)
		}
		got = append(got, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"etc/ld.so.conf: etc/ld.so.conf", "etc/libibverbs.d/mlx5.driver: /etc/libibverbs.d/mlx5.driver",
		"lib -> usr/lib", "opt/x/libcudart.so.12.4.127: opt/x/libcudart.so.12.4.127", "usr/lib/libcuda.so.1 -> libcuda.so.550.163.01",
		"usr/lib/libcuda.so.550.163.01: lib/libcuda.so.550.163.01", "usr/lib/libnvidia-ml.so.1: lib/libcuda.so.550.163.01",
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestDamaged(t *testing.T) {
	t.Parallel()
	none := func(string, string) error { return nil }
	for _, test := range []struct {
		name   string
		damage func(dir string, blob string) error
		layer  []byte
		want   error
		text   string
	}{
		{"digest", func(_, blob string) error { return os.WriteFile(blob, bytes.Repeat([]byte{0}, 2048), 0o600) }, layer(t, "a"), oci.ErrDamaged, "layers[0] sha256:"},
		{"missing blob", func(_, blob string) error { return os.Remove(blob) }, layer(t, "a"), oci.ErrDamaged, "its blob cannot be read"},
		{"short blob", func(_, blob string) error { return os.Truncate(blob, 512) }, layer(t, "a"), oci.ErrDamaged, "has 512 bytes instead of"},
		{"malformed index", func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, "index.json"), []byte("{"), 0o600) }, layer(t, "a"), nil,
			"index.json: malformed JSON"},
		{"no index", func(dir, _ string) error { return os.Remove(filepath.Join(dir, "index.json")) }, layer(t, "a"), nil, "index.json: no such file"},
		{"large index", func(dir, _ string) error { return os.Truncate(filepath.Join(dir, "index.json"), 5<<20) }, layer(t, "a"), oci.ErrDamaged,
			"index.json: is damaged: more than 4194304 bytes"},
		{"empty index", func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, "index.json"), []byte("{}"), 0o600) }, layer(t, "a"), oci.ErrDamaged,
			"index.json: is damaged: manifests is empty"},
		{"wrong type", func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"manifests":1}`), 0o600)
		}, layer(t, "a"), nil,
			"index.json: malformed JSON: json: cannot unmarshal number into Go struct field document.manifests"},
		{"other version", func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"2.0.0"}`), 0o600)
		}, layer(t, "a"), oci.ErrDamaged, `oci-layout: is damaged: imageLayoutVersion "2.0.0" is not 1`},
		{"other platforms", func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"manifests":[{"platform":{"architecture":"s390x","os":"linux"}},
				{"platform":{"architecture":"`+runtime.GOARCH+`","os":"windows"}}]}`), 0o600)
		}, layer(t, "a"), oci.ErrPlatform, "index.json: no image for this node, which is linux/" + runtime.GOARCH + ": it has linux/s390x, windows/" + runtime.GOARCH},
		{"truncated gzip", none, compressed(t, gz, layer(t, "a"))[:30], nil, "the gzip stream ends early"},
		{"malformed gzip", none, append([]byte{0x1f, 0x8b}, make([]byte, 30)...), nil, "malformed gzip stream"},
		{"truncated zstd", none, compressed(t, zst, bytes.Repeat(layer(t, "a"), 9))[:30], nil, "the zstd stream ends early"},
		{"no archive", none, bytes.Repeat([]byte("x"), 1024), nil, "malformed tar archive"},
		{"other digest", func(dir, blob string) error {
			return os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"manifests":[{"digest":"md5:`+filepath.Base(blob)+`"}]}`), 0o600)
		}, layer(t, "a"), oci.ErrDamaged, "is not one of sha256"},
		{"path out of the image", none, layer(t, "../../etc/ld.so.conf"), oci.ErrPath, `"../../etc/ld.so.conf"`},
		{"link out of the image", none, layer(t, "usr/lib/libcuda.so.1 => ../../x"), oci.ErrPath, "libcuda.so.1"},
		{"two images", func(dir, _ string) error {
			one := `{"digest":"sha256:aa","annotations":{"org.opencontainers.image.ref.name":"v1"}}`
			return os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"manifests":[`+one+`,`+strings.NewReplacer("v1", "v2", "aa", "ab").Replace(one)+`]}`), 0o600)
		}, layer(t, "a"), oci.ErrChoice, "v1 (sha256:aa), v2 (sha256:ab)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, layers := save(t, test.layer)
			if err := test.damage(dir, filepath.Join(dir, "blobs", strings.Replace(fmt.Sprint(layers[0]["digest"]), ":", "/", 1))); err != nil {
				t.Fatal(err)
			}
			_, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, t.TempDir())
			if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || strings.ContainsAny(err.Error(), "\n") ||
				strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v, want %v with %q", err, test.want, test.text)
			}
		})
	}
}

// TestLinksStayInside: a link to a folder of this machine leads into the image.
// A named pipe blocks the program that opens it until someone writes to it.
func TestNamedPipes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"oci-layout", "index.json", "layer"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, layers := save(t, layer(t, "usr/lib/libcuda.so.1"))
			place := filepath.Join(dir, name)
			if name == "layer" {
				place = filepath.Join(dir, "blobs/sha256", strings.TrimPrefix(fmt.Sprint(layers[0]["digest"]), "sha256:"))
			}
			if err := os.RemoveAll(place); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(place, 0o600); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, t.TempDir())
				done <- err
			}()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), "not a regular file") {
					t.Errorf("got error %v, want one of a file that is not regular", err)
				}
			case <-time.After(5 * time.Second):
				t.Error("reading the named pipe does not end")
			}
		})
	}
}

func TestLinksStayInside(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	dir, _ := save(t, layer(t, "usr/lib -> "+outside, "usr/lib/libcuda.so.1"), layer(t, "usr/lib/.wh..wh..opq", "usr/lib/libnvidia-ml.so.1"))
	if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(outside)
	if err != nil || len(names) != 1 {
		t.Errorf("the folder outside has %v, error %v", names, err)
	}
}

// TestStreamed: an image needs little memory, however large its layers are.
func TestStreamed(t *testing.T) { // not parallel: it measures what the process allocates
	const size, most = 256 << 20, 32 << 20
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	err = w.WriteHeader(&tar.Header{Name: "usr/share/model.bin", Mode: 0o644, Typeflag: tar.TypeReg, Size: size})
	chunk := make([]byte, 1<<20)
	for range size / len(chunk) {
		if err == nil {
			_, err = w.Write(chunk)
		}
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	dir, _ := save(t, b.Bytes())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := oci.Unpack(t.Context(), dir, runtime.GOARCH, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > most {
		t.Errorf("%d bytes allocated for an image of %d", allocated, size)
	}
}
