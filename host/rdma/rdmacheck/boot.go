package rdmacheck

import (
	"fmt"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/steps"
)

// boot finds a unit that no boot starts, and reports the result of the steps that it carried out at
// this boot.
func (v view) boot() []host.Finding {
	findings := v.ran()
	if f := v.Boot.Unstarted(); f != nil {
		findings = append([]host.Finding{*f}, host.Filter(findings, func(f host.Finding) bool { return f.Status != host.Pass })...)
	}
	return findings
}

// ran reports the result of the steps that gpustack-boot.service carried out at this boot.
func (v view) ran() []host.Finding {
	const unit = "gpustack-boot.service"
	f := host.Finding{Status: host.Fail, File: steps.ResultFile}
	switch {
	case !v.Record.Seen():
		return checklist.Unread(v.Record.File, v.Record.Err)
	case v.Record.Value == nil:
		return checklist.NA("nothing is recorded")
	case !v.Result.Seen():
		return checklist.Unread(v.Result.File, v.Result.Err)
	case slices.Contains(v.Arguments.Value, offArgument):
		f.File, f.Seen = cmdlineFile, "booted with "+offArgument
		f.Effect, f.Remedy = "adapters remain as they are until the next boot", host.Plain("reboot without it")
		return []host.Finding{f}
	case v.phase == pending:
		f.File, f.Seen = v.Record.File, "what is recorded takes effect at the next boot"
		if v.Prepared != nil {
			f.Seen = fmt.Sprintf("what was recorded at %s takes effect at the next boot", v.Prepared.UTC().Format(time.RFC3339))
		}
		f.Effect = "until then adapters are as before"
		f.Remedy = host.Plain("reboot, or, to have it now: systemctl restart " + unit)
		return []host.Finding{f}
	case v.Result.Value == nil:
		f.Seen = unit + " has not run since this boot"
		f.Effect = "no virtual function, GUID or driver is set as recorded"
		f.Remedy = host.Plain("systemctl status " + unit + "; systemctl start " + unit)
		return []host.Finding{f}
	}
	return outcomes(*v.Result.Value, unit)
}

// outcomes returns a finding for each step that did not succeed.
func outcomes(r steps.Result, unit string) (findings []host.Finding) {
	judged, open := steps.Judge(nil, r), false
	for _, o := range judged.Open {
		f := host.Finding{Status: o.Verdict, File: steps.ResultFile, Remedy: host.Plain("systemctl restart " + unit + "; its messages: journalctl -b -u " + unit)}
		switch o.Status {
		case steps.Skipped:
			f.Seen, f.Remedy = fmt.Sprintf("step %s was skipped: %s", o.ID, o.Why()), nil
		case steps.Pending, steps.Running:
			open = true
			f.Seen, f.Effect = fmt.Sprintf("step %s is %s", o.ID, o.Status), "it has not taken effect"
			if judged.Unended {
				f.Remedy = host.Plain("wait until " + unit + " has ended, or, if it was killed, systemctl restart " + unit)
			}
		default:
			f.Seen, f.Effect = fmt.Sprintf("step %s failed: %s", o.ID, o.Error), "steps that need it were skipped"
		}
		findings = append(findings, f)
	}
	if judged.Unended && !open {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: steps.ResultFile, Seen: fmt.Sprintf("%s, started at %s, has not ended", unit, r.Started.UTC().Format(time.RFC3339)),
			Effect: "further steps may follow", Remedy: host.Plain("wait until it has ended, or, if it was killed, systemctl restart " + unit),
		})
	}
	return checklist.OrPass(findings, "%s of %s succeeded", host.Numbered(judged.Succeeded, "step"), unit)
}
