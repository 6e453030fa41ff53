package integration

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
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// maxResident is what container check may need for an image, in KiB.
const maxResident = 64 << 10

// compression is how a layer is compressed.
type compression struct {
	name string
	to   func(io.Writer) (io.WriteCloser, error)
}

// compressions are gzip, zstd with the window of its level 19, and none, of which the file system
// need not store the zeros.
func compressions() []compression {
	return []compression{
		{"gzip", func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }},
		{"zstd", func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w, zstd.WithWindowSize(8<<20)) }},
		{"none", nil},
	}
}

// layBlob writes a blob of an OCI layout by a function, and returns its descriptor.
func layBlob(t testing.TB, layout string, write func(*os.File) error) map[string]any {
	t.Helper()
	dir := filepath.Join(layout, "blobs/sha256")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := write(f); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	size, err := io.Copy(hash, f)
	if err != nil {
		t.Fatal(err)
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if err := os.Rename(f.Name(), filepath.Join(dir, sum)); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"digest": "sha256:" + sum, "size": size}
}

// layDocument writes a blob of JSON.
func layDocument(t testing.TB, layout string, v any) map[string]any {
	t.Helper()
	return layBlob(t, layout, func(f *os.File) error { return json.NewEncoder(f).Encode(v) })
}

// layLargeImage makes an OCI layout whose layer has a file of a size between two small ones. The
// compressed layer is one part, repeated: streams of gzip and zstd can be joined.
func layLargeImage(t testing.TB, layout string, size int64, c compression) {
	t.Helper()
	const part = 64 << 20
	var pending bytes.Buffer
	w := tar.NewWriter(&pending)
	header := func(name string, size int64) error {
		return w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size, Mode: 0o644})
	}
	err := errors.Join(header("usr/lib/x86_64-linux-gnu/libc.so.6", 0), header("opt/model.bin", size))
	head := bytes.Clone(pending.Bytes())
	// The file's size is a multiple of the block's, and what follows it is an archive of its own.
	pending.Reset()
	w = tar.NewWriter(&pending)
	if err := errors.Join(err, header("usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01", 0), w.Close()); err != nil {
		t.Fatal(err)
	}
	layer := layBlob(t, layout, func(f *os.File) error {
		if c.to == nil {
			_, err := f.Write(head)
			if err == nil {
				err = f.Truncate(int64(len(head)) + size)
			}
			if err == nil {
				_, err = f.WriteAt(pending.Bytes(), int64(len(head))+size)
			}
			return err
		}
		compressed := func(b []byte) ([]byte, error) {
			var out bytes.Buffer
			w, err := c.to(&out)
			if err == nil {
				_, err = w.Write(b)
			}
			if err == nil {
				err = w.Close()
			}
			return out.Bytes(), err
		}
		// Random bytes, each block of them repeated, so that the decompressor looks far back.
		content := make([]byte, part)
		random := rand.NewChaCha8([32]byte{})
		for at := 0; at < part; at += 64 << 10 {
			_, _ = random.Read(content[at : at+4<<10])
		}
		parts := [][]byte{head, content, pending.Bytes()}
		for i := range parts {
			b, err := compressed(parts[i])
			if err != nil {
				return err
			}
			parts[i] = b
		}
		_, err := f.Write(parts[0])
		for range size / part {
			if err == nil {
				_, err = f.Write(parts[1])
			}
		}
		if err == nil {
			_, err = f.Write(parts[2])
		}
		return err
	})
	config := layDocument(t, layout, map[string]any{"architecture": "amd64", "os": "linux"})
	manifest := layDocument(t, layout, map[string]any{"schemaVersion": 2, "config": config, "layers": []any{layer}})
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(layout, "index.json"), string(index), 0o644)
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// checkImage has container check read an image, and returns the most memory that was resident, in
// KiB, and the CPU time. Memory is sampled: the kernel's figure for a process that has ended
// includes what its parent had.
func checkImage(t testing.TB, node, image string) (resident int, cpu time.Duration) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(gpustack, "container", "check", "--root", node, "--image-dir", image, "-o", "json")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	status := fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)
	for running := true; running; {
		if data, err := os.ReadFile(status); err == nil {
			if found := highWater.FindSubmatch(data); found != nil {
				resident, _ = strconv.Atoi(string(found[1]))
			}
		}
		select {
		case <-ended: // its exit status is that of the node's verdict
			running = false
		case <-time.After(5 * time.Millisecond):
		}
	}
	if stderr.Len() > 0 || !strings.Contains(stdout.String(), image+": nothing in it conflicts") {
		t.Fatalf("exit status %d: %s\n%s", cmd.ProcessState.ExitCode(), stderr.String(), stdout.String())
	}
	return resident, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// TestLargeImage: an image is streamed. BenchmarkLargeImage has the same of 8 GiB.
func TestLargeImage(t *testing.T) {
	node := filepath.Join(t.TempDir(), "node")
	run(t, gpustack, "host", "unpack", examples(t)["talk-2xk4200.txtar"], node)
	for _, c := range compressions() {
		t.Run(c.name, func(t *testing.T) {
			image := t.TempDir()
			layLargeImage(t, image, 512<<20, c)
			resident, cpu := checkImage(t, node, image)
			if resident == 0 || resident > maxResident {
				t.Errorf("%d KiB resident, want at most %d", resident, maxResident)
			}
			t.Logf("%d KiB resident, %s of CPU time", resident, cpu)
		})
	}
}

// BenchmarkLargeImage prints what container check needs for images of 8 GiB.
func BenchmarkLargeImage(b *testing.B) {
	node := filepath.Join(b.TempDir(), "node")
	run(b, gpustack, "host", "unpack", examples(b)["talk-2xk4200.txtar"], node)
	for _, c := range compressions() {
		b.Run(c.name, func(b *testing.B) {
			image := b.TempDir()
			layLargeImage(b, image, 8<<30, c)
			for b.Loop() {
				resident, cpu := checkImage(b, node, image)
				if resident > maxResident {
					b.Errorf("%d KiB resident, want at most %d", resident, maxResident)
				}
				b.ReportMetric(float64(resident)/1024, "MiB-resident")
				b.ReportMetric(cpu.Seconds(), "CPU-s")
			}
		})
	}
}
