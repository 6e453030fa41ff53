package oci_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/oci"
)

// program makes layers of bytes: each entry is a type, a name and the target of a link, out of few
// words, so that entries meet at one place. A type of 'L' begins the next layer.
func program(data []byte) (layers [][]*tar.Header) {
	words := []string{
		"a", "b", "a/b", "lib", "usr/lib", "a/libcuda.so.1", "a/b/libcuda.so.1", "lib/libcuda.so.1", "libcuda.so.1", "a/b/c/d/e/libcuda.so.1", "b/libcuda.so.1",
		".wh.a", ".wh.lib", "a/.wh.b", "a/.wh..wh..opq", ".wh..wh..opq", "lib/.wh.libcuda.so.1", "a/b/.wh..wh..opq", "b/.wh.libcuda.so.1", "usr/.wh.lib",
		"../x", "..", ".", "/", "/etc", "a/../b", "a//b/", ".wh...", ".wh.", "a/.wh..", "\xff", "\xff/libcuda.so.1",
		strings.Repeat("n", 300), strings.Repeat("d/", 300) + "libcuda.so.1", strings.Repeat("d/", 2200), "usr/lib/libcudart.so.12", "a/b/c/d", "usr",
	}
	types := map[byte]byte{'f': tar.TypeReg, 'd': tar.TypeDir, 's': tar.TypeSymlink, 'h': tar.TypeLink, 'c': tar.TypeChar, 't': tar.TypeCont, 'g': tar.TypeXGlobalHeader}
	layers = [][]*tar.Header{nil}
	for len(data) >= 3 {
		kind, name, target := data[0], words[int(data[1])%len(words)], words[int(data[2])%len(words)]
		data = data[3:]
		if kind == 'L' {
			layers = append(layers, nil)
			continue
		}
		h := &tar.Header{Typeflag: types[kind], Name: name, Format: tar.FormatPAX}
		switch h.Typeflag {
		case 0:
			continue
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = target
		case tar.TypeXGlobalHeader:
			h = &tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: name, PAXRecords: map[string]string{"path": target}}
		case tar.TypeReg:
			if !strings.HasSuffix(name, "/") {
				h.Size = int64(target[0])
			}
		}
		last := len(layers) - 1
		layers[last] = append(layers[last], h)
	}
	return layers
}

// node is a file of the reference: a folder, a link, a kept file or another one.
type node struct {
	children map[string]*node // of a folder
	target   string           // of a symbolic link
	link     bool
	special  bool // a device
	layer    int  // that made it
}

// reference applies layers in memory as OCI image-spec, layer.md, has it, with all files. It does
// not follow symbolic links.
type reference struct {
	root *node
}

func (r *reference) find(name string) *node {
	n := r.root
	for part := range strings.SplitSeq(name, "/") {
		if n == nil || n.children == nil {
			return nil
		}
		n = n.children[part]
	}
	return n
}

// parent returns the folder of a name, which is made if it is missing.
func (r *reference) parent(name string, layer int) (n *node, ok bool) {
	n = r.root
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		if part == "." {
			break
		}
		if n.children[part] == nil {
			n.children[part] = &node{children: map[string]*node{}, layer: layer}
		}
		if n = n.children[part]; n.children == nil {
			return nil, false
		}
	}
	return n, true
}

// clear removes what earlier layers have below a folder.
func (n *node) clear(layer int) {
	for name, child := range n.children {
		child.clear(layer)
		if child.layer < layer && len(child.children) == 0 {
			delete(n.children, name)
		}
	}
}

// apply applies an entry. ok is false for an entry below a file or a symbolic link, and for a hard
// link whose target a runtime or the reader does not have.
func (r *reference) apply(h *tar.Header, layer int) (ok bool) {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return true
	}
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if name == "" {
		return true
	}
	dir, base := path.Split(name)
	if hidden, found := strings.CutPrefix(base, ".wh."); found {
		folder := r.root
		if dir != "" {
			folder = r.find(path.Clean(dir))
		}
		if folder == nil {
			return !r.below(name)
		}
		if folder.link {
			return false
		}
		if hidden == ".wh..opq" {
			folder.clear(layer)
		} else if child := folder.children[hidden]; child != nil {
			child.clear(layer)
			if child.layer < layer && len(child.children) == 0 {
				delete(folder.children, hidden)
			}
		}
		return true
	}
	folder, ok := r.parent(name, layer)
	if !ok {
		return false
	}
	made := &node{layer: layer}
	switch h.Typeflag {
	case tar.TypeDir:
		if old := folder.children[base]; old != nil && old.children != nil {
			old.layer = layer
			return true
		}
		made.children = map[string]*node{}
	case tar.TypeSymlink:
		made.link, made.target = true, h.Linkname
	case tar.TypeChar:
		made.special = true
	case tar.TypeLink:
		old := r.find(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"))
		if old == nil || old.children != nil || old == folder.children[base] || old.link || old.special || strings.HasPrefix(base, "lib") != strings.HasPrefix(path.Base(h.Linkname), "lib") {
			return false
		}
	}
	folder.children[base] = made
	return true
}

// below reports whether a name is below a symbolic link or a file.
func (r *reference) below(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if n := r.find(dir); n != nil && n.children == nil {
			return true
		}
	}
	return false
}

// kept lists the links and libraries of the reference, as listed does.
func (n *node) kept(prefix string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		switch child := n.children[name]; {
		case child.link:
			names = append(names, prefix+name+" -> "+child.target)
		case child.children != nil:
			names = append(names, child.kept(prefix+name+"/")...)
		case strings.HasPrefix(name, "libcuda") && !child.special:
			names = append(names, prefix+name)
		}
	}
	return names
}

// FuzzLayers: layers of any entries are applied as the reference applies them, and nothing outside
// of the folder is changed.
func FuzzLayers(f *testing.F) {
	for _, seed := range []string{
		"f\x05\x00L\x00\x00f\x0d\x00", "f\x06\x00L\x00\x00f\x06\x00f\x0d\x00", "d\x00\x00f\x05\x00L\x00\x00f\x0e\x00f\x05\x00", "f\x05\x00L\x00\x00f\x05\x00f\x0e\x00",
		"s\x03\x04f\x07\x00L\x00\x00f\x10\x00", "s\x17\x18f\x08\x00", "s\x16\x18f\x08\x00", "f\x1b\x00", "f\x1c\x00", "f\x1d\x00", "s\x00\x18f\x05\x00", "s\x00\x15f\x05\x00",
		"f\x08\x00h\x0a\x08", "h\x08\x14", "f\x14\x00", "f\x20\x00", "f\x21\x00", "d\x22\x00", "f\x1f\x00L\x00\x00f\x0f\x00", "g\x16\x18f\x08\x00", "s\x00\x01s\x01\x00f\x05\x00",
		"c\x00\x00f\x05\x00", "t\x08\x00L\x00\x00d\x08\x00", "f\x06\x00L\x00\x00f\x00\x00L\x00\x00f\x05\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 3 * 64
		layers := program(data[:min(len(data), most)])
		var archives [][]byte
		r := reference{&node{children: map[string]*node{}}}
		same := true
		for i, headers := range layers {
			b, err := archiveOf(headers)
			if err != nil {
				return // no archive has such a header
			}
			archives = append(archives, b)
			for _, h := range headers {
				same = same && r.apply(h, i)
			}
		}
		to, err := unpackBeside(t, archives)
		if err == nil && same {
			if diff := cmp.Diff(r.root.kept(""), listed(t, to)); diff != "" {
				t.Errorf("links and libraries (-want +got):\n%s\nof %s", diff, text(layers))
			}
		}
	})
}

func text(layers [][]*tar.Header) string {
	var b strings.Builder
	for i, headers := range layers {
		for _, h := range headers {
			fmt.Fprintf(&b, "layer %d: %c %.80q -> %.80q\n", i, h.Typeflag, h.Name, h.Linkname)
		}
	}
	return b.String()
}

// unpackBeside unpacks layers into a folder, and fails the test if anything beside it is changed.
func unpackBeside(t *testing.T, layers [][]byte) (to string, err error) {
	t.Helper()
	above := t.TempDir()
	to = filepath.Join(above, "to")
	beside := filepath.Join(above, "libcuda.so.1")
	if err := os.WriteFile(beside, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, _ := save(t, layers...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = oci.Unpack(t.Context(), dir, runtime.GOARCH, to)
	runtime.ReadMemStats(&after)
	const most = 64 << 20
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > most {
		t.Errorf("%d bytes allocated", allocated)
	}
	names, readErr := os.ReadDir(above)
	if data, err := os.ReadFile(beside); err != nil || string(data) != "kept" || readErr != nil || len(names) != 2 {
		t.Errorf("beside the folder: %v, %q, error %v, %v", names, data, err, readErr)
	}
	if info, err := os.Lstat(to); err != nil || !info.IsDir() {
		t.Errorf("the folder is %v, error %v", info, err)
	}
	return to, err
}

// FuzzLayer: bytes that need not be an archive, plain or compressed, are an error or are unpacked
// inside the folder.
func FuzzLayer(f *testing.F) {
	plain := func(headers ...*tar.Header) []byte {
		b, err := archiveOf(headers)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	one := plain(&tar.Header{Typeflag: tar.TypeReg, Name: "usr/lib/libcuda.so.1", Size: 100})
	f.Add(one)
	f.Add(one[:700])
	f.Add(plain(&tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("x", 200), Format: tar.FormatGNU}, &tar.Header{Typeflag: tar.TypeReg, Name: ".wh..."}))
	f.Add(plain(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/ld.so.conf", Size: 1 << 10, PAXRecords: map[string]string{"GPUSTACK.x": strings.Repeat("y", 999)}}))
	f.Add(sparse(100, 4096))
	for _, to := range []func(io.Writer) io.WriteCloser{gz, zst} {
		var b bytes.Buffer
		w := to(&b)
		if _, err := w.Write(one); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = unpackBeside(t, [][]byte{data}) // most bytes are no archive
	})
}

// sparse returns an archive with a sparse file in GNU's old format, which archive/tar does not
// write: its first bytes are data, and what follows them is a hole.
func sparse(data, size int64) []byte {
	block := make([]byte, 512)
	octal := func(at, n int, v int64) { copy(block[at:], fmt.Sprintf("%0*o\x00", n-1, v)) }
	copy(block, "usr/lib/libcuda.so.1")
	octal(100, 8, 0o644)
	octal(108, 8, 0)
	octal(116, 8, 0)
	octal(124, 12, data)
	octal(136, 12, 0)
	block[156] = tar.TypeGNUSparse
	copy(block[257:], "ustar  \x00")
	octal(386, 12, 0)
	octal(398, 12, data)
	octal(410, 12, size)
	octal(422, 12, 0)
	octal(483, 12, size)
	copy(block[148:], "        ")
	sum := int64(0)
	for _, b := range block {
		sum += int64(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	content := make([]byte, (data+511)/512*512)
	copy(content, bytes.Repeat([]byte{'x'}, int(data)))
	return append(append(block, content...), make([]byte, 1024)...)
}
