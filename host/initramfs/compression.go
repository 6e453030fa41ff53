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

// maxWindow is how much a decompressor may look back: what the kernel's own for
// zstd takes (Linux, lib/decompress_unzstd.c), and twice what the others' tools use.
const maxWindow = 128 << 20

// method is a way to compress.
type method struct {
	name  string
	magic string
	// measure, where the decompressor may read beyond the end of its data, reads up
	// to that end.
	measure func(*source) error
	open    func(*source) (io.ReadCloser, error)
}

// methods are those that the kernel knows (Linux, lib/decompress.c; lib/Kconfig),
// with as much of each beginning as tells it from anything else.
var methods = []method{
	{"gzip", "\x1f\x8b", nil, openGzip},
	{"zstd", "\x28\xb5\x2f\xfd", measureZstd, openZstd},
	{"xz", "\xfd7zXZ\x00", measureXZ, openXZ},
	{"lz4", "\x02\x21\x4c\x18", nil, openLZ4},
	{"lzma", "\x5d\x00", nil, openLZMA},
	{"bzip2", "BZh", measureBzip2, openBzip2},
	{"lzo", "\x89LZO\x00", nil, nil},
}

// methodOf tells how data is compressed by its beginning.
func methodOf(begin []byte, at int64) (method, error) {
	for _, m := range methods {
		if !bytes.HasPrefix(begin, []byte(m.magic)) {
			continue
		}
		if m.open == nil {
			return m, fmt.Errorf("byte %d: %s: %w", at, m.name, ErrCompression)
		}
		return m, nil
	}
	return method{}, fmt.Errorf("%w: byte %d: %q, which begins neither an entry nor compressed data", ErrMalformed, at, begin)
}

// openGzip reads RFC 1952. It is exact, since what it reads from offers single
// bytes (compress/flate).
func openGzip(s *source) (io.ReadCloser, error) {
	r, err := gzip.NewReader(s)
	if err != nil {
		return nil, err
	}
	r.Multistream(false)
	return r, nil
}

func openZstd(s *source) (io.ReadCloser, error) {
	r, err := zstd.NewReader(s, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return r.IOReadCloser(), nil
}

// measureZstd reads a frame, block by block (RFC 8878, section 3.1.1).
func measureZstd(s *source) error {
	begin, err := s.take(5)
	if err != nil {
		return err
	}
	flags := begin[4]
	single := flags >> 5 & 1
	rest := 1 - int64(single)                         // the window's size
	rest += []int64{0, 1, 2, 4}[flags&3]              // the dictionary's number
	rest += []int64{int64(single), 2, 4, 8}[flags>>6] // the content's size
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
		case 1: // one byte, again and again
			length = 1
		case 3:
			return s.malformed("a block of an unknown kind")
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

// measureXZ reads a stream: blocks, an index and an end (The .xz File Format,
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

// measureXZBlock reads a block's head, of which the first byte is read already, and
// its chunks.
func measureXZBlock(s *source, head int, check int64) error {
	b, err := s.take(head - 1)
	if err != nil {
		return err
	}
	fields := bytes.NewReader(b[1:])
	skip := int(b[0]>>6&1) + int(b[0]>>7&1) // sizes
	for range skip {
		if _, err := binary.ReadUvarint(fields); err != nil {
			return s.malformed("the head of a block")
		}
	}
	// Of several filters the last is LZMA2, in whose form the data is.
	for range int(b[0]&3) + 1 {
		filter, err := binary.ReadUvarint(fields)
		if err != nil {
			return s.malformed("the head of a block")
		}
		length, err := binary.ReadUvarint(fields)
		if err != nil || length > uint64(fields.Len()) {
			return s.malformed("the head of a block")
		}
		properties := make([]byte, length)
		if _, err := io.ReadFull(fields, properties); err != nil {
			return s.malformed("the head of a block")
		}
		const lzma2 = 0x21
		if filter != lzma2 {
			return fmt.Errorf("%w: a filter of number %#x", ErrCompression, filter)
		}
		if length != 1 || properties[0] > 40 {
			return s.malformed("the head of a block")
		}
		if bits := properties[0]; uint64(2|bits&1)<<(bits/2+11) > maxWindow {
			return fmt.Errorf("%w: it looks back more than %d bytes", ErrCompression, maxWindow)
		}
	}
	start := s.at
	if err := measureLZMA2(s); err != nil {
		return err
	}
	return s.skip(-(s.at-start)&3 + check)
}

// measureLZMA2 reads chunks (the comment at the head of Linux,
// lib/xz/xz_dec_lzma2.c, tells their form).
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
			return s.malformed("a chunk of an unknown kind")
		}
		if err := s.skip(length); err != nil {
			return err
		}
	}
}

// measureXZIndex reads the index, of which the first byte is read already, and the
// stream's end.
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
	const sum, end = 4, 12
	return s.skip(-(s.at-start)&3 + sum + end)
}

// openLZMA reads what the tool lzma writes: thirteen bytes of properties, and data
// with a mark at its end. It is exact, since what it reads from offers single bytes.
func openLZMA(s *source) (io.ReadCloser, error) {
	begin, err := s.peek(13)
	if err != nil {
		return nil, err
	}
	if len(begin) == 13 && binary.LittleEndian.Uint32(begin[1:]) > maxWindow {
		return nil, fmt.Errorf("%w: it looks back more than %d bytes", ErrCompression, maxWindow)
	}
	r, err := lzma.NewReader(s)
	return io.NopCloser(r), err
}

func openBzip2(s *source) (io.ReadCloser, error) {
	return io.NopCloser(bzip2.NewReader(s)), nil
}

// measureBzip2 reads up to the mark at the end of the data, 48 bits that begin
// anywhere in a byte, and the sum behind it (bzip2, decompress.c). That such bits
// stand in the data before is as good as impossible; bzip2recover relies on it too.
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
				return s.skip(4) // the sum, and what is left of its last byte
			}
		}
	}
}

// lz4Reader reads the form of lz4 that the kernel does: blocks, each with its
// length before it, until the data ends (lz4_Frame_format.md, "Legacy frame"). Where
// zeros follow, they are the end too (Linux, lib/decompress_unlz4.c).
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
	case size == lz4Magic: // another such run
		return nil
	case int64(size) > int64(lz4.CompressBlockBound(lz4Block)):
		return r.from.malformed("a block of %d bytes", size)
	}
	if r.packed, err = r.from.take(int(size)); err != nil {
		return err
	}
	n, err := lz4.UncompressBlock(r.packed, r.unpacked)
	if err != nil {
		return errors.Join(ErrMalformed, err)
	}
	r.rest = r.unpacked[:n]
	return nil
}
