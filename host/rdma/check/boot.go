package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/steps"
)

// boot reports the result of the steps that gpustack-boot.service carried out at this boot.
func (v view) boot() []host.Finding {
	const unit = "gpustack-boot.service"
	f := host.Finding{Status: host.Fail, File: steps.ResultFile}
	switch {
	case !v.Record.Seen():
		return blind(v.Record.File, v.Record.Err)
	case v.Record.Value == nil:
		return na("nothing is recorded")
	case !v.Result.Seen():
		return blind(v.Result.File, v.Result.Err)
	case slices.Contains(v.Arguments.Value, offArgument):
		f.File, f.Seen = cmdlineFile, "booted with "+offArgument
		f.Effect, f.Remedy = "adapters remain as they are until the next boot", "reboot without it"
		return []host.Finding{f}
	case v.phase == pending:
		f.File, f.Seen = v.Record.File, "what is recorded takes effect at the next boot"
		if v.Prepared != nil {
			f.Seen = fmt.Sprintf("what was recorded at %s takes effect at the next boot", v.Prepared.UTC().Format(time.RFC3339))
		}
		f.Effect = "until then adapters are as before"
		f.Remedy = "reboot, or, to have it now: systemctl restart " + unit
		return []host.Finding{f}
	case v.Result.Value == nil:
		f.Seen = unit + " has not run since this boot"
		f.Effect = "no virtual function, GUID or driver is set as recorded"
		f.Remedy = "systemctl status " + unit + "; systemctl start " + unit
		return []host.Finding{f}
	}
	return v.outcomes(*v.Result.Value, unit)
}

// outcomes returns a finding for each step that did not succeed.
func (v view) outcomes(r steps.Result, unit string) (findings []host.Finding) {
	done, open := 0, 0
	for _, s := range r.Steps {
		f := host.Finding{Status: host.Fail, File: steps.ResultFile, Remedy: "systemctl restart " + unit + "; its messages: journalctl -b -u " + unit}
		switch s.Status {
		case steps.Done, steps.Unchanged:
			done++
			continue
		case steps.Failed:
			f.Seen, f.Effect = fmt.Sprintf("step %s failed: %s", s.ID, s.Error), "steps that need it were skipped"
		case steps.Skipped:
			f.Status, f.Seen = host.NA, fmt.Sprintf("step %s was skipped: %s", s.ID, s.Error)
			if s.Error == "" {
				f.Seen = fmt.Sprintf("step %s was skipped: it needs %s", s.ID, strings.Join(s.Needs, ", "))
			}
			f.Remedy = ""
		case steps.Pending, steps.Running:
			open++
			f.Seen, f.Effect = fmt.Sprintf("step %s is %s", s.ID, s.Status), "it has not taken effect"
			if r.Ended == nil {
				f.Remedy = "wait until " + unit + " has ended, or, if it was killed, systemctl restart " + unit
			}
		}
		findings = append(findings, f)
	}
	if r.Ended == nil && open == 0 {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: steps.ResultFile, Seen: fmt.Sprintf("%s, started at %s, has not ended", unit, r.Started.UTC().Format(time.RFC3339)),
			Effect: "further steps may follow", Remedy: "wait until it has ended, or, if it was killed, systemctl restart " + unit,
		})
	}
	return or(findings, "%s of %s succeeded", plural(done, "step"), unit)
}
