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

// maxWindow is the largest supported window of a decompressor in bytes: the kernel's own limit for
// zstd (Linux, lib/decompress_unzstd.c), and twice the maximum that tools for the others use.
const maxWindow = 128 << 20

// method is a compression method.
type method struct {
	name  string
	magic string // the first bytes
	// measure reads up to the end of the compressed data. It is nil for decompressors that do
	// not read beyond that end.
	measure func(*source) error
	open    func(*source) (io.ReadCloser, error) // nil: not supported
}

// methods are the compression methods of the kernel (Linux, lib/decompress.c; lib/Kconfig).
var methods = []method{
	{"gzip", "\x1f\x8b", nil, openGzip},
	{"zstd", "\x28\xb5\x2f\xfd", measureZstd, openZstd},
	{"xz", "\xfd7zXZ\x00", measureXZ, openXZ},
	{"lz4", "\x02\x21\x4c\x18", nil, openLZ4},
	{"lzma", "\x5d\x00", nil, openLZMA},
	{"bzip2", "BZh", measureBzip2, openBzip2},
	{"lzo", "\x89LZO\x00", nil, nil},
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

// measureZstd reads to the end of a frame, block by block (RFC 8878, section 3.1.1).
func measureZstd(s *source) error {
	begin, err := s.take(5)
	if err != nil {
		return err
	}
	flags := begin[4]
	single := flags >> 5 & 1
	rest := 1 - int64(single)                         // window size
	rest += []int64{0, 1, 2, 4}[flags&3]              // dictionary ID
	rest += []int64{int64(single), 2, 4, 8}[flags>>6] // content size
	sum := []int64{0, 4}[flags>>2&1]
	if err := s.skip(rest); err != nil {
		return err
	}
	for {
		b, err := s.take(3)
		if err != nil {
			return err
		}
		block := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		length := int64(block >> 3)
		switch block >> 1 & 3 {
		case 1: // one byte, repeated
			length = 1
		case 3:
			return s.malformed("unknown block type")
		}
		if err := s.skip(length); err != nil {
			return err
		}
		if block&1 != 0 {
			return s.skip(sum)
		}
	}
}

func openXZ(s *source) (io.ReadCloser, error) {
	r, err := xz.NewReader(s)
	return io.NopCloser(r), err
}

// measureXZ reads to the end of a stream: blocks, an index and a footer (The .xz File Format,
// version 1.1.0, section 2).
func measureXZ(s *source) error {
	begin, err := s.take(12)
	if err != nil {
		return err
	}
	check := []int64{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}[begin[7]&15]
	for {
		size, err := s.take(1)
		if err != nil {
			return err
		}
		if size[0] == 0 {
			break
		}
		if err := measureXZBlock(s, int(size[0])*4+4, check); err != nil {
			return err
		}
	}
	return measureXZIndex(s)
}

// measureXZBlock reads the header of a block after its first byte, and its chunks.
func measureXZBlock(s *source, head int, check int64) error {
	b, err := s.take(head - 1)
	if err != nil {
		return err
	}
	fields := bytes.NewReader(b[1:])
	const header = "malformed block header"
	skip := int(b[0]>>6&1) + int(b[0]>>7&1) // sizes
	for range skip {
		if _, err := binary.ReadUvarint(fields); err != nil {
			return s.malformed(header)
		}
	}
	// The last of several filters is LZMA2, which determines the format of the data.
	for range int(b[0]&3) + 1 {
		filter, err := binary.ReadUvarint(fields)
		if err != nil {
			return s.malformed(header)
		}
		length, err := binary.ReadUvarint(fields)
		if err != nil || length > uint64(fields.Len()) {
			return s.malformed(header)
		}
		properties := make([]byte, length)
		if _, err := io.ReadFull(fields, properties); err != nil {
			return s.malformed(header)
		}
		const lzma2 = 0x21
		if filter != lzma2 {
			return fmt.Errorf("%w: filter %#x", errCompression, filter)
		}
		if length != 1 || properties[0] > 40 {
			return s.malformed(header)
		}
		if bits := properties[0]; uint64(2|bits&1)<<(bits/2+11) > maxWindow {
			return fmt.Errorf("%w: window larger than %d bytes", errCompression, maxWindow)
		}
	}
	start := s.at
	if err := measureLZMA2(s); err != nil {
		return err
	}
	return s.skip(-(s.at-start)&3 + check)
}

// measureLZMA2 reads to the end of the chunks, whose format the first comment of Linux,
// lib/xz/xz_dec_lzma2.c, describes.
func measureLZMA2(s *source) error {
	for {
		control, err := s.ReadByte()
		if err != nil {
			return s.ended(err)
		}
		var length int64
		switch {
		case control == 0:
			return nil
		case control >= 0x80:
			b, err := s.take(4)
			if err != nil {
				return err
			}
			length = int64(binary.BigEndian.Uint16(b[2:])) + 1
			if control >= 0xc0 {
				length++ // properties
			}
		case control <= 2:
			b, err := s.take(2)
			if err != nil {
				return err
			}
			length = int64(binary.BigEndian.Uint16(b)) + 1
		default:
			return s.malformed("unknown chunk type")
		}
		if err := s.skip(length); err != nil {
			return err
		}
	}
}

// measureXZIndex reads the index after its first byte, and the footer of the stream.
func measureXZIndex(s *source) error {
	start := s.at - 1
	records, err := binary.ReadUvarint(s)
	if err != nil {
		return s.ended(err)
	}
	for range records {
		for range 2 {
			if _, err := binary.ReadUvarint(s); err != nil {
				return s.ended(err)
			}
		}
	}
	const sum, footer = 4, 12
	return s.skip(-(s.at-start)&3 + sum + footer)
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

// measureBzip2 reads to the end marker, 48 bits that need not be aligned to bytes, and the checksum
// after it (bzip2, decompress.c). The same bits are practically impossible in the data;
// bzip2recover relies on that too.
func measureBzip2(s *source) error {
	if err := s.skip(4); err != nil {
		return err
	}
	const mark, width = 0x177245385090, 48
	var seen uint64
	for {
		b, err := s.ReadByte()
		if err != nil {
			return s.ended(err)
		}
		for bit := 7; bit >= 0; bit-- {
			seen = seen<<1 | uint64(b>>bit&1)
			if seen&(1<<width-1) == mark {
				return s.skip(4) // the checksum and its padding
			}
		}
	}
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
