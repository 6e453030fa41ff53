package integration

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/host/modprobe"
)

// TestModprobe: on a prepared node, kmod's own modprobe loads vfio-pci with the ids before
// any driver of the host, and systemd loads at boot the modules that are to be loaded.
func TestModprobe(t *testing.T) {
	root := layDebian(t, map[string]string{"etc/modprobe.d/vfio.conf": "options vfio-pci ids=8086:1533 disable_vga=1\n"})
	mustInDebian(t, root, gpustack, "host", "prepare", "--root", root, "--yes")
	loads := func(words ...string) []string {
		var lines []string
		out := mustInDebian(t, root, append([]string{"chroot", root, "modprobe", "--set-version", nodeKernel, "--show-depends"}, words...)...)
		for line := range strings.Lines(out) {
			line = strings.TrimSpace(strings.Replace(line, "/lib/modules/"+nodeKernel+"/kernel/", "", 1))
			if !strings.HasSuffix(line, "/vfio.ko") { // which is left out where this machine's kernel has it
				lines = append(lines, line)
			}
		}
		return lines
	}
	// Both ids= are passed; the kernel keeps the last.
	const vfio = "insmod drivers/vfio/pci/vfio-pci.ko ids=8086:1533 disable_vga=1 ids=8086:1533,10de:11b4,10de:0e0a"
	for module, file := range map[string]string{"nouveau": "drivers/gpu/drm/nouveau/nouveau.ko", "snd_hda_intel": "sound/pci/hda/snd-hda-intel.ko"} {
		want := []string{vfio, "insmod " + file}
		hosttest.EqualIn(t, module, want, loads(module))
	}
	if out := mustInDebian(t, root, "chroot", root, "systemd-analyze", "cat-config", "modules-load.d"); !strings.HasSuffix(out, "\nvfio\nvfio_iommu_type1\nvfio_pci\nkvm\nkvm_intel\n") {
		t.Errorf("loaded at boot:\n%s", out)
	}
}

// TestModprobeConf: modprobe reads the same options in the same order, whatever folder
// their files are in and whichever of them hides another.
func TestModprobeConf(t *testing.T) {
	root := layDebian(t, map[string]string{
		"etc/modprobe.d/b.conf":             "# options vfio-pci ids=0000:0000\noptions vfio-pci ids=1111:1111 disable_vga=1\noptions vfio_pci \\\n  ids=2222:2222\n",
		"etc/modprobe.d/hidden.conf":        "",
		"etc/modprobe.d/.gpustack-zz.conf~": "options vfio-pci ids=3333:3333\n",
		"etc/modprobe.d/notes.txt":          "options vfio-pci ids=4444:4444\n",
		"usr/lib/modprobe.d/a.conf":         "options vfio-pci ids=5555:5555\n",
		"usr/lib/modprobe.d/hidden.conf":    "options vfio-pci ids=6666:6666\n",
		"run/modprobe.d/c.conf":             "options vfio-pci ids=7777:7777\n",
		"usr/local/lib/modprobe.d/zz.conf":  "options vfio-pci ids=8888:8888\n",
		"etc/modprobe.d/dos.conf":           "blacklist my_dos\r\noptions vfio-pci ids=9999:9999\r\noptions vfio-pci\\\r\n ids=9999:0000\n",
		"etc/modprobe.d/spaces.conf":        "blacklist my_a\u00a0\nblacklist my_b\vc\n \tblacklist\tmy_d\nblacklist\u00a0my_e\n",
		"etc/modprobe.d/slashes.conf":       "# old \\\nblacklist my_old\nblacklist my_nou\\veau\nblacklist my_f\\\\g\nblacklist my_nou\\\nvidia\nblacklist my_last\\",
	})
	r := hosttest.Root(t, root)
	conf, err := modprobe.ReadConf(r)
	hosttest.NoError(t, err)
	var ours, theirs []string
	for _, command := range []string{"blacklist", "options"} { // modprobe prints them in this order
		for _, o := range conf {
			if o.Command == command && (command == "blacklist" || o.Module == "vfio_pci") {
				ours = append(ours, strings.Join(append([]string{o.Command, o.Module}, o.Rest...), " "))
			}
		}
	}
	for line := range strings.Lines(mustInDebian(t, root, "chroot", root, "modprobe", "--showconfig")) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "options vfio_pci "):
			theirs = append(theirs, strings.Join(strings.Fields(line), " ")) // the kernel splits them
		case strings.HasPrefix(line, "blacklist my_"): // others are Debian's
			theirs = append(theirs, line)
		}
	}
	if diff := cmp.Diff(theirs, ours); diff != "" || len(theirs) == 0 {
		t.Errorf("(-modprobe +gpustack):\n%s", diff)
	}
}

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
