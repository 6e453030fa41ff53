package check

import (
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/steps"
)

// startup judges the steps of this boot (/run/gpustack/boot.json) and their unit, with a finding
// for each that did not succeed, and units of containers with nova-compute or libvirt that are not
// ordered after it; absent if nothing is recorded and no step was run.
func (v view) startup() []host.Finding {
	s := v.boot
	f := host.Finding{Status: host.Fail, File: steps.ResultFile, Effect: "VFs are not as recorded",
		Remedy: host.Plain("repair the cause, then run: systemctl restart " + steps.Unit)}
	switch {
	case s.Err != nil:
		return host.Map(host.Split(s.Err), checklist.Prevented) // one for each file
	case len(s.Wanted) == 0 && (s.Result == nil || len(s.Result.Steps) == 0):
		return nil
	case s.Unstarted() != nil:
		return []host.Finding{*s.Unstarted()}
	case s.Result == nil:
		f.Status, f.Seen = host.NA, "no step was carried out since this boot"
		f.Effect, f.Remedy = "", host.Plain("reboot, or run: systemctl start "+steps.Unit)
		return []host.Finding{f}
	}
	judged := steps.Judge(s.Wanted, *s.Result)
	findings := host.Map(judged.Open, func(o steps.Outcome) host.Finding { return outcome(f, o) })
	if n := len(judged.NotRun); n > 0 {
		findings = append(findings, host.Finding{
			Status: host.NA, File: f.File, Remedy: host.Plain("reboot, or run: systemctl restart " + steps.Unit),
			Seen: fmt.Sprintf("%s not carried out since this boot: %s", host.Numbered(n, "step"), strings.Join(judged.NotRun, ", ")),
		})
	}
	if len(s.Wanted) > 0 && s.Unordered != nil {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: steps.UnitFile, Seen: "not ordered after " + steps.Unit + ": " + strings.Join(s.Unordered, ", "),
			Effect: "at boot they may start before the recorded VFs and drivers are in place",
			Remedy: s.Rewrite(),
		})
	}
	return checklist.OrPass(findings, "%s of this boot succeeded", host.Numbered(len(s.Result.Steps), "step"))
}

// outcome returns the finding of a step that has not reached its goal. f is that of a step that has
// failed.
func outcome(f host.Finding, o steps.Outcome) host.Finding {
	if o.OfContainers() {
		f.Effect = "containers do not get what is recorded for them"
	}
	switch o.Status {
	case steps.Skipped:
		f.Status, f.Effect, f.Remedy = host.NA, "", nil
	case steps.Pending, steps.Running:
		f.Status = host.Warn // rdma check fails: adapters are its subject
	}
	f.Seen = fmt.Sprintf("step %s is %s", o.ID, o.Status)
	if o.Error != "" {
		f.Seen = fmt.Sprintf("step %s: %s: %s", o.ID, o.Status, o.Error)
	}
	return f
}
