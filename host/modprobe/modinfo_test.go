package modprobe_test

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"gpustack/host"
	"gpustack/host/modprobe"
	"gpustack/host/snapshot"
)

// module returns an object file whose section .modinfo has this text.
func module(t *testing.T, modinfo string) []byte {
	t.Helper()
	names := "\x00.modinfo\x00.shstrtab\x00"
	const head, section = 64, 64
	var b bytes.Buffer
	ident := [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	for _, part := range []any{
		elf.Header64{Ident: ident, Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1,
			Shoff: uint64(head + len(modinfo) + len(names)), Ehsize: head, Shentsize: section, Shnum: 3, Shstrndx: 2},
		[]byte(modinfo), []byte(names),
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: head, Size: uint64(len(modinfo))},
		elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: uint64(head + len(modinfo)), Size: uint64(len(names))},
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// lay makes the modules directory of kernel 6.1.
func lay(t *testing.T, files map[string]string) host.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, host.ModulesDir, "6.1", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := host.NewRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestReadInfoForms: a module's file may be compressed, and a file may be none.
func TestReadInfoForms(t *testing.T) {
	const text = "license=Dual BSD/GPL\x00parm=num_vfs:enable functions\x00version=4.0-0\x00"
	compress := map[string]func(b *bytes.Buffer, text []byte) error{
		"": func(b *bytes.Buffer, text []byte) error { _, err := b.Write(text); return err },
		".gz": func(b *bytes.Buffer, text []byte) error {
			w := gzip.NewWriter(b)
			_, err := w.Write(text)
			return errors.Join(err, w.Close())
		},
		".xz": func(b *bytes.Buffer, text []byte) error {
			w, err := xz.NewWriter(b)
			if err != nil {
				return err
			}
			_, err = w.Write(text)
			return errors.Join(err, w.Close())
		},
		".zst": func(b *bytes.Buffer, text []byte) error {
			w, err := zstd.NewWriter(b)
			if err != nil {
				return err
			}
			_, err = w.Write(text)
			return errors.Join(err, w.Close())
		},
	}
	for suffix, write := range compress {
		t.Run("a module"+suffix, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(&b, module(t, text)); err != nil {
				t.Fatal(err)
			}
			root := lay(t, map[string]string{"a/mlx4_core.ko" + suffix: b.String()})
			if got, err := modprobe.ReadInfo(root, "/lib/modules/6.1/a/mlx4_core.ko"+suffix); err != nil || got.Value("version") != "4.0-0" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for name, text := range map[string]string{"empty": "", "cut off": string(module(t, text)[:100]), "not an object file": "mlx4_core"} {
		t.Run(name, func(t *testing.T) {
			root := lay(t, map[string]string{"mlx4_core.ko": text})
			if _, err := modprobe.ReadInfo(root, "/lib/modules/6.1/mlx4_core.ko"); !errors.Is(err, modprobe.ErrModule) {
				t.Errorf("%v, want %v", err, modprobe.ErrModule)
			}
		})
	}
	t.Run("a missing file", func(t *testing.T) {
		if _, err := modprobe.ReadInfo(lay(t, map[string]string{"modules.dep": ""}), "/lib/modules/6.1/mlx4_core.ko"); !host.IsAbsent(err) {
			t.Error(err)
		}
	})
}

func TestReadInfo(t *testing.T) {
	wanted := func(name string) bool { return name == "nvidia" || name == "nvidia_current" }
	text := module(t, "license=NVIDIA\x00parm=a:two\nlines\x00version=550.163.01\x00\x00")
	root := lay(t, map[string]string{
		"modules.dep":               "updates/nvidia-current.ko:\nextra/nvidia.ko.gz:\nextra/nvidia-uvm.ko:\n",
		"updates/nvidia-current.ko": string(text), "extra/nvidia.ko.gz": "no module",
	})
	var tree snapshot.Tree
	check := func(root host.Root) {
		t.Helper()
		dir := "/lib/modules/6.1/"
		want := []string{dir + "updates/nvidia-current.ko", dir + "extra/nvidia.ko.gz"}
		files, err := modprobe.Files(root, "6.1", wanted)
		if diff := cmp.Diff(want, files); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
		i, err := modprobe.ReadInfo(root, files[0])
		if err != nil || i.Value("version") != "550.163.01" || i.Value("license") != "NVIDIA" || i.Value("srcversion") != "" {
			t.Errorf("%q, %v", i, err)
		}
		if i, err := modprobe.ReadInfo(root, files[1]); i != nil || !errors.Is(err, modprobe.ErrModule) {
			t.Errorf("%q, %v", i, err)
		}
	}
	check(root)
	check(root.Recorded(&tree))
	dir := t.TempDir()
	if err := tree.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	root, err := host.NewRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	check(root) // a snapshot
}
