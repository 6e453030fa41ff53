package initramfs

import (
	"bytes"
	"io"
	"path"
	"strconv"
)

// Limits of what is kept in memory of an image.
const (
	maxName    = 4096     // with its zero; the kernel's limit (init/initramfs.c, PATH_MAX)
	maxNames   = 64 << 20 // bytes of all names
	maxEntries = 1 << 20
	maxFile    = 4 << 20  // bytes of a wanted file
	maxLinked  = 64 << 10 // bytes of a hard-linked file, of which a wanted name may follow
	maxFiles   = 64 << 20 // bytes of all kept files
)

// archive collects the content of cpio archives.
type archive struct {
	wanted  func(string) bool
	names   map[string]bool
	files   map[string][]byte
	links   map[inode]*linked
	entries int
	length  int // bytes of all names
	kept    int // bytes of all files
}

func newArchive(wanted func(string) bool) *archive {
	return &archive{
		wanted: wanted,
		names:  map[string]bool{}, files: map[string][]byte{}, links: map[inode]*linked{},
	}
}

// inode identifies a file that may have several names.
type inode struct {
	major, minor, number uint32
}

// linked is a file with several names (hard links). One of their entries contains the content, with
// most writers the last one; the others are empty.
type linked struct {
	wanted  []string
	left    uint32 // number of names that follow
	content []byte
	lost    bool // the content was not kept
}

// header is the part of an entry's header that is used here (cpio(5) of libarchive; Linux,
// buffer-format.rst).
type header struct {
	inode
	mode, links, size uint32
	sum               *uint32 // sum of all bytes of the content; nil: none
	name              string
}

// File types (inode(7)).
const (
	kindMask  = 0o170000
	regular   = 0o100000
	directory = 0o040000
)

// trailer is the name of the last entry of an archive. Hard links end there.
const trailer = "TRAILER!!!"

// read reads entries and the zeros between them, up to anything else or the end of the data.
func (a *archive) read(s *source) error {
	for {
		next, err := s.peek(1)
		if err != nil || len(next) == 0 {
			return err
		}
		switch next[0] {
		case 0:
			if _, err := s.ReadByte(); err != nil {
				return err
			}
		case '0':
			if err := a.entry(s); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// entry reads one entry.
func (a *archive) entry(s *source) error {
	if s.at%4 != 0 {
		return s.malformed("an entry that is not aligned to four bytes")
	}
	if a.entries++; a.entries > maxEntries {
		return s.malformed("more than %d entries", maxEntries)
	}
	h, err := readHeader(s)
	if err != nil {
		return err
	}
	if h.name == trailer {
		clear(a.links)
		return h.copy(s, io.Discard)
	}
	name := path.Clean("/" + h.name)[1:]
	if name != "" && !a.names[name] {
		if a.length += len(name); a.length > maxNames {
			return s.malformed("more than %d bytes of names", maxNames)
		}
		a.names[name] = true
	}
	delete(a.files, name)
	switch {
	case h.mode&kindMask != regular:
		return h.copy(s, io.Discard)
	case h.links > 1:
		return a.linked(s, h, name)
	case !a.wanted(name):
		return h.copy(s, io.Discard)
	}
	content, err := a.content(s, h)
	a.files[name] = content
	return err
}

// linked reads an entry of a file with several names.
func (a *archive) linked(s *source, h header, name string) error {
	l := a.links[h.inode]
	if l == nil {
		l = &linked{left: h.links}
		a.links[h.inode] = l
	}
	if l.left > 0 {
		l.left--
	}
	if a.wanted(name) {
		l.wanted = append(l.wanted, name)
	}
	switch {
	case h.size == 0:
	case len(l.wanted) > 0, l.left > 0 && h.size <= maxLinked && a.kept+int(h.size) <= maxFiles:
		content, err := a.content(s, h)
		if err != nil {
			return err
		}
		l.content, l.lost = content, false
	default:
		if err := h.copy(s, io.Discard); err != nil {
			return err
		}
		l.content, l.lost = nil, true
	}
	if l.lost && len(l.wanted) > 0 {
		return s.malformed("%s: its content is in an earlier hard link and was too large to keep", name)
	}
	for _, n := range l.wanted {
		a.files[n] = l.content
	}
	return nil
}

// content returns the content of an entry to keep.
func (a *archive) content(s *source, h header) ([]byte, error) {
	if h.size > maxFile {
		return nil, s.malformed("%s: more than %d bytes", h.name, maxFile)
	}
	if a.kept += int(h.size); a.kept > maxFiles {
		return nil, s.malformed("more than %d bytes of wanted files", maxFiles)
	}
	var b bytes.Buffer
	err := h.copy(s, &b)
	return b.Bytes(), err
}

// readHeader reads six magic characters, thirteen numbers of eight hexadecimal digits, and the
// name, padded with zeros to a multiple of four.
func readHeader(s *source) (header, error) {
	letters, err := s.take(6)
	if err != nil {
		return header{}, err
	}
	magic := string(letters)
	switch magic {
	case "070701", "070702":
	case "070707":
		return header{}, s.malformed("an entry in cpio's old format, which the kernel does not support")
	default:
		return header{}, s.malformed("unexpected %q instead of an entry", magic)
	}
	var numbers [13]uint32
	for i := range numbers {
		digits, err := s.take(8)
		if err != nil {
			return header{}, err
		}
		n, err := strconv.ParseUint(string(digits), 16, 32)
		if err != nil {
			return header{}, s.malformed("not a hexadecimal number: %q", digits)
		}
		numbers[i] = uint32(n)
	}
	h := header{
		inode: inode{major: numbers[7], minor: numbers[8], number: numbers[0]},
		mode:  numbers[1], links: numbers[4], size: numbers[6],
	}
	if magic == "070702" {
		h.sum = &numbers[12]
	}
	length := numbers[11]
	if length > maxName {
		return header{}, s.malformed("a name of %d bytes, more than %d", length, maxName)
	}
	name, err := s.take(int(length))
	if err != nil {
		return header{}, err
	}
	// Some writers pad the name with zeros.
	text, rest, ended := bytes.Cut(name, []byte{0})
	if !ended || len(text) == 0 || len(bytes.Trim(rest, "\x00")) > 0 {
		return header{}, s.malformed("not a file name: %q", name)
	}
	h.name = string(text)
	return h, s.skip(-s.at & 3)
}

// copy copies the content of an entry and verifies its checksum.
func (h header) copy(s *source, to io.Writer) error {
	if h.sum == nil {
		return s.copy(to, int64(h.size))
	}
	sum := summer(0)
	if err := s.copy(io.MultiWriter(&sum, to), int64(h.size)); err != nil {
		return err
	}
	if h.mode&kindMask == regular && h.size > 0 && uint32(sum) != *h.sum {
		return s.malformed("%s: checksum %08x instead of %08x", h.name, uint32(sum), *h.sum)
	}
	return nil
}

// summer is a writer that sums up all bytes.
type summer uint32

func (sum *summer) Write(p []byte) (int, error) {
	for _, b := range p {
		*sum += summer(b)
	}
	return len(p), nil
}
