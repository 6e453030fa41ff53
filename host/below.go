package host

import (
	"cmp"
	"errors"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadBelow returns the first len(buf) bytes of a file below the directory, or all of a shorter
// one, as a part of buf. The kernel resolves links as if the directory were the root (openat2(2)
// with RESOLVE_IN_ROOT, Linux 5.6), in one call where [Root.ReadHead] needs one for each element of
// the path. Without openat2 it is ReadHead.
func (d *Dir) ReadBelow(name string, buf []byte) ([]byte, error) {
	fd, err := d.openBelow(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if errors.Is(err, errNoOpenat2) {
		return d.root.ReadHead(path.Join(d.name, name), len(buf))
	}
	var data []byte
	if err == nil {
		defer unix.Close(fd) //nolint:errcheck // only read from
		data, err = readUpTo(fd, buf)
	}
	if err != nil {
		err = OfFile(path.Join(d.name, name), err)
	}
	d.root.recordFile(path.Join(d.name, name), data, err)
	return data, err
}

// ExistsBelow is [Root.Exists] for a file below the directory, resolved as by ReadBelow.
func (d *Dir) ExistsBelow(name string) (bool, error) {
	fd, err := d.openBelow(name, unix.O_PATH)
	switch {
	case errors.Is(err, errNoOpenat2):
		return d.root.Exists(path.Join(d.name, name))
	case IsAbsent(err):
		return false, nil
	case err != nil:
		return false, OfFile(path.Join(d.name, name), err)
	}
	d.root.recordFile(path.Join(d.name, name), nil, nil)
	return true, unix.Close(fd)
}

// errNoOpenat2 means that openat2(2) cannot be used: it is missing before Linux 5.6, filters of
// system calls that do not know it deny it, and it gives up when directories are renamed meanwhile.
var errNoOpenat2 = errors.New("openat2 is not available")

func (d *Dir) openBelow(name string, flags uint64) (int, error) {
	return openBelow(d.fd, name, flags)
}

func openBelow(dir int, name string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EAGAIN):
			return -1, errNoOpenat2
		}
		return fd, err
	}
}

// openBelow opens a file below the root, which takes a third of the time that [Root.Resolve] needs
// before a file can be opened. Its only error beside errNoOpenat2 is ENOENT: the reader that
// resolves the path itself has all others, in its words. Among them is EXDEV, which openat2 gives
// for links of /proc to what no path leads to.
func (r Root) openBelow(name string, flags uint64) (int, error) {
	if r.top == nil {
		return -1, errNoOpenat2
	}
	defer runtime.KeepAlive(r.top) // it is closed once nothing has the root
	fd, err := openBelow(int(r.top.Fd()), cmp.Or(name, "."), flags)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		err = errNoOpenat2
	}
	return fd, err
}

// placeBelow returns the path of what exists, as the kernel tells it.
func (r Root) placeBelow(name string) (string, error) {
	seen, err := r.openBelow(name, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(seen) //nolint:errcheck // only a path
	place, err := readlink(unix.AT_FDCWD, descriptors+strconv.Itoa(seen))
	// Callers expect the root's own name before it, which differs where links lead to the root. The
	// kernel marks the path of what has been deleted meanwhile.
	if within := r.dir == "/" || place == r.dir || strings.HasPrefix(place, r.dir+"/"); err != nil || !within || strings.HasSuffix(place, " (deleted)") {
		return "", errNoOpenat2
	}
	return place, nil
}

// descriptors is the folder with what this process has open (proc_pid_fd(5)).
const descriptors = "/proc/self/fd/"

// openFile opens a regular file. What is not one is not opened, for that may block or start a
// device: it is looked at first, by a descriptor that can do no more.
func (r Root) openFile(name string) (*os.File, error) {
	seen, err := r.openBelow(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer unix.Close(seen) //nolint:errcheck // only a path
	if mode, err := modeOf(seen); err != nil || mode != unix.S_IFREG {
		return nil, errNoOpenat2
	}
	fd, err := open(unix.AT_FDCWD, descriptors+strconv.Itoa(seen), unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, errNoOpenat2
	}
	return os.NewFile(uintptr(fd), r.Path(name)), nil
}

// listFolder returns the names in a folder, sorted.
func (r Root) listFolder(name string) ([]string, error) {
	fd, err := r.openBelow(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), r.Path(name))
	defer f.Close() //nolint:errcheck // only read from
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// isFolder reports whether what is there is a folder.
func (r Root) isFolder(name string) (bool, error) {
	seen, err := r.openBelow(name, unix.O_PATH)
	if err != nil {
		return false, err
	}
	defer unix.Close(seen) //nolint:errcheck // only a path
	mode, err := modeOf(seen)
	if err != nil {
		return false, errNoOpenat2
	}
	return mode == unix.S_IFDIR, nil
}

// modeOf returns the type of what is open, S_IFREG or another.
func modeOf(fd int) (uint32, error) {
	var stat unix.Stat_t
	err := unix.Fstat(fd, &stat)
	return stat.Mode & unix.S_IFMT, err
}

// readUpTo reads a regular file until buf is full or the file ends.
func readUpTo(fd int, buf []byte) ([]byte, error) {
	switch mode, err := modeOf(fd); {
	case err != nil:
		return nil, err
	case mode != unix.S_IFREG: // a pipe would seem to be empty
		return nil, errNotRegular
	}
	n := 0
	for n < len(buf) {
		got, err := unix.Read(fd, buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		case got == 0:
			return buf[:n], nil
		}
		n += got
	}
	return buf[:n], nil
}
