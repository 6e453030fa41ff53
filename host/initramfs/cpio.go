package initramfs

import (
	"bytes"
	"io"
	"path"
	"strconv"
)

// Bounds of what is kept in memory of an image.
const (
	maxName    = 4096     // with its zero: what the kernel takes (init/initramfs.c, PATH_MAX)
	maxNames   = 64 << 20 // bytes of all names
	maxEntries = 1 << 20
	maxFile    = 4 << 20  // bytes of a wanted file
	maxLinked  = 64 << 10 // bytes of a file that is kept for a name that may come
	maxFiles   = 64 << 20 // bytes of all such files
)

// archive collects what archives of cpio hold.
type archive struct {
	wanted  func(string) bool
	names   map[string]bool
	files   map[string][]byte
	links   map[inode]*linked
	entries int
	length  int // of all names
	kept    int // of all files
}

func newArchive(wanted func(string) bool) *archive {
	return &archive{wanted: wanted, names: map[string]bool{}, files: map[string][]byte{}, links: map[inode]*linked{}}
}

// inode tells which names are one file's.
type inode struct {
	major, minor, number uint32
}

// linked is a file with several names. One of their entries, for most writers the
// last, has what it holds; the others have nothing.
type linked struct {
	wanted  []string
	left    uint32 // names to come
	content []byte
	lost    bool // was there, and is not kept
}

// head is what an entry begins with, without what is of no interest here
// (cpio(5) of libarchive; Linux, buffer-format.rst).
type head struct {
	inode
	mode, links, size uint32
	sum               *uint32 // of what it holds, byte by byte
	name              string
}

// Kinds of files (inode(7)).
const (
	kindMask = 0o170000
	regular  = 0o100000
)

// trailer names the entry at an archive's end. Links do not reach beyond it.
const trailer = "TRAILER!!!"

// read reads entries, and zeros between them, until something else follows or the
// data ends.
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
		return s.malformed("an entry that does not begin at a multiple of four")
	}
	if a.entries++; a.entries > maxEntries {
		return s.malformed("more than %d entries", maxEntries)
	}
	h, err := readHead(s)
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

// linked reads an entry of a file that has several names.
func (a *archive) linked(s *source, h head, name string) error {
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
		return s.malformed("%s: what it holds came before it, under another name, and is too much to be kept", name)
	}
	for _, n := range l.wanted {
		a.files[n] = l.content
	}
	return nil
}

// content returns what an entry holds that is kept.
func (a *archive) content(s *source, h head) ([]byte, error) {
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

// readHead reads six letters, thirteen numbers of eight hexadecimal digits, and the
// name, with zeros up to a multiple of four.
func readHead(s *source) (head, error) {
	letters, err := s.take(6)
	if err != nil {
		return head{}, err
	}
	magic := string(letters)
	switch magic {
	case "070701", "070702":
	case "070707":
		return head{}, s.malformed("an entry of cpio's old form, which the kernel does not read")
	default:
		return head{}, s.malformed("%q, which begins no entry", magic)
	}
	var numbers [13]uint32
	for i := range numbers {
		digits, err := s.take(8)
		if err != nil {
			return head{}, err
		}
		n, err := strconv.ParseUint(string(digits), 16, 32)
		if err != nil {
			return head{}, s.malformed("%q, which is no number", digits)
		}
		numbers[i] = uint32(n)
	}
	h := head{inode: inode{numbers[7], numbers[8], numbers[0]}, mode: numbers[1], links: numbers[4], size: numbers[6]}
	if magic == "070702" {
		h.sum = &numbers[12]
	}
	length := numbers[11]
	if length > maxName {
		return head{}, s.malformed("a name of %d bytes", length)
	}
	name, err := s.take(int(length))
	if err != nil {
		return head{}, err
	}
	// Some writers fill it up with zeros, for what follows to be aligned.
	text, rest, ended := bytes.Cut(name, []byte{0})
	if !ended || len(text) == 0 || len(bytes.Trim(rest, "\x00")) > 0 {
		return head{}, s.malformed("%q, which is no name", name)
	}
	h.name = string(text)
	return h, s.skip(-s.at & 3)
}

// copy copies what an entry holds.
func (h head) copy(s *source, to io.Writer) error {
	if h.sum == nil {
		return s.copy(to, int64(h.size))
	}
	sum := summer(0)
	if err := s.copy(io.MultiWriter(&sum, to), int64(h.size)); err != nil {
		return err
	}
	if h.mode&kindMask == regular && h.size > 0 && uint32(sum) != *h.sum {
		return s.malformed("%s: its bytes add up to %08x, and not to %08x", h.name, uint32(sum), *h.sum)
	}
	return nil
}

// summer adds bytes up.
type summer uint32

func (sum *summer) Write(p []byte) (int, error) {
	for _, b := range p {
		*sum += summer(b)
	}
	return len(p), nil
}
