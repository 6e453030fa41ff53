package initramfs

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// member is an entry of an archive.
type member struct {
	name         string
	mode         uint32 // a regular file's, if it is 0
	text         string
	inode, links uint32
	sum          *uint32
	fill         int // zeros after the name
}

// cpioOf returns an archive of entries without a trailer.
func cpioOf(members ...member) string {
	var b bytes.Buffer
	pad := func() { b.WriteString(strings.Repeat("\x00", -b.Len()&3)) }
	for _, m := range members {
		magic, sum := "070701", uint32(0)
		if m.sum != nil {
			magic, sum = "070702", *m.sum
		}
		if m.mode == 0 {
			m.mode = 0o100644
		}
		fmt.Fprintf(&b, "%s%08x%08x%08x%08x%08X%08x%08x%08x%08x%08x%08x%08x%08x", magic,
			m.inode, m.mode, 0, 0, max(m.links, 1), 0, len(m.text), 0, 0, 0, 0, len(m.name)+1+m.fill, sum)
		b.WriteString(m.name + strings.Repeat("\x00", 1+m.fill))
		pad()
		b.WriteString(m.text)
		pad()
	}
	return b.String()
}

var end = member{name: trailer}

// early and late are the archives that most tests use.
var (
	early = cpioOf(member{name: "kernel", mode: 0o40755}, member{name: "kernel/x86/microcode.bin", text: "code"}, end)
	late  = cpioOf(member{name: ".", mode: 0o40755}, member{name: "./etc/wanted", text: "hello\n"}, member{name: "bin", mode: 0o120777, text: "usr/bin"}, end)
)

// bzipped are those two archives compressed with bzip2, for which Go has no compressor.
var bzipped = map[string]string{
	early: "QlpoOTFBWSZTWYInTXsAACv/gERICAAwAe3gIiQUAD4vkEAgAHUJUjTTQAGmgekGgSiEDQAAAGkXTBPFScQcZs5tkagBvfjcGHKjCMIkUVKB7VYqyeUTCDnM1YKWfW5pwiQ5aVpHTx6zYb0ekYWEp6+CQHCu/F3JFOFCQgidNew=",
	late:  "QlpoOTFBWSZTWR/p0aUAADv/gERYCAAoAf3AIiQUAD9lnoAgAHIijRpoaGQGI0MRtAlTKZT0jQGT0nkmepBiNyHtIYqcHq7iB8QdEopvPtbPAHW2NLuOT09ZzgVhUCCB1BQkFCOeEClROg8BSTYs2eEbQllW4YZ0kN8XmpXQGjEFEGRRtPMXckU4UJAf6dGl",
}

// packers compress data with each method.
var packers = map[string]func(testing.TB, string) string{
	"gzip": func(t testing.TB, text string) string {
		var b bytes.Buffer
		return packed(t, &b, gzip.NewWriter(&b), text)
	},
	"zstd": func(t testing.TB, text string) string {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b)
		hosttest.NoError(t, err)
		return packed(t, &b, w, text)
	},
	"xz": func(t testing.TB, text string) string {
		var b bytes.Buffer
		w, err := xz.WriterConfig{BlockSize: int64(len(text)/4 + 1), DictCap: 1 << 16, CheckSum: xz.CRC32}.NewWriter(&b)
		hosttest.NoError(t, err)
		return packed(t, &b, w, text)
	},
	"lzma": func(t testing.TB, text string) string {
		var b bytes.Buffer
		w, err := lzma.NewWriter(&b)
		hosttest.NoError(t, err)
		return packed(t, &b, w, text)
	},
	"lz4": func(t testing.TB, text string) string {
		var b bytes.Buffer
		b.WriteString("\x02\x21\x4c\x18")
		for len(text) > 0 {
			n := min(len(text), 100)
			block := make([]byte, lz4.CompressBlockBound(n))
			size, err := lz4.CompressBlock([]byte(text[:n]), block, nil)
			hosttest.NoError(t, err)
			if size == 0 { // not to be made smaller: letters as they are
				size = copy(block, literals(text[:n]))
			}
			binary.Write(&b, binary.LittleEndian, uint32(size))
			b.Write(block[:size])
			text = text[n:]
		}
		return b.String()
	},
	"bzip2": func(t testing.TB, text string) string {
		data, err := base64.StdEncoding.DecodeString(bzipped[text])
		hosttest.NoError(t, err)
		return string(data)
	},
}

// literals returns an lz4 block without matches.
func literals(text string) string {
	if len(text) < 15 {
		return string(rune(len(text)<<4)) + text
	}
	return "\xf0" + string([]byte{byte(len(text) - 15)}) + text
}

func packed(t testing.TB, b *bytes.Buffer, w io.WriteCloser, text string) string {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	hosttest.NoError(t, w.Close())
	return b.String()
}

// readText reads an image from a string.
func readText(t testing.TB, image string) (Content, error) {
	t.Helper()
	dir := t.TempDir()
	hosttest.NoError(t, os.WriteFile(filepath.Join(dir, "initrd"), []byte(image), 0o644))
	root := hosttest.Root(t, dir)
	return Read(root, "/initrd", func(name string) bool { return strings.HasSuffix(name, "wanted") })
}

// told summarizes the content that was read.
func told(c Content) string {
	words := append([]string{}, c.Names...)
	for i, name := range words {
		if text, ok := c.Files[name]; ok {
			words[i] += fmt.Sprintf("=%q", text)
		}
	}
	return strings.Join(words, " ")
}

// TestCompressions: with each method, archives before and in the compressed data are read exactly,
// and those after it where the end of the data can be determined. Otherwise, what follows is an error.
func TestCompressions(t *testing.T) {
	const want = `bin etc/wanted="hello\n"`
	last := func(name string) bool { return name == "zstd" || name == "xz" || name == "bzip2" }
	both := "bin etc/wanted=\"hello\\n\" kernel kernel/x86/microcode.bin"
	for name, pack := range packers {
		for _, test := range []struct {
			name    string
			image   func(data string) string
			want    string
			refused bool
		}{
			{"alone", func(data string) string { return data }, want, false},
			{"zeros behind", func(data string) string { return data + strings.Repeat("\x00", 513) }, want, last(name)},
			{"four zeros behind", func(data string) string { return data + "\x00\x00\x00\x00" }, want, last(name)},
			{"one zero behind", func(data string) string { return data + "\x00" }, want, last(name)},
			{"microcode before", func(data string) string { return early + strings.Repeat("\x00", 512) + data }, both, false},
			{"another behind zeros", func(data string) string {
				return data + strings.Repeat("\x00", 4) + packers["gzip"](t, early)
			}, both, last(name)},
			{"another right behind", func(data string) string { return data + pack(t, early) }, both, false},
			{"an archive behind zeros", func(data string) string {
				return data + strings.Repeat("\x00", 8-len(data)&3) + early
			}, both, last(name)},
		} {
			t.Run(name+", "+test.name, func(t *testing.T) {
				image := test.image(pack(t, late))
				c, err := readText(t, image)
				if test.refused {
					if want := name + " data from byte 0 to the end of the image: "; !errors.Is(err, errMalformed) || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: %v, want %s", told(c), err, want)
					}
					return
				}
				hosttest.NoError(t, err)
				hosttest.Equal(t, test.want, told(c))
				hosttest.EqualIn(t, "image", "/initrd", c.Image)
			})
		}
		t.Run(name+", cut short", func(t *testing.T) {
			data := pack(t, late)
			for n := range len(data) {
				c, err := readText(t, data[:n])
				switch {
				case n == 0 && err == nil && len(c.Names) == 0: // an empty image is one
				case name == "lz4" && err == nil: // has no end but that of the data
				case !errors.Is(err, errMalformed):
					t.Errorf("%d of %d bytes: %v", n, len(data), err)
				}
			}
		})
	}
}

// TestLarge: files larger than all buffers are read completely.
func TestLarge(t *testing.T) {
	noise := make([]byte, 300<<10)
	state := uint32(1)
	for i := range noise {
		state = state*1664525 + 1013904223
		noise[i] = byte(state >> 24)
	}
	image := cpioOf(member{name: "much", text: string(noise)}, member{name: "wanted", text: string(noise)}, end)
	for name, pack := range packers {
		if name == "bzip2" {
			continue // of which only small ones are there
		}
		t.Run(name, func(t *testing.T) {
			c, err := readText(t, pack(t, image))
			hosttest.NoError(t, err)
			if !bytes.Equal(c.Files["wanted"], noise) {
				t.Error("not what it was")
			}
		})
	}
}

// TestArchives: archives are read as the kernel reads them.
func TestArchives(t *testing.T) {
	sum := func(n uint32) *uint32 { return &n }
	for _, test := range []struct {
		name, image, want string
	}{
		{"nothing", "", ""},
		{"zeros", "\x00\x00\x00", ""},
		{"no trailer", cpioOf(member{name: "wanted", text: "x"}), `wanted="x"`},
		{"two in a row", early + late, `bin etc/wanted="hello\n" kernel kernel/x86/microcode.bin`},
		{"the last of a name counts", cpioOf(member{name: "wanted", text: "one"}, end, member{name: "./wanted", text: "two"}, end), `wanted="two"`},
		{"a folder takes a file's place", cpioOf(member{name: "wanted", text: "one"}, member{name: "wanted", mode: 0o40755}), `wanted`},
		{"an empty file", cpioOf(member{name: "wanted"}), `wanted=""`},
		{"a slash before", cpioOf(member{name: "/a/../wanted", text: "x"}), `wanted="x"`},
		{"a name filled up with zeros", cpioOf(member{name: "wanted", text: "x", fill: 4000}), `wanted="x"`},
		{"sums", cpioOf(member{name: "wanted", text: "ab", sum: sum(195)}), `wanted="ab"`},
		{"names of one file, the last with what it holds",
			cpioOf(member{name: "a/wanted", inode: 7, links: 3}, member{name: "b", inode: 7, links: 3}, member{name: "c", inode: 7, links: 3, text: "x"}, end),
			`a/wanted="x" b c`},
		{"names of one file, the first with what it holds",
			cpioOf(member{name: "a", inode: 7, links: 2, text: "x"}, member{name: "wanted", inode: 7, links: 2}, end), `a wanted="x"`},
		{"names of one file, each with what it holds",
			cpioOf(member{name: "a", inode: 7, links: 2, text: "x"}, member{name: "wanted", inode: 7, links: 2, text: "y"}, end), `a wanted="y"`},
		{"names of one empty file", cpioOf(member{name: "a", inode: 7, links: 2}, member{name: "wanted", inode: 7, links: 2}, end), `a wanted=""`},
		{"a number of another archive is another file",
			cpioOf(member{name: "a", inode: 7, links: 2, text: "x"}, end, member{name: "wanted", inode: 7, links: 2}, end), `a wanted=""`},
		{"much that is not wanted, with several names",
			cpioOf(member{name: "a", inode: 7, links: 2}, member{name: "b", inode: 7, links: 2, text: strings.Repeat("x", 5<<20)}, end), `a b`},

		{"old form", "070707" + strings.Repeat("0", 100), "malformed initramfs: byte 6: an entry in cpio's old format, which the kernel does not support"},
		{"not a head", "0707xx" + strings.Repeat("0", 104), `malformed initramfs: byte 6: unexpected "0707xx" instead of an entry`},
		{"not a number", late[:40] + "xyz" + late[43:], `malformed initramfs: byte 46: not a hexadecimal number: "00xyz001"`},
		{"not at a multiple of four", "\x00\x00" + late, "malformed initramfs: byte 2: an entry that is not aligned to four bytes"},
		{"a head cut short", late[:50], "malformed initramfs: byte 50: unexpected end of data"},
		{"a name cut short", late[:111], "malformed initramfs: byte 111: unexpected end of data"},
		{"no name", cpioOf(member{name: ""}), `malformed initramfs: byte 111: not a file name: "\x00"`},
		{"a name without an end", strings.Replace(cpioOf(member{name: "wanted"}), "wanted\x00", "wantedx", 1),
			`malformed initramfs: byte 117: not a file name: "wantedx"`},
		{"a name with more behind it", strings.Replace(cpioOf(member{name: "wanted"}), "wanted\x00", "wan\x00edx", 1),
			`malformed initramfs: byte 117: not a file name: "wan\x00edx"`},
		{"too long a name", cpioOf(member{name: "x", fill: maxName}), "malformed initramfs: byte 110: a name of 4098 bytes, more than 4096"},
		{"a file cut short", cpioOf(member{name: "x", text: "12345678"})[:115], "malformed initramfs: byte 115: unexpected end of data"},
		{"a wrong sum", cpioOf(member{name: "x", text: "ab", sum: sum(196)}), "malformed initramfs: byte 114: x: checksum 000000c3 instead of 000000c4"},
		{"too much that is wanted", cpioOf(member{name: "wanted", text: strings.Repeat("x", maxFile+1)}),
			"malformed initramfs: byte 120: wanted: more than 4194304 bytes"},
		{"what a name holds was not kept",
			cpioOf(member{name: "a", inode: 7, links: 2, text: strings.Repeat("x", maxLinked+1)}, member{name: "wanted", inode: 7, links: 2}, end),
			"malformed initramfs: byte 65772: wanted: its content is in an earlier hard link and was too large to keep"},
		{"not known", late + "\x89PNG\r\n\x1a\n", `malformed initramfs: byte 492: neither an entry nor compressed data: "\x89PNG\r\n"`},
		{"a file system", strings.Repeat("\x00", 1080) + "\x53\xef\x01", `malformed initramfs: byte 1080: neither an entry nor compressed data: "S\xef\x01"`},
		{"lzo", late + "\x89LZO\x00\r\n\x1a\n", `byte 492: lzo: compression not supported`},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := readText(t, test.image)
			got := told(c)
			if err != nil {
				got = strings.TrimPrefix(err.Error(), "/initrd: ")
			}
			hosttest.Equal(t, test.want, got)
			if malformed := strings.HasPrefix(test.want, "malformed"); malformed != errors.Is(err, errMalformed) {
				t.Errorf("%v is not the right error", err)
			}
		})
	}
}

// TestCompressedFaults: an error in compressed data has the offset of the data and the reason.
func TestCompressedFaults(t *testing.T) {
	swap := func(text string, at int, with byte) string {
		b := []byte(text)
		b[(at+len(b))%len(b)] = with
		return string(b)
	}
	gz, zst, xzd := packers["gzip"](t, late), packers["zstd"](t, late), packers["xz"](t, late)
	lz, lzm := packers["lz4"](t, late), packers["lzma"](t, late)
	for _, test := range []struct {
		name, image, want string
		is                error
	}{
		{"junk within", early + packers["gzip"](t, late+"junk"),
			`gzip data from byte 384 on: malformed initramfs: byte 492: unexpected "j" instead of an entry`, errMalformed},
		{"an entry cut short within", packers["zstd"](t, late[:300]),
			`zstd data from byte 0 to the end of the image: malformed initramfs: byte 300: unexpected end of data`, errMalformed},
		{"gzip's sum", swap(gz, -6, 1), "gzip data from byte 0 on: malformed initramfs: gzip: invalid checksum", errMalformed},
		{"zstd's sum", swap(zst, -2, 1), "zstd data from byte 0 to the end of the image: malformed initramfs: CRC check failed", errMalformed},
		{"zstd's window", "\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00", "zstd data from byte 0 to the end of the image: malformed initramfs: ", errMalformed},
		{"zstd's kinds of block", "\x28\xb5\x2f\xfd\x00\x58\x07\x00\x00", "zstd data from byte 0 to the end of the image: malformed initramfs: ", errMalformed},
		{"xz's kinds of chunk", swap(xzd, 24, 0x7f), "xz data from byte 0 to the end of the image: malformed initramfs: ", errMalformed},
		{"xz's filters", swap(xzd, 14, 4), "xz data from byte 0 to the end of the image: malformed initramfs: ", errMalformed},
		{"xz's end", xzd[:12], "xz data from byte 0 to the end of the image: malformed initramfs: byte 12: the end of xz data is missing", errMalformed},
		{"lzma's window", swap(lzm, 4, 0x7f), "lzma data from byte 0 on: compression not supported: window larger than 134217728 bytes", errCompression},
		{"lz4's blocks", swap(lz, 7, 0x7f), "lz4 data from byte 0 on: malformed initramfs: byte 8: a block of 21", errMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := readText(t, test.image)
			if !errors.Is(err, test.is) || !strings.HasPrefix(err.Error(), "/initrd: "+test.want) {
				t.Errorf("%v\nwant %s", err, test.want)
			}
		})
	}
}

// TestReadUnreadable: a missing image is an error, not an empty image.
func TestReadUnreadable(t *testing.T) {
	dir := t.TempDir()
	root := hosttest.Root(t, dir)
	if _, err := Read(root, "/boot/initrd", Wanted); !host.IsAbsent(err) || !strings.HasPrefix(err.Error(), "/boot/initrd: ") {
		t.Errorf("%v", err)
	}
	if _, err := Read(root, "/", Wanted); err == nil || err.Error() != "/: not a regular file" {
		t.Errorf("%v", err)
	}
}

// FuzzRead: no image makes Read panic, use much memory, or return something else if zeros precede it.
func FuzzRead(f *testing.F) {
	for name, pack := range packers {
		f.Add([]byte(early + pack(f, late)))
		f.Add([]byte(pack(f, late) + "\x00" + packers[name](f, late)))
	}
	f.Add([]byte(cpioOf(member{name: "a/wanted", inode: 7, links: 2}, member{name: "b", inode: 7, links: 2, text: "x"}, end)))
	wanted := func(name string) bool { return strings.HasSuffix(name, "wanted") }
	f.Fuzz(func(t *testing.T, image []byte) {
		first := newArchive(wanted)
		if err := readImage(bytes.NewReader(image), first); err != nil {
			return
		}
		for name := range first.files {
			if !first.names[name] || !wanted(name) {
				t.Errorf("%q is not among the names, or not wanted", name)
			}
		}
		second := newArchive(wanted)
		if err := readImage(bytes.NewReader(append([]byte{0, 0, 0, 0}, image...)), second); err != nil {
			t.Fatalf("with zeros before: %v", err)
		}
		hosttest.Equal(t, first.names, second.names)
		hosttest.Equal(t, first.files, second.files)
	})
}
