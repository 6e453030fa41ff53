package check

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/steps"
)

// Startup judges the steps of every boot: of the last run, and whether the unit that runs them is
// there. It has no finding if nothing is recorded and no step was run.
func Startup(s steps.State) []host.Finding {
	f := host.Finding{Check: "startup", Status: host.Fail, File: steps.ResultFile, Effect: "VFs are not as recorded",
		Remedy: "repair the cause, then run: systemctl restart " + steps.Unit}
	switch {
	case s.Err != nil:
		return one(host.Finding{Check: f.Check, Status: host.NA, Seen: s.Err.Error(), Remedy: "run gpustack as root"})
	case len(s.Wanted) == 0 && (s.Result == nil || len(s.Result.Steps) == 0):
		return nil
	case len(s.Wanted) > 0 && s.Masked:
		f.File, f.Seen, f.Remedy = steps.UnitFile, steps.Unit+" is masked", "systemctl unmask "+steps.Unit
		return one(f)
	case len(s.Wanted) > 0 && len(s.Missing) > 0:
		f.File, f.Seen = s.Missing[0], strings.Join(s.Missing, " and ")+" missing, although steps are recorded"
		f.Effect, f.Remedy = "the next boot carries out no steps", "run gpustack rdma prepare, or gpustack container prepare: it writes the unit again"
		return one(f)
	case s.Result == nil:
		f.Status, f.Seen = host.NA, "no step was carried out since this boot"
		f.Effect, f.Remedy = "", "reboot, or run: systemctl start "+steps.Unit
		return one(f)
	}
	var findings []host.Finding
	for _, step := range s.Result.Steps {
		g := f
		if step.OfContainers() {
			g.Effect = "containers do not get what is recorded for them"
		}
		switch step.Status {
		case steps.Done, steps.Unchanged:
			continue
		case steps.Skipped:
			g.Status, g.Effect, g.Remedy = host.NA, "", ""
		case steps.Failed:
		case steps.Pending, steps.Running:
			g.Status = host.Warn
		}
		g.Seen = fmt.Sprintf("step %s is %s", step.ID, step.Status)
		if step.Error != "" {
			g.Seen = fmt.Sprintf("step %s: %s: %s", step.ID, step.Status, step.Error)
		}
		findings = append(findings, g)
	}
	var notRun []string
	for _, w := range s.Wanted {
		if !slices.ContainsFunc(s.Result.Steps, func(r steps.StepResult) bool { return r.ID == w.ID }) {
			notRun = append(notRun, w.ID)
		}
	}
	if n := len(notRun); n > 0 {
		was := map[bool]string{true: "was", false: "were"}[n == 1]
		findings = append(findings, host.Finding{
			Check: f.Check, Status: host.NA, File: f.File, Remedy: "reboot, or run: systemctl restart " + steps.Unit,
			Seen: fmt.Sprintf("%s %s not carried out since this boot: %s", plural(n, "step"), was, strings.Join(notRun, ", ")),
		})
	}
	if len(s.Wanted) > 0 && s.Unordered != nil {
		findings = append(findings, host.Finding{
			Check: f.Check, Status: host.Warn, File: steps.UnitFile, Seen: "not ordered after " + steps.Unit + ": " + strings.Join(s.Unordered, ", "),
			Effect: "at boot they may start before the recorded VFs and drivers are in place",
			Remedy: "run gpustack rdma prepare, or gpustack container prepare: it writes the unit again",
		})
	}
	if findings == nil {
		return one(host.Finding{Check: f.Check, Status: host.Pass, Seen: plural(len(s.Result.Steps), "step") + " of this boot succeeded"})
	}
	return findings
}

// VerifyWith is Verify with the findings of [Startup], which precede those about the record. A
// machine that is ready but for a failed step is not ready.
func VerifyWith(m machine.Machine, refused []error, s steps.State) ([]host.Finding, Verdict) {
	findings, verdict := Verify(m, refused)
	more := Startup(s)
	i := slices.IndexFunc(findings, func(f host.Finding) bool { return f.Check == "prepared" })
	if verdict == Ready && host.Failed(more) {
		verdict = NotReady
	}
	return slices.Insert(findings, max(i, 0), more...), verdict
}
