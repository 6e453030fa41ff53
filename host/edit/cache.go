package edit

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Cache is a folder with files that can be computed again at any time. Only the user who runs gpustack
// can write to it, and so make or replace a file in it.
type Cache struct {
	Root host.Root
	Dir  string // below the root, without links in its last element
}

// ErrUnsafe is the error of a cache that another user can have written.
var ErrUnsafe = host.WithHint(errors.New("belongs to another user, can be written by others, or is no plain folder"),
	"remove it: gpustack creates it again")

// Read returns a file of the cache.
//
// Errors: ErrUnsafe; fs.ErrNotExist if there is no such file or no cache.
func (c Cache) Read(base string) ([]byte, error) {
	dir, err := c.open()
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only read from
	return c.Root.ReadFile(path.Join(c.Dir, base))
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
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	if err == nil && (int(stat.Uid) != unix.Geteuid() || stat.Mode&0o022 != 0) {
		err = ErrUnsafe
	}
	if err != nil {
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

// cacheError returns an error with the folder that it is of. Opening a link fails with ENOTDIR
// (open(2), O_NOFOLLOW).
func cacheError(name string, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		err = ErrUnsafe
	}
	return host.OfFile(name, err)
}
