package boot

import (
	"path"

	"gpustack/host"
	"gpustack/host/edit"
)

// Kept are boot entries as they were before a program ran that may rewrite them.
type Kept []typeOne

func entriesDir(partition string) string { return path.Join(partition, "loader/entries") }

// KeepEntries reads the entries of all boot partitions.
func KeepEntries(root host.Root) (Kept, error) {
	var kept Kept
	for _, partition := range partitionsOf(root) {
		entries, err := readEntries(root, entriesDir(partition))
		if err != nil {
			return nil, err
		}
		kept = append(kept, entries...)
	}
	return kept, nil
}

// Restore plans to give every entry the arguments that it had. kernel-install, for example, writes
// the running kernel's arguments unless others are configured. An entry with the same kernel and
// initramfs as before gets its previous content.
func (k Kept) Restore(root host.Root) (edit.Changes, error) {
	var plan edit.Changes
	for _, was := range k {
		f, err := edit.Read(root, was.name)
		if err != nil {
			return nil, err
		}
		if f == nil {
			continue // removed with its kernel
		}
		is := parseEntry(was.name, f)
		text := string(was.file.Content)
		if is.get("linux") != was.get("linux") || is.all("initrd") != was.all("initrd") {
			text = is.edit(Change{Drop: is.options(), Add: was.options()})
		}
		c, err := is.plan(edit.Observe(root, is.name), text)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}
