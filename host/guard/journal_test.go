package guard

import (
	"encoding/binary"
	"os"
	"testing"

	"gpustack/host"
)

// TestExternalJournal: the superblock of ext4 shows where its journal is.
func TestExternalJournal(t *testing.T) {
	const other, none = "its journal is on another disk", ""
	for _, test := range []struct {
		name                   string
		compat, inode, device_ uint32
		magic                  uint16
		want                   string
	}{
		{"an inode", 0x3c, 8, 0, 0xef53, none},
		{"a device", 0x3c, 0, 0x10301, 0xef53, other},
		{"a device whose number has changed", 0x3c, 0, 0, 0xef53, other},
		{"both", 0x3c, 8, 0x10301, 0xef53, other},
		{"no journal", 0x38, 0, 0, 0xef53, none},
		{"no file system", 0x3c, 8, 0, 0, "its disk has no superblock of ext4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			disk := make([]byte, 2048)
			superblock := disk[1024:]
			binary.LittleEndian.PutUint16(superblock[0x38:], test.magic)
			binary.LittleEndian.PutUint32(superblock[0x5c:], test.compat)
			binary.LittleEndian.PutUint32(superblock[0xe0:], test.inode)
			binary.LittleEndian.PutUint32(superblock[0xe4:], test.device_)
			dir := t.TempDir()
			if err := os.Mkdir(dir+"/dev", 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+"/dev/sda1", disk, 0o600); err != nil {
				t.Fatal(err)
			}
			root, err := host.NewRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			g := guard{root: root}
			if got := g.superblockOf("sda1"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := g.superblockOf("sda2"); got == "" {
				t.Error("a disk that cannot be read has its journal")
			}
		})
	}
}
