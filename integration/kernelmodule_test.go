package integration

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// kernelModule makes a kernel module with no code, for programs that look at what
// one says of itself: an ELF file (System V ABI, chapter 4) whose section .modinfo
// holds words (Linux, scripts/mod/modpost.c).
func kernelModule(name string, info ...string) []byte {
	modinfo := strings.Join(append(info, "license=GPL", "name="+name), "\x00") + "\x00"
	const names = "\x00.modinfo\x00.symtab\x00.strtab\x00.shstrtab\x00"
	type section struct {
		Name, Type                 uint32
		Flags, Addr, Offset, Size  uint64
		Link, Info                 uint32
		Alignment, SizeOfEachEntry uint64
	}
	const header, symbol = 64, 24
	at := uint64(header)
	place := func(name string, kind uint32, size int) section {
		s := section{Name: uint32(strings.Index(names, name+"\x00")), Type: kind, Offset: at, Size: uint64(size), Alignment: 1}
		at += s.Size
		return s
	}
	sections := []section{
		{},
		place(".modinfo", 1, len(modinfo)),
		place(".symtab", 2, symbol),
		place(".strtab", 3, 1),
		place(".shstrtab", 3, len(names)),
	}
	sections[2].Link, sections[2].Info, sections[2].SizeOfEachEntry = 3, 1, symbol

	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9)) // 64 bits, little-endian
	for _, field := range []any{
		uint16(1), uint16(62), uint32(1), // to be linked, for x86-64
		uint64(0), uint64(0), at, uint32(0),
		uint16(header), uint16(0), uint16(0), uint16(64), uint16(len(sections)), uint16(len(sections) - 1),
	} {
		binary.Write(&b, binary.LittleEndian, field)
	}
	b.WriteString(modinfo + strings.Repeat("\x00", symbol) + "\x00" + names)
	binary.Write(&b, binary.LittleEndian, sections)
	return b.Bytes()
}
