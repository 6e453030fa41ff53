package edit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Cache is a folder with files that can be computed again at any time, and that only the user who
// runs gpustack can write to.
type Cache struct {
	Root host.Root
	Dir  string // below the root, without links in its last element
}

// ErrUnsafe is the error of a cache that another user can have written.
var ErrUnsafe = host.WithHint(errors.New("belongs to another user, can be written by others, or is no plain file or folder"),
	"remove it: gpustack creates it again")

// maxCache is the size limit of a file of a cache in bytes.
const maxCache = 16 << 20

// Read returns a file of the cache. Links are not followed.
//
// Errors: ErrUnsafe; fs.ErrNotExist if there is no such file or no cache.
func (c Cache) Read(base string) ([]byte, error) {
	dir, err := c.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only read from
	name := path.Join(c.Dir, base)
	fd, err := unix.Openat(int(dir.Fd()), base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, cacheError(name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() //nolint:errcheck // only read from
	if err := private(f, unix.S_IFREG); err != nil {
		return nil, cacheError(name, err)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxCache+1))
	if err == nil && len(content) > maxCache {
		err = fmt.Errorf("larger than %d bytes", maxCache)
	}
	if err != nil {
		return nil, cacheError(name, err)
	}
	return content, nil
}

// Write replaces a file of the cache, and creates the cache if necessary. While another process
// writes to the cache, it does nothing: what both would write can be computed again.
//
// Errors: ErrUnsafe.
func (c Cache) Write(base string, content []byte) error {
	if err := c.make(); err != nil {
		return err
	}
	dir, err := c.open()
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // releases the lock; nothing was written to the folder itself
	// The temporary file of Write always has the same name.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		return cacheError(c.Dir, err)
	}
	// Write follows links below the root, and a link is replaced here.
	var stat unix.Stat_t
	err = unix.Fstatat(int(dir.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = unix.Unlinkat(int(dir.Fd()), base, 0)
	}
	if err != nil && !host.IsAbsent(err) {
		return cacheError(path.Join(c.Dir, base), err)
	}
	return Write(c.Root, path.Join(c.Dir, base), content, 0o600)
}

// make creates the folder and its missing parents.
func (c Cache) make() error {
	place, err := c.place()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return cacheError(c.Dir, err)
	}
	if err := os.Mkdir(place, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return cacheError(c.Dir, err)
	}
	return nil
}

// open opens the folder, and verifies that only the user can write to it.
func (c Cache) open() (*os.File, error) {
	place, err := c.place()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(place, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, cacheError(c.Dir, err)
	}
	dir := os.NewFile(uintptr(fd), place)
	if err := private(dir, unix.S_IFDIR); err != nil {
		dir.Close() //nolint:errcheck // only read from
		return nil, cacheError(c.Dir, err)
	}
	return dir, nil
}

// place returns the path of the folder with all links resolved except its last element.
func (c Cache) place() (string, error) {
	parent, err := c.Root.Resolve(path.Dir(c.Dir))
	if err != nil {
		return "", cacheError(c.Dir, err)
	}
	return filepath.Join(parent, path.Base(c.Dir)), nil
}

// private returns an error unless an open file is of that type, belongs to the user who runs
// gpustack, and only that user can write to it.
func private(f *os.File, kind uint32) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return err
	}
	hardLinked := kind == unix.S_IFREG && stat.Nlink > 1 // 0: Write has replaced the file since it was opened
	if stat.Mode&unix.S_IFMT != kind || int(stat.Uid) != unix.Geteuid() || stat.Mode&0o022 != 0 || hardLinked {
		return ErrUnsafe
	}
	return nil
}

// cacheError returns an error with the file or folder that it is of. Opening a link fails with
// ELOOP, or ENOTDIR for a folder (open(2), O_NOFOLLOW).
func cacheError(name string, err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		err = ErrUnsafe
	}
	return host.OfFile(name, err)
}
