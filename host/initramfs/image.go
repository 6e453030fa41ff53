package initramfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"gpustack/host"
)

// Content is what an initramfs holds, as the kernel would unpack it: of several
// entries of one name the last counts.
type Content struct {
	Image string            // where it lies on the machine
	Names []string          // of files, folders, links and devices: "etc/modprobe.d", sorted
	Files map[string][]byte // what the wanted files hold
}

// Errors of images that cannot be read.
var (
	// ErrMalformed says that an image is not what the kernel could unpack.
	ErrMalformed = errors.New("malformed initramfs")
	// ErrCompression says that an image is compressed in a way that gpustack cannot
	// undo.
	ErrCompression = errors.New("compression not supported")
)

// Read reads an initramfs: all names, and what the files hold whose names are
// wanted. Its form is that of the kernel (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst, init/initramfs.c):
// archives of cpio in a row, each plain or compressed, with zeros anywhere between.
// The first are often plain, with microcode for the processor. Memory is bounded,
// whatever the image.
func Read(root host.Root, name string, wanted func(file string) bool) (Content, error) {
	f, err := root.Open(name)
	if err != nil {
		return Content{}, fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	defer f.Close() //nolint:errcheck // only read from
	a := newArchive(wanted)
	if err := readImage(f, a); err != nil {
		return Content{}, fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	return Content{Image: name, Names: slices.Sorted(maps.Keys(a.names)), Files: a.files}, nil
}

// readImage reads one archive after the other.
func readImage(image io.ReaderAt, a *archive) error {
	for at := int64(0); ; {
		s := newSource(image, at, 1<<62)
		if err := a.read(s); err != nil {
			return err
		}
		head, err := s.peek(6)
		if err != nil || len(head) == 0 {
			return err
		}
		at = s.at
		method, err := methodOf(head, at)
		if err != nil {
			return err
		}
		length, err := a.readCompressed(image, at, method)
		if err != nil {
			return fmt.Errorf("%s data from byte %d on: %w", method.name, at, faultOf(err))
		}
		at += length
	}
}

// readCompressed reads what one run of compressed data holds, and returns how long
// the run is.
func (a *archive) readCompressed(image io.ReaderAt, at int64, m method) (int64, error) {
	s := newSource(image, at, 1<<62)
	if m.measure != nil {
		if err := m.measure(s); err != nil {
			return 0, err
		}
		s = newSource(image, at, s.at-at)
	}
	data, err := m.open(s)
	if err != nil {
		return 0, err
	}
	defer data.Close() //nolint:errcheck // only read from
	in := newSourceOf(data)
	if err := a.read(in); err != nil {
		return 0, err
	}
	if rest, err := in.peek(1); err != nil {
		return 0, err
	} else if len(rest) > 0 {
		return 0, in.malformed("%q, which begins no entry", rest)
	}
	return s.at - at, nil
}

// faultOf tells apart what the libraries say of data from what the system says of
// the file.
func faultOf(err error) error {
	var system *fs.PathError
	if errors.Is(err, ErrMalformed) || errors.Is(err, ErrCompression) || errors.As(err, &system) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}
