package host

import (
	"errors"
	"io/fs"
	"path"
	"strings"

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
		return nil, &fs.PathError{Op: "open", Path: r.Path(name), Err: err}
	}
	return &Dir{root: r, name: below(strings.TrimPrefix(place, r.dir)), fd: fd}, nil
}

// Close closes the directory.
func (d *Dir) Close() error {
	return unix.Close(d.fd)
}

// Enter opens the subdirectory name. If name is a symbolic link to a directory, Enter also
// returns the unresolved link target; for a directory, target is "".
func (d *Dir) Enter(name string) (sub *Dir, target string, err error) {
	target, err = d.Readlink(name)
	if errors.Is(err, unix.EINVAL) { // not a link
		target, err = "", nil
	}
	if err != nil {
		return nil, "", err
	}
	place := path.Join(d.name, name)
	if target != "" {
		place = path.Join(d.name, target)
		if path.IsAbs(target) || place == ".." || strings.HasPrefix(place, "../") {
			// Opened relative to d, this link could leave the root.
			sub, err = d.root.OpenDir(path.Join(d.name, name))
			return sub, target, err
		}
	}
	fd, err := open(d.fd, name, dirFlags)
	if err != nil {
		return nil, target, err
	}
	return &Dir{root: d.root, name: place, fd: fd}, target, nil
}

// Exists reports whether the directory has an entry. It is not recorded.
func (d *Dir) Exists(name string) (bool, error) {
	err := unix.Faccessat(d.fd, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// Record reads attributes for the recorder, if the root has one. Callers that need only one of
// several files with the same content call it for the others, which other programs read and
// earlier versions that replay a snapshot.
func (d *Dir) Record(buf []byte, names ...string) {
	if d.root.rec == nil {
		return
	}
	for _, name := range names {
		d.ReadAttribute(name, buf) //nolint:errcheck // recorded too
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
	data, err := d.readAttribute(name, buf)
	if d.root.rec != nil {
		d.root.recordFile(path.Join(d.name, name), data, err)
	}
	return data, err
}

// ReadReduced is ReadAttribute for a file whose whole content must not be recorded: it passes
// the output of reduce to the recorder.
func (d *Dir) ReadReduced(name string, buf []byte, reduce func([]byte) []byte) ([]byte, error) {
	data, err := d.readAttribute(name, buf)
	if d.root.rec != nil {
		var kept []byte
		if err == nil {
			kept = reduce(data)
		}
		d.root.recordFile(path.Join(d.name, name), kept, err)
	}
	return data, err
}

func (d *Dir) readAttribute(name string, buf []byte) ([]byte, error) {
	fd, err := open(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
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
		case n == len(buf):
			return nil, errTooLong
		}
		return buf[:n], nil
	}
}

// Readlink returns the unresolved target of a symbolic link. The error is EINVAL if name is not
// a link.
func (d *Dir) Readlink(name string) (string, error) {
	var short [256]byte // a path in sysfs is shorter, and clearing a larger buffer takes longer than the call
	n, err := unix.Readlinkat(d.fd, name, short[:])
	target := string(short[:max(n, 0)])
	if n == len(short) {
		var buf [unix.PathMax]byte
		n, err = unix.Readlinkat(d.fd, name, buf[:])
		target = string(buf[:max(n, 0)])
	}
	if d.root.rec != nil && !errors.Is(err, unix.EINVAL) {
		d.root.recordLink(path.Join(d.name, name), target, err)
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
