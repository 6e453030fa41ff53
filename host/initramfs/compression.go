package initramfs

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// maxWindow is the largest supported window of zstd and lzma in bytes: the kernel's own limit for
// zstd (Linux, lib/decompress_unzstd.c), and twice the maximum that tools for lzma use.
const maxWindow = 128 << 20

// method is a compression method.
type method struct {
	name  string
	magic string                               // the first bytes
	last  bool                                 // the decompressor reads up to the end of the image, frames in a row like one
	end   string                               // the last bytes, where the decompressor does not miss them
	open  func(*source) (io.ReadCloser, error) // nil: not supported
}

// methods are the compression methods of the kernel (Linux, lib/decompress.c; lib/Kconfig).
var methods = []method{
	{"gzip", "\x1f\x8b", false, "", openGzip},
	{"zstd", "\x28\xb5\x2f\xfd", true, "", openZstd},
	{"xz", "\xfd7zXZ\x00", true, "YZ", openXZ},
	{"lz4", "\x02\x21\x4c\x18", false, "", openLZ4},
	{"lzma", "\x5d\x00", false, "", openLZMA},
	{"bzip2", "BZh", true, "", openBzip2},
	{"lzo", "\x89LZO\x00", false, "", nil},
}

// methodOf returns the compression method of data that starts with begin.
func methodOf(begin []byte, at int64) (method, error) {
	for _, m := range methods {
		if !bytes.HasPrefix(begin, []byte(m.magic)) {
			continue
		}
		if m.open == nil {
			return m, fmt.Errorf("byte %d: %s: %w", at, m.name, errCompression)
		}
		return m, nil
	}
	return method{}, fmt.Errorf("%w: byte %d: neither an entry nor compressed data: %q", errMalformed, at, begin)
}

// openGzip decompresses RFC 1952. It does not read beyond the data, because source is an
// io.ByteReader (compress/flate).
func openGzip(s *source) (io.ReadCloser, error) {
	r, err := gzip.NewReader(s)
	if err != nil {
		return nil, err
	}
	r.Multistream(false)
	return r, nil
}

func openZstd(s *source) (io.ReadCloser, error) {
	r, err := zstd.NewReader(s, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return r.IOReadCloser(), nil
}

func openXZ(s *source) (io.ReadCloser, error) {
	r, err := xz.NewReader(s)
	return io.NopCloser(r), err
}

// openLZMA decompresses the format of the tool lzma: thirteen bytes of properties, and data with an
// end marker. It does not read beyond the data, because source is an io.ByteReader.
func openLZMA(s *source) (io.ReadCloser, error) {
	begin, err := s.peek(13)
	if err != nil {
		return nil, err
	}
	if len(begin) == 13 && binary.LittleEndian.Uint32(begin[1:]) > maxWindow {
		return nil, fmt.Errorf("%w: window larger than %d bytes", errCompression, maxWindow)
	}
	r, err := lzma.NewReader(s)
	return io.NopCloser(r), err
}

func openBzip2(s *source) (io.ReadCloser, error) {
	return io.NopCloser(bzip2.NewReader(s)), nil
}

// lz4Reader decompresses the kernel's format of lz4: blocks, each after its length, up to the end
// of the data or to zeros (lz4_Frame_format.md, "Legacy frame"; Linux, lib/decompress_unlz4.c).
type lz4Reader struct {
	from     *source
	packed   []byte
	unpacked []byte
	rest     []byte
}

const (
	lz4Magic = 0x184c2102
	lz4Block = 8 << 20
)

func openLZ4(s *source) (io.ReadCloser, error) {
	if err := s.skip(4); err != nil {
		return nil, err
	}
	return io.NopCloser(&lz4Reader{from: s, unpacked: make([]byte, lz4Block)}), nil
}

func (r *lz4Reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *lz4Reader) next() error {
	begin, err := r.from.peek(4)
	if err != nil {
		return err
	}
	if len(bytes.Trim(begin, "\x00")) == 0 {
		return io.EOF
	}
	length, err := r.from.take(4)
	if err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(length)
	switch {
	case size == lz4Magic: // another frame
		return nil
	case int64(size) > int64(lz4.CompressBlockBound(lz4Block)):
		return r.from.malformed("a block of %d bytes", size)
	}
	if r.packed, err = r.from.take(int(size)); err != nil {
		return err
	}
	n, err := lz4.UncompressBlock(r.packed, r.unpacked)
	if err != nil {
		return errors.Join(errMalformed, err)
	}
	r.rest = r.unpacked[:n]
	return nil
}
