package checklist_test

import (
	"testing"

	"gpustack/host"
	"gpustack/host/checklist"
)

// TestJudge: findings are named, in the order of the checks, and the worst of them decides.
func TestJudge(t *testing.T) {
	t.Parallel()
	found := func(status host.Status) func(host.Status) []host.Finding {
		return func(last host.Status) []host.Finding {
			if status == "" {
				return []host.Finding{{Status: last}}
			}
			return []host.Finding{{Status: status}, {Status: host.Pass}}
		}
	}
	for _, test := range []struct {
		first  checklist.Check[host.Status]
		second host.Status
		want   checklist.Verdict
	}{
		{checklist.Check[host.Status]{Judge: found(host.Pass)}, host.Warn, checklist.Ready},
		{checklist.Check[host.Status]{Judge: found(host.NA)}, host.Pass, checklist.Ready},
		{checklist.Check[host.Status]{Judge: found(host.NA), NA: checklist.Unknown}, host.Pass, checklist.Unknown},
		{checklist.Check[host.Status]{Judge: found(host.NA), NA: checklist.Unknown}, host.Fail, checklist.NotReady},
		{checklist.Check[host.Status]{Judge: found(host.Fail)}, host.Pass, checklist.NotReady},
		{checklist.Check[host.Status]{Judge: found(host.Warn), Fail: checklist.Drifted}, host.Fail, checklist.NotReady},
		{checklist.Check[host.Status]{Judge: found(host.Fail), Fail: checklist.Drifted}, host.Fail, checklist.Drifted},
		{checklist.Check[host.Status]{Judge: found(host.Fail), Fail: checklist.PendingReboot}, host.Fail, checklist.PendingReboot},
	} {
		test.first.Name = "first"
		list := checklist.List[host.Status]{test.first, {Name: "second", Judge: found("")}}
		findings, verdict := list.Judge(test.second)
		if len(findings) != 3 || findings[0].Check != "first" || findings[1].Check != "first" || findings[2].Check != "second" || verdict != test.want {
			t.Errorf("%+v, %s: %s, want %s: %+v", test.first.Name, test.second, verdict, test.want, findings)
		}
	}
}
