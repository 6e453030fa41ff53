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
	var findings []host.Finding
	for i, f := range v.Contract.Value.Files {
		finding := host.Finding{File: f.Name, Remedy: host.Textf("%s writes it again", host.NewCommand("host prepare"))}
		switch now := v.Files[i]; {
		case !now.Seen():
			finding = checklist.Unread(f.Name, now.Err)[0]
		case now.Value == "":
			finding.Status, finding.Seen = host.Fail, f.Name+" is missing"
			finding.Effect = "kernels installed and initramfs regenerated from now on lack it"
		case now.Value != f.Hash:
			finding.Status, finding.Seen = host.Warn, f.Name+" was changed by another program"
			finding.Effect = "the next boot may differ from the plan"
		default:
			continue
		}
		findings = append(findings, finding)
	}
	if findings == nil {
		return checklist.Pass("%s unchanged", host.Numbered(len(v.Files), "file"))
	}
	return findings
}
