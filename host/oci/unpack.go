package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"

	"gpustack/host"
)

// unpacker applies layers to a folder, in their order.
type unpacker struct {
	dir     string
	written map[string]bool // names of the current layer
	links   int
	bytes   int64
}

const (
	// maxLinks and maxBytes bound what a hostile image makes: real ones have some thousand links,
	// and some MiB of the files that are kept.
	maxLinks = 200_000
	maxBytes = 512 << 20
)

// named are files of which only the name matters, and whole are those whose content is read.
var (
	named = host.LazyRegexp(`^(lib(cuda|nvidia-ml|cudart|rdmacm)\.so(\.|$)|lib[a-z0-9_]+-rdmav\d+\.so$|ld-musl-|os-release$)`)
	whole = host.LazyRegexp(`^(etc/ld\.so\.conf(\.d/[^/]+)?|etc/libibverbs\.d/[^/]+|.*/libibverbs\.so\.[^/]+|.*/compat/libcuda\.so\.[^/]+)$`)
)

// ErrPath means that a layer has a path that leads out of the image.
var ErrPath = host.WithHint(errors.New("path leads out of the image"), "do not use the image: no program that builds images makes such a path")

// apply applies the tar archive of a layer (OCI image-spec, layer.md).
func (u *unpacker) apply(r io.Reader) error {
	u.written = map[string]bool{}
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("malformed tar archive: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if escapes(h.Name) || h.Typeflag == tar.TypeLink && escapes(h.Linkname) {
			return fmt.Errorf("%q: %w", h.Name, ErrPath)
		}
		if err := u.entry(name, h, archive); err != nil {
			return fmt.Errorf("%q: %w", h.Name, host.Cause(err))
		}
	}
}

// escapes reports whether a name in an archive leads out of it.
func escapes(name string) bool {
	clean := path.Clean(strings.TrimLeft(name, "/"))
	return clean == ".." || strings.HasPrefix(clean, "../")
}

// entry applies one entry.
func (u *unpacker) entry(name string, h *tar.Header, content io.Reader) error {
	dir, base := path.Split(name)
	switch {
	case base == ".wh..wh..opq":
		return u.empty(strings.TrimSuffix(dir, "/"))
	case strings.HasPrefix(base, ".wh."):
		return u.remove(path.Join(dir, strings.TrimPrefix(base, ".wh.")))
	}
	keep := named().MatchString(base) || whole().MatchString(name)
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(name)
	case tar.TypeSymlink:
		if u.links++; u.links > maxLinks {
			return fmt.Errorf("more than %d links", maxLinks)
		}
		place, err := u.place(name)
		if err == nil {
			err = os.Symlink(h.Linkname, place)
		}
		return err
	case tar.TypeReg, tar.TypeLink:
		if !keep {
			return u.cover(name)
		}
		return u.file(name, h, content)
	}
	return u.cover(name)
}

// resolve returns the path of a name in the folder, with links of its parents followed inside it.
func (u *unpacker) resolve(name string) (string, error) {
	parent, err := securejoin.SecureJoin(u.dir, path.Dir(name))
	return filepath.Join(parent, path.Base(name)), err
}

// place makes room for an entry: the folders above it, and nothing in its place.
func (u *unpacker) place(name string) (string, error) {
	place, err := u.resolve(name)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(place), 0o700)
	}
	if err == nil {
		err = os.RemoveAll(place)
	}
	u.written[name] = true
	return place, err
}

// cover removes what earlier layers have at the path of a file that is not kept.
func (u *unpacker) cover(name string) error {
	place, err := u.resolve(name)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(place); err != nil {
		return nil //nolint:nilerr // nothing is there
	}
	return os.RemoveAll(place)
}

// folder makes a folder in the place of a file, or of none. The loader's folders count even if they
// are empty; a link to a folder stays one, as runtimes have it.
func (u *unpacker) folder(name string) error {
	place, err := u.resolve(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(place)
	if err == nil && info.IsDir() {
		u.written[name] = true
		return nil
	}
	const deep = 3 // usr/lib/x86_64-linux-gnu
	if strings.Count(name, "/") >= deep && !errors.Is(err, fs.ErrNotExist) {
		return u.cover(name)
	}
	if strings.Count(name, "/") >= deep {
		return nil
	}
	place, err = u.place(name)
	if err == nil {
		err = os.MkdirAll(place, 0o700)
	}
	return err
}

// file writes a file: its content if that is read, else an empty one.
func (u *unpacker) file(name string, h *tar.Header, content io.Reader) error {
	place, err := u.place(name)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeLink {
		target, err := u.resolve(strings.TrimPrefix(path.Clean("/"+h.Linkname), "/"))
		if err != nil {
			return err
		}
		if err := os.Link(target, place); err == nil {
			return nil
		}
		content = strings.NewReader("") // of a file that is not kept by its own name
	}
	f, err := os.OpenFile(place, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if whole().MatchString(name) {
		n, copyErr := io.Copy(f, io.LimitReader(content, maxBytes-u.bytes+1))
		u.bytes += n
		err = copyErr
		if u.bytes > maxBytes {
			err = fmt.Errorf("more than %d bytes in the files that are read", maxBytes)
		}
	}
	return errors.Join(err, f.Close())
}

// remove removes what a whiteout names, unless it is of the same layer.
func (u *unpacker) remove(name string) error {
	place, err := u.resolve(name)
	if err != nil || u.written[name] {
		return err
	}
	return os.RemoveAll(place)
}

// empty removes what earlier layers have in a folder.
func (u *unpacker) empty(dir string) error {
	place, err := u.resolve(dir)
	if err != nil {
		return err
	}
	return filepath.WalkDir(place, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == place {
			return nil //nolint:nilerr // there is nothing to remove
		}
		name := path.Join(dir, filepath.ToSlash(strings.TrimPrefix(file, place)))
		if entry.IsDir() || u.written[name] {
			return nil
		}
		return os.Remove(file) //nolint:gosec // no other program writes to the temporary folder
	})
}
