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
	"syscall"

	securejoin "github.com/cyphar/filepath-securejoin"

	"gpustack/host"
)

// unpacker applies layers to a folder, in their order. Places are paths below it whose folders are
// no links.
type unpacker struct {
	root    *os.Root        // refuses what would leave the folder
	written map[string]bool // places of the current layer
	names   int             // bytes of names that were kept
	bytes   int64           // of the files that are read
}

// Bounds of what a hostile image makes: real ones keep some thousand names, and some MiB.
const (
	maxNames = 24 << 20 // in bytes, with perEntry for each
	perEntry = 64
	maxBytes = 512 << 20
	maxPath  = 4096 // PATH_MAX of Linux
)

// headerSize is how much is kept of libraries of which only the name and the architecture matter:
// the header of an ELF file.
const headerSize = 64

// named are files of which the name and the architecture matter, and whole are those whose content
// is read.
var (
	named = host.LazyRegexp(`^(lib(cuda|nvidia-ml|rdmacm)\.so(\.|$)|libcudart(-[0-9a-f]+)?\.so(\.|$)|lib[a-z0-9_]+-rdmav\d+\.so$|ld-(musl|linux)-|libc\.so\.6$|os-release$)`)
	whole = host.LazyRegexp(`^(etc/ld\.so\.conf(\.d/[^/]+)?|etc/libibverbs\.d/[^/]+|.*/libibverbs\.so\.[^/]+|.*/compat/libcuda\.so\.[^/]+|.*/nvidia_cuda_runtime[^/]*\.dist-info/METADATA)$`)
)

// ErrPath means that a layer has a path that leads out of the image, or in place of its root.
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
		if err := u.entry(h, archive); err != nil {
			return fmt.Errorf("%s: %w", shown(h.Name), host.Cause(err))
		}
	}
}

// shown quotes the name of an entry, which may be very long.
func shown(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// clean returns a name in an archive as a path below the root: "." for the root itself.
func clean(name string) (string, error) {
	name = path.Clean(strings.TrimLeft(name, "/"))
	switch {
	case name == "..", strings.HasPrefix(name, "../"):
		return "", ErrPath
	case len(name) > maxPath:
		return "", syscall.ENAMETOOLONG
	}
	return name, nil
}

// isWhole reports whether the content of a file is read, by its name or by its place.
func isWhole(name, place string) bool {
	return whole().MatchString(name) || whole().MatchString(place)
}

// entry applies one entry.
func (u *unpacker) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader { // of no file
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return ErrPath
		}
		return nil
	}
	place, err := u.resolve(name)
	if err != nil {
		return err
	}
	dir, base := path.Split(place)
	if hidden, ok := strings.CutPrefix(base, ".wh."); ok {
		return u.whiteout(path.Clean(dir), hidden)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.folder(place)
	case tar.TypeSymlink:
		if err := u.place(place); err != nil {
			return err
		}
		return u.root.Symlink(h.Linkname, place)
	case tar.TypeReg, tar.TypeLink, tar.TypeGNUSparse, tar.TypeCont:
		isWhole := isWhole(name, place)
		if isWhole || named().MatchString(base) {
			return u.file(place, h, content, isWhole)
		}
	}
	return u.root.RemoveAll(place) // of earlier layers; the file itself is not kept
}

// whiteout removes what earlier layers have at a name in a folder, or in all of the folder (OCI
// image-spec, layer.md, Whiteouts). What the current layer has there stays, wherever it stands in
// the archive.
func (u *unpacker) whiteout(dir, hidden string) error {
	switch {
	case hidden == "", hidden == ".", hidden == "..":
		return ErrPath
	case hidden == ".wh..opq":
		_, err := u.clear(dir)
		return err
	case strings.HasPrefix(hidden, ".wh."): // of aufs itself
		return nil
	}
	return u.remove(path.Join(dir, hidden))
}

// remove removes what earlier layers have at a place.
func (u *unpacker) remove(place string) error {
	empty, err := u.clear(place)
	if err != nil || !empty || u.written[place] {
		return err
	}
	return u.root.RemoveAll(place)
}

// clear removes what earlier layers have in a folder, and reports whether that is all. Of what is
// no folder it reports true.
func (u *unpacker) clear(dir string) (empty bool, err error) {
	info, err := u.root.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return true, nil
	}
	if err != nil || !info.IsDir() {
		return true, err
	}
	names, err := u.list(dir)
	if err != nil {
		return false, err
	}
	empty = true
	for _, name := range names {
		place := path.Join(dir, name)
		if err := u.remove(place); err != nil {
			return false, err
		}
		if _, err := u.root.Lstat(place); err == nil {
			empty = false
		}
	}
	return empty, nil
}

// list returns the names in a folder. Names need not be UTF-8, as fs.FS demands.
func (u *unpacker) list(dir string) ([]string, error) {
	f, err := u.root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	return f.Readdirnames(-1)
}

// resolve returns the place of a name, with links of its parents followed inside the image.
func (u *unpacker) resolve(name string) (string, error) {
	dir := u.root.Name()
	parent, err := securejoin.SecureJoin(dir, path.Dir(name))
	if err != nil {
		return "", err
	}
	parent, err = filepath.Rel(dir, parent)
	if err != nil {
		return "", err
	}
	return path.Join(filepath.ToSlash(parent), path.Base(name)), nil
}

// place makes room for an entry: the folders above it, and nothing in its place.
func (u *unpacker) place(place string) error {
	if u.names += len(place) + perEntry; u.names > maxNames {
		return fmt.Errorf("more than %d bytes of names that are kept", maxNames)
	}
	u.written[place] = true
	if err := u.root.MkdirAll(path.Dir(place), 0o700); err != nil {
		return err
	}
	return u.root.RemoveAll(place)
}

// folder makes a folder in the place of a file, of a link, or of none. The loader's folders count
// even if they are empty.
func (u *unpacker) folder(place string) error {
	info, err := u.root.Lstat(place)
	if err == nil && info.IsDir() {
		u.written[place] = true
		return nil
	}
	const deep = 3 // usr/lib/x86_64-linux-gnu
	if strings.Count(place, "/") >= deep {
		return u.root.RemoveAll(place)
	}
	if err := u.place(place); err != nil {
		return err
	}
	return u.root.Mkdir(place, 0o700)
}

// file writes a file: its content if that is read, else the header of a library.
func (u *unpacker) file(place string, h *tar.Header, content io.Reader, read bool) error {
	if err := u.place(place); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeLink {
		name, err := clean(h.Linkname)
		if err != nil {
			return err
		}
		target, err := u.resolve(name)
		if err != nil {
			return err
		}
		switch err := u.root.Link(target, place); {
		case read && (err != nil || !isWhole(name, target)):
			return fmt.Errorf("a hard link to %s, whose content was not read", shown(h.Linkname))
		case err == nil:
			return nil
		}
		content = strings.NewReader("") // of a file that is not kept by its own name
	}
	f, err := u.root.OpenFile(place, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	most := int64(headerSize)
	if read {
		most = maxBytes - u.bytes + 1
	}
	n, err := io.Copy(f, io.LimitReader(content, most))
	if u.bytes += n; u.bytes > maxBytes {
		err = fmt.Errorf("more than %d bytes in the files that are read", maxBytes)
	}
	return errors.Join(err, f.Close())
}
