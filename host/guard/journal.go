package guard

import (
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"slices"

	"gpustack/host"
)

// journals has a folder for each journal that is in use: DISK-INODE for one inside of the file
// system on DISK, and the bare name of a disk that is the journal of another one (Linux,
// jbd2_journal_init_inode and jbd2_journal_init_dev in fs/jbd2/journal.c).
const journals = "/proc/fs/jbd2"

// journal returns why the journal of ext4 on a disk may be on another one, or "". Where the kernel
// does not list it as an internal one, the superblock decides on the machine. In a tree, any disk
// that is a journal may be that of this file system.
func (r *rootReader) journal(name string) (string, error) {
	inUse, err := r.list(journals)
	if err != nil {
		return "", err
	}
	internal := regexp.MustCompile("^" + regexp.QuoteMeta(name) + "-[0-9]+$")
	if slices.ContainsFunc(inUse, internal.MatchString) {
		return "", nil
	}
	if r.root.IsMachine() {
		return r.superblockOf(name), nil
	}
	names, err := r.list(blockDir)
	if err != nil {
		return "", err
	}
	for _, other := range names {
		record, err := r.udev(other)
		if err != nil {
			return "", err
		}
		if slices.Contains(inUse, other) || record.values["ID_FS_TYPE"] == "jbd" {
			return "its journal may be on " + node(other), nil
		}
	}
	return "", nil
}

// superblockOf returns what external says of the file system on a disk. A disk that cannot be read
// may have its journal elsewhere.
func (g *guard) superblockOf(name string) string {
	const at, size = 1024, 1024
	file, err := os.Open(g.root.Path(node(name)))
	if err != nil {
		return fmt.Sprintf("cannot determine where its journal is: %v", err)
	}
	defer file.Close() //nolint:errcheck // only read from
	superblock := make([]byte, size)
	if _, err := file.ReadAt(superblock, at); err != nil {
		return fmt.Sprintf("cannot determine where its journal is: %v", host.OfFile(node(name), err))
	}
	return external(superblock)
}

// external returns why the journal of a file system of type ext2, ext3 or ext4 is not inside of it,
// by its superblock, or "" (Linux, struct ext4_super_block in fs/ext4/ext4.h: s_magic,
// s_feature_compat, s_journal_inum, s_journal_dev; ext4_load_journal in fs/ext4/super.c: an inode
// and a device exclude each other).
func external(superblock []byte) string {
	const magic, hasJournal = 0xef53, 0x4
	number := func(at int) uint32 { return binary.LittleEndian.Uint32(superblock[at:]) }
	inode, device := number(0xe0), number(0xe4)
	switch {
	case binary.LittleEndian.Uint16(superblock[0x38:]) != magic:
		return "its disk has no superblock of ext4"
	case number(0x5c)&hasJournal == 0:
		return ""
	case inode == 0 || device != 0:
		return "its journal is on another disk"
	}
	return ""
}
