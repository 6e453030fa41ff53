package host

import (
	"errors"
	"path"

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
	for {
		fd, err := unix.Openat2(d.fd, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EAGAIN):
			return -1, errNoOpenat2
		}
		return fd, err
	}
}

// readUpTo reads a regular file until buf is full or the file ends.
func readUpTo(fd int, buf []byte) ([]byte, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG { // a pipe would seem to be empty
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
