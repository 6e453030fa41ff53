package check

import (
	"gpustack/host"
	"gpustack/host/checklist"
)

// files compares the files that host prepare has written with their recorded hashes.
func (v view) files() []host.Finding {
	switch v.phase {
	case unseen:
		return checklist.NA("what is recorded is unknown")
	case unprepared:
		return checklist.NA("nothing is recorded")
	}
	var files []checklist.File
	for i, f := range v.Contract.Value.Files {
		now := v.Files[i]
		files = append(files, checklist.File{Name: f.Name, Recorded: f.Hash, Now: now.Value, Seen: now.Seen(), Err: now.Err})
	}
	return checklist.Files(files, "host prepare", "kernels installed and initramfs regenerated from now on lack it")
}
