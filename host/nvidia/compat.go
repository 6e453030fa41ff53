package nvidia

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"gpustack/host"
)

// Compat is what a libcuda of the packages cuda-compat-* says about itself: the branches of the
// driver that it works with, on the GPUs that support it (NVIDIA, "CUDA Compatibility", Forward
// Compatibility; nvidia-container-toolkit, cmd/nvidia-cdi-hook/cudacompat/cuda-elf-header.go).
type Compat struct {
	CUDA    Version // of the library: "12.4"
	Drivers []int   // branches; empty if the library names none
	Devices []int   // NVIDIA documents no meaning
}

// compatNote is the section with the note, and compatOwner the name in it.
const (
	compatNote  = ".note.cuda.fwd_compatibility"
	compatOwner = "NVIDIA Corporation"
	maxNote     = 64 << 10 // in bytes; real notes have a few hundred
)

// ErrCompat is the error of a library whose note cannot be read.
var ErrCompat = host.WithHint(errors.New("malformed note "+compatNote), "reinstall the package of cuda-compat in the image")

// ReadCompat reads the note .note.cuda.fwd_compatibility of a library. It returns nil for a library
// without one, such as the libcuda of every driver, and for a file that is not an ELF file.
func ReadCompat(r io.ReaderAt) (*Compat, error) {
	magic := make([]byte, len(elf.ELFMAG))
	if n, err := r.ReadAt(magic, 0); n < len(magic) {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, err
	}
	if string(magic) != elf.ELFMAG {
		return nil, nil
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("not a library: %w", err)
	}
	i := slices.IndexFunc(f.Sections, func(s *elf.Section) bool { return s.Type == elf.SHT_NOTE && s.Name == compatNote })
	if i < 0 {
		return nil, nil
	}
	s := f.Sections[i]
	if s.FileSize > maxNote || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, fmt.Errorf("%w: larger than %d bytes or compressed", ErrCompat, maxNote)
	}
	data := make([]byte, s.FileSize)
	if _, err := s.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %w", ErrCompat, err)
	}
	text, err := description(data, f.ByteOrder.Uint32, s.Addralign)
	if err != nil {
		return nil, err
	}
	var note struct {
		CUDA    *Version `json:"CUDA Version"`
		Drivers []int    `json:"Driver"`
		Devices []int    `json:"Device"`
	}
	if err := json.Unmarshal(text, &note); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCompat, err)
	}
	if note.CUDA == nil {
		return nil, fmt.Errorf("%w: no CUDA Version", ErrCompat)
	}
	if _, ok := ParseVersion(string(*note.CUDA)); !ok {
		return nil, fmt.Errorf("%w: CUDA Version: %q", ErrCompat, *note.CUDA)
	}
	return &Compat{CUDA: *note.CUDA, Drivers: note.Drivers, Devices: note.Devices}, nil
}

// description returns the description of a note: after three numbers, its lengths and type, comes
// the name and then the description (elf(5), Notes). Each is aligned like the section, but the
// padding after the last may be missing.
func description(note []byte, number func([]byte) uint32, align uint64) ([]byte, error) {
	const head = 12
	if len(note) < head {
		return nil, fmt.Errorf("%w: %d bytes", ErrCompat, len(note))
	}
	name, length := uint64(number(note)), uint64(number(note[4:]))
	if align != 8 { // a section without an alignment has that of notes
		align = 4
	}
	start := head + (name+align-1)/align*align
	if name > uint64(len(note)-head) || start > uint64(len(note)) || length > uint64(len(note))-start {
		return nil, fmt.Errorf("%w: it ends early", ErrCompat)
	}
	if owner := string(bytes.TrimRight(note[head:head+name], "\x00")); owner != compatOwner {
		return nil, fmt.Errorf("%w: its owner is %q", ErrCompat, owner)
	}
	return bytes.Trim(note[start:start+length], "\x00"), nil
}

// Accepts reports whether nvidia-container-toolkit uses a library of that version where this driver
// is loaded: when the library is newer, and the driver's branch is one that the library names, or,
// of a library that names none, the driver's own release of CUDA is earlier.
func (c Compat) Accepts(library, driver Version) bool {
	switch {
	case library.Compare(driver) <= 0:
		return false
	case len(c.Drivers) > 0:
		return slices.Contains(c.Drivers, driver.Branch())
	}
	return c.CUDA.Compare(CUDA(driver)) > 0
}
