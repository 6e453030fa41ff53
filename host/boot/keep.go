package boot

import (
	"path"

	"gpustack/host"
	"gpustack/host/edit"
)

// Kept are entries as they stood before a program ran that may make them anew.
type Kept []typeOne

// KeepEntries reads all entries, of whichever boot loader.
func KeepEntries(root host.Root) (Kept, error) {
	var kept Kept
	for _, partition := range partitionsOf(root) {
		entries, err := readEntries(root, path.Join(partition, "loader/entries"))
		if err != nil {
			return nil, err
		}
		kept = append(kept, entries...)
	}
	return kept, nil
}

// Restore plans that every entry starts its kernel with the arguments that it had,
// whatever the program took for them: kernel-install takes those of the running kernel
// where nobody told it others. An entry that says the same gets its bytes back.
func (k Kept) Restore(root host.Root) (edit.Plan, error) {
	var plan edit.Plan
	for _, was := range k {
		f, err := edit.Read(root, was.name)
		if err != nil {
			return nil, err
		}
		if f == nil {
			continue // its kernel is gone
		}
		is := parseEntry(was.name, f)
		text := string(was.file.Content)
		if is.get("linux") != was.get("linux") || is.all("initrd") != was.all("initrd") {
			text = is.edit(Change{Drop: ParseArgs(is.all("options")), Add: ParseArgs(was.all("options"))})
		}
		c, err := is.plan(root, text)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}
