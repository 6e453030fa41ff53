package initramfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// source is what is read from, and knows where it is. It reads no byte before it is
// asked to, as far as anybody can tell from where it is.
type source struct {
	r  *bufio.Reader
	at int64
}

const sourceBuffer = 64 << 10

func newSource(r io.ReaderAt, at, length int64) *source {
	return &source{bufio.NewReaderSize(io.NewSectionReader(r, at, length), sourceBuffer), at}
}

func newSourceOf(r io.Reader) *source {
	return &source{r: bufio.NewReaderSize(r, sourceBuffer)}
}

// Read reads what there is.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.at += int64(n)
	return n, err
}

// ReadByte reads one byte: decompressors that are offered it read none too many.
func (s *source) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err == nil {
		s.at++
	}
	return b, err
}

// peek returns the next bytes, fewer where the data ends.
func (s *source) peek(n int) ([]byte, error) {
	b, err := s.r.Peek(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b, err
}

// take reads bytes that must be there.
func (s *source) take(n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := io.ReadFull(s.r, b)
	s.at += int64(got)
	return b, s.ended(err)
}

// copy copies bytes that must be there.
func (s *source) copy(to io.Writer, n int64) error {
	got, err := io.CopyN(to, s.r, n)
	s.at += got
	return s.ended(err)
}

// skip passes over bytes that must be there.
func (s *source) skip(n int64) error {
	return s.copy(io.Discard, n)
}

func (s *source) ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return s.malformed("the data ends too early")
	}
	return err
}

func (s *source) malformed(format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrMalformed, s.at, fmt.Sprintf(format, args...))
}
