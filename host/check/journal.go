package check

import (
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/checklist"
)

// journal finds runs that were interrupted.
func (v view) journal() []host.Finding {
	switch e := v.CutOff.Value; {
	case errors.Is(v.CutOff.Err, change.ErrLocked):
		return []host.Finding{{
			Status: host.Warn, File: change.Dir + "/journal", Seen: v.CutOff.Err.Error(),
			Effect: "these findings may mix the state before and after that run",
			Remedy: "wait until it ends, then check again",
		}}
	case !v.CutOff.Seen():
		return unread(v.CutOff)
	case e != nil:
		effect := "files may be changed in part"
		if e.Kind == change.KindDrivers {
			effect = "functions may have no driver, or a group may be split between host and guests, until the next boot"
		}
		return []host.Finding{{
			Status: host.Fail, File: change.Dir + "/journal", Seen: fmt.Sprintf("entry %d (%s) was interrupted while %s", e.ID, e.Command, e.Status),
			Effect: effect,
			Remedy: host.Textf("run %s: it recovers the entry first", host.NewCommand("host prepare")),
		}}
	}
	var findings []host.Finding
	for _, e := range v.OpenElsewhere {
		effect := "what it changed may be changed in part"
		switch e.Kind {
		case change.KindRows:
			effect = "rows of Nova's database and Placement's allocations may not match"
		case change.KindObjects:
			effect = "an object of OpenStack's API may be created, changed or deleted in part"
		}
		findings = append(findings, host.Finding{
			Status: host.Warn, File: change.Dir + "/journal", Seen: fmt.Sprintf("entry %d (%s) was interrupted, and its outcome is unknown", e.ID, e.Command),
			Effect: effect, Remedy: change.Left{Entry: e}.Remedy(),
		})
	}
	if findings != nil {
		return findings
	}
	return checklist.Pass("no run was interrupted")
}
