package check

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/machine"
)

// prepared checks whether the machine has been prepared. It does not apply while another check
// fails.
func (v view) prepared(mended bool) host.Finding {
	f := host.Finding{Check: "prepared", Status: host.NA, File: machine.ContractFile}
	switch {
	case v.phase == unseen:
		f = blind(machine.ContractFile, v.Contract.Err)
		f.Check = "prepared"
	case v.phase != unprepared:
		c := v.Contract.Value
		f.Status, f.Seen = host.Pass, fmt.Sprintf("%s recorded for %s", plural(len(c.Functions), "function"), c.Driver)
	case !mended:
		f.Seen = "skipped until the failures above are fixed"
	default:
		f.Status, f.Seen = host.Fail, "gpustack host prepare has not been run here"
		f.Effect = "all GPUs remain with the host"
		if v.byOtherMeans() != nil {
			f.Effect = "what other means prepared is neither verified nor undone by gpustack"
		}
		f.Remedy = "gpustack host prepare --dry-run shows the plan"
	}
	return f
}
