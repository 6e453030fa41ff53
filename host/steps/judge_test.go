package steps_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/steps"
)

// TestJudge: each status has one verdict, a step of an unknown status fails, and recorded steps
// without a result are named.
func TestJudge(t *testing.T) {
	t.Parallel()
	for status, want := range map[steps.Status]host.Status{
		steps.Done: "", steps.Unchanged: "", steps.Failed: host.Fail, steps.Skipped: host.NA, steps.Pending: host.Fail, steps.Running: host.Fail, "later": host.Fail,
	} {
		j := steps.Judge(nil, steps.Result{Steps: []steps.StepResult{{ID: "vfs", Status: status}}})
		switch {
		case want == "" && j.Succeeded == 1 && len(j.Open) == 0:
		case want != "" && j.Succeeded == 0 && len(j.Open) == 1 && j.Open[0].Verdict == want:
		default:
			t.Errorf("%s: %+v", status, j)
		}
	}
	ended := time.Now()
	j := steps.Judge([]steps.Step{{ID: "a"}, {ID: "b"}}, steps.Result{Ended: &ended, Steps: []steps.StepResult{{ID: "a", Needs: []string{"x", "y"}, Status: steps.Skipped}}})
	want := steps.Judgement{
		Open:   []steps.Outcome{{StepResult: steps.StepResult{ID: "a", Needs: []string{"x", "y"}, Status: steps.Skipped}, Verdict: host.NA}},
		NotRun: []string{"b"},
	}
	if diff := cmp.Diff(want, j); diff != "" || j.Open[0].Why() != "it needs x, y" {
		t.Errorf("%s, %q", diff, j.Open[0].Why())
	}
}
