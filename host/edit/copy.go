package edit

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Copy makes the file at to hold what the one at from holds, with its owner, mode and
// attributes, in place of what was there. The folder must be there. Files may be large:
// where the file system can, they share their blocks.
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
		return ErrNotRegular
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

// MakeDir makes a folder of our own for one who runs this alone, and those it lies in.
// It is no error if they are there.
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
			return fmt.Errorf("%s: %w", d, host.Cause(err))
		}
	}
	return nil
}

// RemoveFile removes a file of our own. It is no error if there is none.
func RemoveFile(root host.Root, name string) error {
	place, err := root.Resolve(name)
	if err == nil {
		err = os.Remove(place)
	}
	if err != nil && !host.IsAbsent(err) {
		return fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	return nil
}
