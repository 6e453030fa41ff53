package host

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Dir is an open directory below a root, for reading many small files in it. A scan of a server
// reads about six thousand files, so each one costs only three system calls: open, read and
// close, relative to the open directory.
type Dir struct {
	root Root
	name string // below the root, links resolved
	fd   int
}

// OpenDir opens a directory. Symbolic links are resolved below the root.
func (r Root) OpenDir(name string) (*Dir, error) {
	place, err := r.Resolve(name)
	if err != nil {
		return nil, err
	}
	fd, err := open(unix.AT_FDCWD, place, dirFlags)
	if err != nil {
		return nil, OfFile(name, err)
	}
	return &Dir{root: r, name: below(strings.TrimPrefix(place, r.dir)), fd: fd}, nil
}

// Close closes the directory.
func (d *Dir) Close() error {
	return unix.Close(d.fd)
}

// Entry is a subdirectory of a Dir that is not open. Its files can be read all the same: the kernel
// then looks up the subdirectory again for each file, which takes less time than opening and
// closing it for two files.
type Entry struct {
	dir    *Dir
	name   string
	target string
	place  string // below the root, with its own link resolved
}

// Entry returns the subdirectory name, or the target of a link with this name. It does not
// determine whether that is a directory.
func (d *Dir) Entry(name string) (*Entry, error) {
	target, err := d.Readlink(name)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not a link
		return nil, err
	}
	return d.EntryTo(name, target), nil
}

// EntryTo is Entry for a link whose target is known.
func (d *Dir) EntryTo(name, target string) *Entry {
	return &Entry{dir: d, name: name, target: target, place: path.Join(d.name, cmp.Or(target, name))}
}

// Target returns the unresolved target if the entry is a symbolic link, and otherwise "".
func (e *Entry) Target() string {
	return e.target
}

// leaves reports whether the entry's link could leave the root if it is followed by the kernel.
func (e *Entry) leaves() bool {
	return path.IsAbs(e.target) || e.place == ".." || strings.HasPrefix(e.place, "../")
}

// Open opens the subdirectory.
func (e *Entry) Open() (*Dir, error) {
	if e.leaves() {
		return e.dir.root.OpenDir(path.Join(e.dir.name, e.name))
	}
	fd, err := open(e.dir.fd, e.name, dirFlags)
	if err != nil {
		return nil, err
	}
	return &Dir{root: e.dir.root, name: e.place, fd: fd}, nil
}

// errLeaves means that the link of an Entry must be resolved below the root, as Open does.
var errLeaves = errors.New("must be resolved below the root")

// ReadAttribute is [Dir.ReadAttribute] in the subdirectory. It returns an error for a link that may
// lead out of the root.
func (e *Entry) ReadAttribute(name string, buf []byte) ([]byte, error) {
	if e.leaves() {
		return nil, errLeaves
	}
	data, err := readAttribute(e.dir.fd, e.name+"/"+name, buf)
	e.dir.root.recordAttribute(e.place, name, data, err)
	return data, err
}

// Readlink is [Dir.Readlink] in the subdirectory, with the same exception.
func (e *Entry) Readlink(name string) (string, error) {
	if e.leaves() {
		return "", errLeaves
	}
	target, err := readlink(e.dir.fd, e.name+"/"+name)
	e.dir.root.recordTarget(e.place, name, target, err)
	return target, err
}

// Record is [Dir.Record] in the subdirectory.
func (e *Entry) Record(buf []byte, names ...string) {
	record(e.dir.root, e, buf, names)
}

// Enter opens the subdirectory name. If name is a symbolic link to a directory, Enter also
// returns the unresolved link target; for a directory, target is "".
func (d *Dir) Enter(name string) (sub *Dir, target string, err error) {
	e, err := d.Entry(name)
	if err != nil {
		return nil, "", err
	}
	sub, err = e.Open()
	return sub, e.target, err
}

// Which returns which of the names are entries of the directory. It reads the entries through buf,
// which must hold the longest one: for several names that takes less time than asking for each. It
// can be called once, and is not recorded.
func (d *Dir) Which(buf []byte, names ...string) (there []string, err error) {
	for {
		n, err := unix.ReadDirent(d.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case n == 0:
			return there, nil
		}
		for list := buf[:n]; len(list) > 0; { // of linux_dirent64, see getdents(2)
			size := binary.NativeEndian.Uint16(list[unsafe.Offsetof(unix.Dirent{}.Reclen):])
			name, _, _ := bytes.Cut(list[unsafe.Offsetof(unix.Dirent{}.Name):size], []byte{0})
			for _, of := range names {
				if string(name) == of {
					there = append(there, of)
				}
			}
			list = list[size:]
		}
	}
}

// Record reads attributes for the recorder, if the root has one. Callers that need only one of
// several files with the same content call it for the others, which other programs read.
func (d *Dir) Record(buf []byte, names ...string) {
	record(d.root, d, buf, names)
}

func record(root Root, dir interface {
	ReadAttribute(name string, buf []byte) ([]byte, error)
}, buf []byte, names []string) {
	if root.rec == nil {
		return
	}
	for _, name := range names {
		dir.ReadAttribute(name, buf) //nolint:errcheck // recorded too
	}
}

// MaxAttribute is the size of the longest sysfs attribute: a memory page
// (Linux, Documentation/filesystems/sysfs.rst).
const MaxAttribute = 4096

var errTooLong = errors.New("larger than a sysfs attribute can be")

// ReadAttribute reads a small file into buf and returns the part of buf that it filled. buf
// should hold [MaxAttribute] bytes and one more; a file that fills buf is an error. The file is
// read by one read(2), as sysfs expects. A symbolic link is an error: attributes are never
// links, and the root may be an archive from an untrusted source.
func (d *Dir) ReadAttribute(name string, buf []byte) ([]byte, error) {
	data, err := readAttribute(d.fd, name, buf)
	d.root.recordAttribute(d.name, name, data, err)
	return data, err
}

func (r Root) recordAttribute(dir, name string, data []byte, err error) {
	if r.rec != nil {
		r.recordFile(path.Join(dir, name), data, err)
	}
}

// ReadLong is ReadAttribute for a file of another file system, which may be longer than *buf but
// has at most most bytes. Where it is longer, *buf becomes large enough for any.
func (d *Dir) ReadLong(name string, buf *[]byte, most int) ([]byte, error) {
	data, err := readAttribute(d.fd, name, *buf)
	if errors.Is(err, errTooLong) && len(*buf) <= most {
		*buf = make([]byte, most+1)
		data, err = readAttribute(d.fd, name, *buf)
	}
	if errors.Is(err, errTooLong) {
		err = fmt.Errorf("larger than %d bytes", most)
	}
	d.root.recordAttribute(d.name, name, data, err)
	return data, err
}

// ReadReduced is ReadAttribute for a file whose whole content must not be recorded: it passes
// the output of reduce to the recorder.
func (d *Dir) ReadReduced(name string, buf []byte, reduce func([]byte) []byte) ([]byte, error) {
	data, err := readAttribute(d.fd, name, buf)
	if d.root.rec != nil {
		var kept []byte
		if err == nil {
			kept = reduce(data)
		}
		d.root.recordFile(path.Join(d.name, name), kept, err)
	}
	return data, err
}

func readAttribute(dir int, name string, buf []byte) ([]byte, error) {
	data, err := readHead(dir, name, buf)
	if err == nil && len(data) == len(buf) {
		return nil, errTooLong
	}
	return data, err
}

func readHead(dir int, name string, buf []byte) ([]byte, error) {
	fd, err := open(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // only read from
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		}
		return buf[:n], nil
	}
}

// ReadHead is ReadAttribute for the start of a file: as much as buf holds.
func (d *Dir) ReadHead(name string, buf []byte) ([]byte, error) {
	data, err := readHead(d.fd, name, buf)
	d.root.recordAttribute(d.name, name, data, err)
	return data, err
}

// Exists reports whether the directory has a file of this name, which may be one that cannot be
// read.
func (d *Dir) Exists(name string) (bool, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(d.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	d.root.recordAttribute(d.name, name, nil, err)
	return IfPresent(err == nil, err)
}

// Readlink returns the unresolved target of a symbolic link. The error is EINVAL if name is not
// a link.
func (d *Dir) Readlink(name string) (string, error) {
	target, err := readlink(d.fd, name)
	d.root.recordTarget(d.name, name, target, err)
	return target, err
}

func (r Root) recordTarget(dir, name, target string, err error) {
	if r.rec != nil && !errors.Is(err, unix.EINVAL) {
		r.recordLink(path.Join(dir, name), target, err)
	}
}

func readlink(dir int, name string) (string, error) {
	var short [256]byte // a path in sysfs is shorter, and clearing a larger buffer takes longer than the call
	n, err := unix.Readlinkat(dir, name, short[:])
	target := string(short[:max(n, 0)])
	if n == len(short) {
		var buf [unix.PathMax]byte
		n, err = unix.Readlinkat(dir, name, buf[:])
		target = string(buf[:max(n, 0)])
	}
	return target, err
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC

// open calls openat(2) and retries it when a signal interrupts it.
func open(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
