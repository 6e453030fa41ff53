package container

import (
	"debug/elf"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"

	"gpustack/host"
)

// loaders are the dynamic loaders of glibc and of musl, whose ELF header shows what a root is built
// for (the psABI of each architecture).
var loaders = []string{
	"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
}

// Architecture returns the architecture of the node below a root, as Go names it: that of its
// loader, or of this program if that is one of several, or if the root has none.
func Architecture(root host.Root) string {
	found := architectures(root)
	if len(found) > 0 && !slices.Contains(found, runtime.GOARCH) {
		return found[0]
	}
	return runtime.GOARCH
}

// architectures returns those of the loaders in a root.
func architectures(root host.Root) (found []string) {
	for _, name := range loaders {
		if a := architectureOf(root, name); a != "" && !slices.Contains(found, a) {
			found = append(found, a)
		}
	}
	return found
}

// architectureOf returns the architecture of an ELF file by its header, "" of another file and of
// one that cannot be read.
func architectureOf(root host.Root, name string) string {
	const size, class, machine = 20, elf.EI_CLASS, 18 // elf(5), ElfN_Ehdr
	head, err := root.ReadHead(name, size)
	if err != nil || len(head) < size || string(head[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return ""
	}
	switch m, is64 := elf.Machine(binary.LittleEndian.Uint16(head[machine:])), head[class] == byte(elf.ELFCLASS64); {
	case m == elf.EM_X86_64 && is64:
		return "amd64"
	case m == elf.EM_AARCH64 && is64:
		return "arm64"
	default:
		return strings.ToLower(strings.TrimPrefix(m.String(), "EM_"))
	}
}
