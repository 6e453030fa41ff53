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
	var findings []host.Finding
	for i, f := range v.Record.Value.Files {
		finding := host.Finding{File: f.Name, Remedy: host.Textf("%s writes it again", host.NewCommand("rdma prepare"))}
		switch now := v.Files[i]; {
		case !now.Seen():
			finding = checklist.Unread(f.Name, now.Err)[0]
		case now.Value == "":
			finding.Status, finding.Seen = host.Fail, f.Name+" is missing"
			finding.Effect = "the next boot does not prepare the adapters as recorded"
		case now.Value != f.Hash:
			finding.Status, finding.Seen = host.Warn, f.Name+" was changed by another program"
			finding.Effect = "the next boot may differ from the plan"
		default:
			continue
		}
		findings = append(findings, finding)
	}
	return checklist.OrPass(findings, "%s unchanged", host.Numbered(len(v.Files), "file"))
}
