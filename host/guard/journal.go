package guard

import (
	"regexp"
	"slices"
)

// journals has a folder for each journal that is in use: DISK-INODE for one inside of the file
// system on DISK, and the bare name of a disk that is the journal of another one (Linux,
// jbd2_journal_init_inode and jbd2_journal_init_dev in fs/jbd2/journal.c).
const journals = "/proc/fs/jbd2"

// journal returns why the journal of ext4 on a disk may be on another one, or "": where the kernel
// does not list it as an internal one, any disk that is a journal may be that of this file system.
func (r *rootReader) journal(name string) (string, error) {
	inUse, err := r.list(journals)
	if err != nil {
		return "", err
	}
	internal := regexp.MustCompile("^" + regexp.QuoteMeta(name) + "-[0-9]+$")
	if slices.ContainsFunc(inUse, internal.MatchString) {
		return "", nil
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
