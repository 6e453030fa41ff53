package check

import (
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/host/machine"
)

// reboot tells whether what is recorded awaits a boot.
func (v view) reboot(mended bool) host.Finding {
	f := host.Finding{Check: "reboot", Status: host.NA}
	switch {
	case v.phase == unseen:
		f.Seen = "what is recorded is not known"
	case v.phase == unprepared:
		f.Seen = "nothing is recorded"
	case v.phase == booted && (!v.Running.Seen() || !v.Devices.Seen()):
		f.Seen = fmt.Sprintf("cannot be told without %s and %s", machine.CmdlineFile, machine.DevicesDir)
	case v.phase == booted:
		f.Status, f.Seen = host.Pass, "nothing awaits one"
	case !mended:
		f.Seen = "to come, but first what has failed above"
	case v.off:
		f.Status, f.File, f.Seen = host.Fail, machine.CmdlineFile, "booted with "+offArgument
		f.Effect = "every function is the host's until the next boot"
		f.Remedy = "reboot without it"
	default:
		f.Status, f.File, f.Seen = host.Fail, machine.ContractFile, "what is recorded takes effect at the next boot"
		if v.Prepared.Value != nil {
			f.Seen = fmt.Sprintf("what was recorded at %s takes effect at the next boot", v.Prepared.Value.UTC().Format(time.RFC3339))
		}
		f.Effect = "until then the host keeps its GPUs"
		f.Remedy = "reboot; gpustack host check then tells whether all is as planned"
	}
	return f
}
