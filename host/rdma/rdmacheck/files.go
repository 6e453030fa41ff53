package rdmacheck

import (
	"gpustack/host"
	"gpustack/host/checklist"
)

// files compares the files that rdma prepare has written with their recorded hashes.
func (v view) files() []host.Finding {
	switch {
	case !v.Record.Seen():
		return checklist.Unread(v.Record.File, v.Record.Err)
	case v.Record.Value == nil:
		return checklist.NA("nothing is recorded")
	}
	var files []checklist.File
	for i, f := range v.Record.Value.Files {
		now := v.Files[i]
		files = append(files, checklist.File{Name: f.Name, Recorded: f.Hash, Now: now.Value, Seen: now.Seen(), Err: now.Err})
	}
	return checklist.Files(files, "rdma prepare", "the next boot does not prepare the adapters as recorded")
}
