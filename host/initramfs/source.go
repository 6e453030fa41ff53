package initramfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// source is a reader with a position. at counts consumed bytes, not bytes buffered by r.
type source struct {
	r  *bufio.Reader
	at int64
}

const sourceBuffer = 64 << 10

func newSource(r io.ReaderAt, at int64) *source {
	return &source{bufio.NewReaderSize(io.NewSectionReader(r, at, 1<<62), sourceBuffer), at}
}

func newSourceOf(r io.Reader) *source {
	return &source{r: bufio.NewReaderSize(r, sourceBuffer)}
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.at += int64(n)
	return n, err
}

// ReadByte implements io.ByteReader. Decompressors that use it do not read beyond their data.
func (s *source) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err == nil {
		s.at++
	}
	return b, err
}

// peek returns the next n bytes without consuming them, or fewer at the end of the data.
func (s *source) peek(n int) ([]byte, error) {
	b, err := s.r.Peek(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

// take reads n bytes. The end of the data is an error.
func (s *source) take(n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := io.ReadFull(s.r, b)
	s.at += int64(got)
	return b, s.ended(err)
}

// copy copies n bytes. The end of the data is an error.
func (s *source) copy(to io.Writer, n int64) error {
	got, err := io.CopyN(to, s.r, n)
	s.at += got
	return s.ended(err)
}

// skip skips n bytes. The end of the data is an error.
func (s *source) skip(n int64) error {
	return s.copy(io.Discard, n)
}

func (s *source) ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.malformed("unexpected end of data")
	}
	return err
}

func (s *source) malformed(format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", errMalformed, s.at, fmt.Sprintf(format, args...))
}
