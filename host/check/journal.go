package check

import (
	"errors"
	"fmt"
	"strconv"

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
			Remedy: host.Plain("wait until it ends, then check again"),
		}}
	case !v.CutOff.Seen():
		return unread(v.CutOff)
	case e != nil:
		left := change.Left{Entry: *e}
		return []host.Finding{{
			Status: host.Fail, File: change.Dir + "/journal", Seen: fmt.Sprintf("entry %d (%s) was interrupted while %s", e.ID, e.Command, e.Status),
			Effect: left.Effect(),
			Remedy: host.Textf("%s, %s undoes it", left.Remedy(), host.NewCommand("undo").Arg(strconv.Itoa(e.ID))),
		}}
	}
	var findings []host.Finding
	for _, e := range v.OpenElsewhere {
		left := change.Left{Entry: e}
		findings = append(findings, host.Finding{
			Status: host.Warn, File: change.Dir + "/journal", Seen: fmt.Sprintf("entry %d (%s) was interrupted, and its outcome is unknown", e.ID, e.Command),
			Effect: left.Effect(), Remedy: left.Remedy(),
		})
	}
	if findings != nil {
		return findings
	}
	return checklist.Pass("no run was interrupted")
}
