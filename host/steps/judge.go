package steps

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
)

// Judgement is what the result of this boot says about the recorded steps.
type Judgement struct {
	Succeeded int       // number of steps that reached their goal
	Open      []Outcome // the steps that did not, in their order
	NotRun    []string  // ids of recorded steps that this boot has not reached, because they were recorded since
	// Unended means that the run has not ended: it goes on, or it was killed.
	Unended bool
}

// Outcome is a step that did not reach its goal.
type Outcome struct {
	StepResult
	// Verdict is fail, or n/a for a skipped step: the step that it needs has the failure. A step that
	// is pending or running has failed until the run has ended, because a killed run leaves it so.
	Verdict host.Status
}

// Why returns the cause, "" if the result names none.
func (o Outcome) Why() string {
	if o.Error == "" && o.Status == Skipped {
		return fmt.Sprintf("it needs %s", strings.Join(o.Needs, ", "))
	}
	return o.Error
}

// Judge judges the result of this boot's steps, for the steps that are recorded.
func Judge(wanted []Step, r Result) Judgement {
	j := Judgement{Unended: r.Ended == nil}
	for _, s := range r.Steps {
		switch s.Status {
		case Done, Unchanged:
			j.Succeeded++
		case Skipped:
			j.Open = append(j.Open, Outcome{s, host.NA})
		default:
			j.Open = append(j.Open, Outcome{s, host.Fail})
		}
	}
	for _, w := range wanted {
		if !slices.ContainsFunc(r.Steps, func(s StepResult) bool { return s.ID == w.ID }) {
			j.NotRun = append(j.NotRun, w.ID)
		}
	}
	return j
}
