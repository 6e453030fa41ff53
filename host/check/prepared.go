package check

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// prepared checks whether the machine has been prepared. It does not apply while another check
// fails.
func (v view) prepared() []host.Finding {
	f := host.Finding{Status: host.NA, File: machine.ContractFile}
	switch {
	case v.phase == unseen:
		return checklist.Unread(machine.ContractFile, v.Contract.Err)
	case v.phase != unprepared:
		c := v.Contract.Value
		f.Status, f.Seen = host.Pass, fmt.Sprintf("%s recorded for %s", host.Numbered(len(c.Functions), "function"), c.Driver)
	case v.undone:
		f.Seen = "what was recorded is undone"
	case !v.mended:
		f.Seen = "skipped until the failures above are fixed"
	default:
		f.Status, f.Seen = host.Fail, fmt.Sprintf("nothing is recorded by %s", host.NewCommand("host prepare"))
		f.Effect = "all GPUs remain with the host"
		if v.byOtherMeans() != nil {
			f.Effect = "what other means prepared is neither verified nor undone by gpustack"
		}
		f.Remedy = host.Textf("%s shows the plan", host.NewCommand("host prepare").Flag("dry-run"))
	}
	return []host.Finding{f}
}
