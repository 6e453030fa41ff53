package edit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Copy copies the file at path from to path to, with its owner, mode and attributes, replacing the
// file there. The folder must exist. Files may be large: if the file system supports it, both
// share their blocks.
func Copy(root host.Root, from, to string) error {
	source, err := root.Resolve(from)
	if err == nil {
		var target string
		if target, err = root.Resolve(to); err == nil {
			err = copyFile(source, target)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: copy to %s: %w", from, to, host.Cause(err))
	}
	return nil
}

func copyFile(source, target string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(source, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return errNotRegular
	}
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read from
	xattrs, err := readXattrs(int(in.Fd()))
	if err != nil {
		return err
	}
	meta := Meta{stat.Mode &^ unix.S_IFMT, int(stat.Uid), int(stat.Gid), xattrs}
	err = makeBeside(target, meta, func(out *os.File) error {
		_, err := io.Copy(out, in)
		return err
	})
	if err != nil {
		return err
	}
	return takePlace(target)
}

// PutBack restores the file at path to from its copy at path from. Copy needs room for both files.
// If the file system has too little, as on a small boot partition, PutBack removes the file first,
// provided that the copy then fits.
func PutBack(root host.Root, from, to string) error {
	err := Copy(root, from, to)
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	fits, fitsErr := fitsInPlace(root, from, to)
	if fitsErr != nil || !fits {
		return errors.Join(err, fitsErr)
	}
	return errors.Join(RemoveFile(root, to), Copy(root, from, to))
}

// fitsInPlace reports whether the file system of to has room for from once to is removed.
func fitsInPlace(root host.Root, from, to string) (bool, error) {
	source, err := root.Resolve(from)
	if err != nil {
		return false, err
	}
	target, err := root.Resolve(to)
	if err != nil {
		return false, err
	}
	var needed, present unix.Stat_t
	var space unix.Statfs_t
	if err := errors.Join(unix.Stat(source, &needed), unix.Lstat(target, &present), unix.Statfs(filepath.Dir(target), &space)); err != nil {
		return false, fmt.Errorf("%s: %w", to, err)
	}
	const blockSize = 512 // unit of st_blocks (stat(2))
	return int64(space.Bavail)*space.Bsize+present.Blocks*blockSize > needed.Size+space.Bsize, nil
}

// Stamp returns a string that identifies the content, permissions and owner of a regular file,
// which may be large. It returns "" if there is no file.
func Stamp(root host.Root, name string) (string, error) {
	stamp, err := host.IfPresent(func() (string, error) {
		place, err := root.Resolve(name)
		if err != nil {
			return "", err
		}
		var stat unix.Stat_t
		switch err := unix.Lstat(place, &stat); {
		case err != nil:
			return "", err
		case stat.Mode&unix.S_IFMT != unix.S_IFREG:
			return "", errNotRegular
		}
		in, err := os.Open(place)
		if err != nil {
			return "", err
		}
		defer in.Close() //nolint:errcheck // only read from
		hash, err := HashOf(in)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s %o %d:%d", hash, stat.Mode&^unix.S_IFMT, stat.Uid, stat.Gid), nil
	}())
	return stamp, host.OfFile(name, err)
}

// MakeDir creates a folder that only its owner can read, and its missing parents. It is no error
// if they exist.
func MakeDir(root host.Root, dir string) error {
	missing, err := missing(root, dir)
	if err != nil {
		return err
	}
	for _, d := range missing {
		place, err := root.Resolve(d)
		if err == nil {
			err = os.Mkdir(place, 0o700)
		}
		if err != nil {
			return host.OfFile(d, err)
		}
	}
	return nil
}

// scratchDir is below what holds containers, too: where programs may be run, unlike /run and /tmp
// of many machines.
const scratchDir = "/var/lib"

// Scratch writes a program of ours into a folder of its own in which every user can run it, for the
// time of a test, and returns its path and what removes both.
func Scratch(root host.Root, name string, content []byte) (file string, remove func() error, err error) {
	place, err := root.Resolve(scratchDir)
	if err != nil {
		return "", nil, host.OfFile(scratchDir, err)
	}
	dir, err := os.MkdirTemp(place, "gpustack-test-")
	if err != nil {
		return "", nil, host.OfFile(scratchDir, err)
	}
	below := path.Join(scratchDir, filepath.Base(dir))
	remove = func() error { return host.OfFile(below, os.RemoveAll(dir)) }
	if err = os.Chmod(dir, 0o755); err == nil {
		err = put(filepath.Join(dir, name), content, 0o755)
	}
	if err != nil {
		return "", nil, errors.Join(host.OfFile(below, err), remove())
	}
	return path.Join(below, name), remove, nil
}

// RemoveFile removes a file. It is no error if the file does not exist.
func RemoveFile(root host.Root, name string) error {
	place, err := root.Resolve(name)
	if err == nil {
		err = os.Remove(place)
	}
	if err != nil && !host.IsAbsent(err) {
		return host.OfFile(name, err)
	}
	return nil
}
