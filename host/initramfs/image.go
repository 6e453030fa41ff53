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

// Content is the content of an initramfs as the kernel would unpack it: the last of several entries
// with the same name counts.
type Content struct {
	Image string            // path on the machine
	Names []string          // of files, directories, links and devices: "etc/modprobe.d", sorted
	Files map[string][]byte // content of the wanted files
}

// Errors of images that cannot be read.
var (
	// errMalformed is the error of an image that the kernel could not unpack.
	errMalformed = host.WithHint(errors.New("malformed initramfs"),
		"regenerate the initramfs (update-initramfs -u -k all, or dracut --force --regenerate-all), then run gpustack again")
	// errCompression is the error of an image whose compression is not supported.
	errCompression = host.WithHint(errors.New("compression not supported"),
		"configure the initramfs generator to use gzip, zstd, xz, lz4, lzma or bzip2")
)

// Read reads an initramfs: all names, and the content of the files for which wanted returns true.
// An image is a sequence of cpio archives, each plain or compressed, with zeros between them
// (Linux, Documentation/driver-api/early-userspace/buffer-format.rst, init/initramfs.c). The first
// ones are often plain and contain CPU microcode. Generators write one compressed archive at most,
// as the last one: after zstd, xz and bzip2 anything else is an error. The use of memory is bounded
// for any image.
func Read(root host.Root, name string, wanted func(file string) bool) (Content, error) {
	f, err := root.Open(name)
	if err != nil {
		return Content{}, err
	}
	defer f.Close() //nolint:errcheck // only read from
	a := newArchive(wanted)
	if err := readImage(f, a); err != nil {
		return Content{}, host.OfFile(name, err)
	}
	return Content{Image: name, Names: slices.Sorted(maps.Keys(a.names)), Files: a.files}, nil
}

// readImage reads all archives of an image.
func readImage(image io.ReaderAt, a *archive) error {
	for at := int64(0); ; {
		s := newSource(image, at)
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
			extent := "on"
			if method.last {
				extent = "to the end of the image"
			}
			return fmt.Errorf("%s data from byte %d %s: %w", method.name, at, extent, asMalformed(err))
		}
		at += length
	}
}

// readCompressed reads one archive of compressed data and returns its compressed length.
func (a *archive) readCompressed(image io.ReaderAt, at int64, m method) (int64, error) {
	s := newSource(image, at)
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
		return 0, in.malformed("unexpected %q instead of an entry", rest)
	}
	end := make([]byte, len(m.end))
	if _, err := image.ReadAt(end, s.at-int64(len(end))); err != nil || string(end) != m.end {
		return 0, errors.Join(err, s.malformed("the end of %s data is missing", m.name))
	}
	return s.at - at, nil
}

// asMalformed marks an error of a decompressor as errMalformed, but not an error of reading the
// file.
func asMalformed(err error) error {
	var system *fs.PathError
	if errors.Is(err, errMalformed) || errors.Is(err, errCompression) || errors.As(err, &system) {
		return err
	}
	return fmt.Errorf("%w: %w", errMalformed, err)
}
