package host

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// kernelSees opens what a name leads to, as a path only (O_PATH of open(2)): that can be looked at
// and opened again, but is not opened itself, which may block or start a device. The kernel
// resolves links as if the root were its own (openat2(2) with RESOLVE_IN_ROOT, Linux 5.6), in one
// call where see needs one for each element of the path. It is an error where openat2 is missing,
// where a filter of system calls denies it, while folders are renamed, and for links of /proc to
// what no path leads to.
func (r Root) kernelSees(name string) (int, error) {
	if r.top == nil {
		return -1, unix.ENOSYS
	}
	defer runtime.KeepAlive(r.top) // it is closed once nothing has the root
	for {
		fd, err := unix.Openat2(int(r.top.Fd()), cmp.Or(name, "."), &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// see is kernelSees where that is possible, and resolves the path itself where it is not. It also
// returns the type of the file: S_IFREG or another (inode(7)).
func (r Root) see(name string) (fd int, kind uint32, err error) {
	fd, err = r.kernelSees(name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		var place string
		if place, err = securejoin.SecureJoin(r.dir, filepath.FromSlash(name)); err == nil {
			fd, err = open(unix.AT_FDCWD, place, unix.O_PATH|unix.O_CLOEXEC)
		}
	}
	if err != nil {
		return -1, 0, OfFile(name, err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		unix.Close(fd) //nolint:errcheck // only a path
		return -1, 0, OfFile(name, err)
	}
	return fd, stat.Mode & unix.S_IFMT, nil
}

// descriptors is the folder with what this process has open (proc_pid_fd(5)).
const descriptors = "/proc/self/fd/"

// Resolve returns the path of name on the machine that the program runs on, with every link
// resolved below the root, for callers that open the file themselves, such as writers.
func (r Root) Resolve(name string) (string, error) {
	if seen, err := r.kernelSees(name); err == nil {
		defer unix.Close(seen) //nolint:errcheck // only a path
		place, err := readlink(unix.AT_FDCWD, descriptors+strconv.Itoa(seen))
		// Callers expect the root's own name before it, which differs where links lead to the root.
		// The kernel marks the path of what has been deleted meanwhile.
		within := r.dir == "/" || place == r.dir || strings.HasPrefix(place, r.dir+"/")
		if err == nil && within && !strings.HasSuffix(place, " (deleted)") {
			return place, nil
		}
	}
	place, err := securejoin.SecureJoin(r.dir, filepath.FromSlash(name))
	return place, OfFile(name, err)
}

// reopen opens what see has found.
func (r Root) reopen(seen int, name string, flags int) (*os.File, error) {
	fd, err := open(unix.AT_FDCWD, descriptors+strconv.Itoa(seen), flags|unix.O_CLOEXEC)
	if errors.Is(err, unix.ENOENT) { // no /proc, as in a chroot
		place, placeErr := r.Resolve(name)
		if placeErr != nil {
			return nil, placeErr
		}
		fd, err = open(unix.AT_FDCWD, place, flags|unix.O_CLOEXEC)
	}
	if err != nil {
		return nil, OfFile(name, err)
	}
	return os.NewFile(uintptr(fd), r.Path(name)), nil
}

// ErrNotRegular means that a file to read is a folder, a device or another special file.
var ErrNotRegular = errors.New("not a regular file")

// Open opens a regular file for reading. It is not recorded.
func (r Root) Open(name string) (*os.File, error) {
	seen, kind, err := r.see(name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(seen)    //nolint:errcheck // only a path
	if kind != unix.S_IFREG { // opening a pipe would block
		return nil, OfFile(name, ErrNotRegular)
	}
	return r.reopen(seen, name, unix.O_RDONLY)
}

// ReadDir returns the names in a directory, sorted.
func (r Root) ReadDir(name string) ([]string, error) {
	read := func() ([]string, error) {
		names, err := r.readDir(name)
		r.recordDir(name, names, err)
		return names, err
	}
	if r.memory != nil {
		return r.memory.dir(name, read)
	}
	return read()
}

func (r Root) readDir(name string) ([]string, error) {
	seen, _, err := r.see(name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(seen) //nolint:errcheck // only a path
	f, err := r.reopen(seen, name, dirFlags)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, OfFile(name, err)
	}
	slices.Sort(names)
	return names, nil
}

// Exists reports whether name is a file, a directory, or a link to one. It returns an error if
// that cannot be determined.
func (r Root) Exists(name string) (bool, error) {
	seen, kind, err := r.see(name)
	switch {
	case IsAbsent(err):
		return false, nil
	case err != nil:
		return false, err
	case kind == unix.S_IFDIR:
		r.recordDir(name, nil, nil)
	default:
		r.recordFile(name, nil, nil)
	}
	return true, unix.Close(seen)
}
