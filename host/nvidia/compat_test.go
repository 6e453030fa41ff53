package nvidia_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/nvidia"
)

// compatText is the description in the note of cuda-compat-13-1's libcuda.so.590.44.01, as
// published.
const compatText = `{"Format": 1, "CUDA Version": "13.1", "Driver": [535, 550, 570, 575, 580, 590], "Device": [1, 2, 7]}`

// note returns a note with its name and description aligned to that many bytes.
func note(owner, description string, align int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(owner)+1))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(description)+1))
	b = binary.LittleEndian.AppendUint32(b, 1)
	name := append([]byte(owner), 0)
	for len(name)%align != 0 {
		name = append(name, 0)
	}
	return append(append(append(b, name...), description...), 0)
}

// library returns an ELF file with a section.
func library(section string, content []byte, align uint64) []byte {
	names := "\x00" + section + "\x00.shstrtab\x00"
	const head, entry = 64, 64
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1,
			Shoff: uint64(head + len(content) + len(names)), Ehsize: head, Shentsize: entry, Shnum: 3, Shstrndx: 2},
		content, []byte(names),
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_NOTE), Off: head, Size: uint64(len(content)), Addralign: align},
		elf.Section64{Name: uint32(len(section) + 2), Type: uint32(elf.SHT_STRTAB), Off: uint64(head + len(content)), Size: uint64(len(names))},
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			return nil // a buffer accepts everything
		}
	}
	return b.Bytes()
}

const compatSection = ".note.cuda.fwd_compatibility"

func TestReadCompat(t *testing.T) {
	t.Parallel()
	want := &nvidia.Compat{CUDA: "13.1", Drivers: []int{535, 550, 570, 575, 580, 590}, Devices: []int{1, 2, 7}}
	for name, file := range map[string][]byte{
		"aligned to 4": library(compatSection, note("NVIDIA Corporation", compatText, 4), 4),
		"aligned to 8": library(compatSection, note("NVIDIA Corporation", compatText, 8), 8),
		"not aligned":  library(compatSection, note("NVIDIA Corporation", compatText, 4), 1),
	} {
		if got, err := nvidia.ReadCompat(bytes.NewReader(file)); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, file := range map[string][]byte{
		"no note": library(".note.gnu.build-id", note("GNU", "id", 4), 4),
		"text":    []byte("no library"),
		"empty":   nil,
	} {
		if got, err := nvidia.ReadCompat(bytes.NewReader(file)); got != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	whole := note("NVIDIA Corporation", compatText, 4)
	huge := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(huge[4:], 0xffffffff)
	name := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(name, 0xffffffff)
	for problem, content := range map[string][]byte{
		"cut off":                  whole[:40],
		"no numbers":               whole[:8],
		"a description too long":   huge,
		"a name too long":          name,
		"another owner":            note("GNU", compatText, 4),
		"no JSON":                  note("NVIDIA Corporation", "{", 4),
		"no CUDA version":          note("NVIDIA Corporation", "{}", 4),
		"a malformed CUDA version": note("NVIDIA Corporation", `{"CUDA Version": "13"}`, 4),
		"larger than a note":       make([]byte, 100<<10),
	} {
		if got, err := nvidia.ReadCompat(bytes.NewReader(library(compatSection, content, 4))); got != nil || !errors.Is(err, nvidia.ErrCompat) {
			t.Errorf("%s: %+v, %v, want %v", problem, got, err, nvidia.ErrCompat)
		}
	}
	if got, err := nvidia.ReadCompat(bytes.NewReader(library(compatSection, whole, 4)[:100])); got != nil || err == nil {
		t.Errorf("a library that is cut off: %+v, %v", got, err)
	}
}

func TestCompatAccepts(t *testing.T) {
	t.Parallel()
	named := nvidia.Compat{CUDA: "13.1", Drivers: []int{535, 550}}
	older := nvidia.Compat{CUDA: "12.4"} // names no branches
	for _, c := range []struct {
		compat          nvidia.Compat
		library, driver nvidia.Version
		want            bool
	}{
		{named, "590.44.01", "535.261.03", true},
		{named, "590.44.01", "560.28.03", false},  // not a branch that it names
		{named, "550.54.14", "550.163.01", false}, // older than the driver
		{older, "550.54.14", "535.261.03", true},
		{older, "550.90.07", "550.54.14", false}, // the same CUDA
	} {
		if got := c.compat.Accepts(c.library, c.driver); got != c.want {
			t.Errorf("%+v: %s with %s: %v", c.compat, c.library, c.driver, got)
		}
	}
}

func FuzzReadCompat(f *testing.F) {
	f.Add(library(compatSection, note("NVIDIA Corporation", compatText, 4), 4))
	f.Add(library(compatSection, note("NVIDIA Corporation", compatText, 8)[:60], 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := nvidia.ReadCompat(bytes.NewReader(data))
		if c != nil && (err != nil || c.CUDA.Branch() == 0 && c.CUDA.Compare("0.0") == 0 && c.CUDA == "") {
			t.Errorf("%+v, %v", c, err)
		}
	})
}
