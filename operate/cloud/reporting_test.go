package cloud

import (
	"errors"
	"testing"

	"gpustack/cleanup/find"
	"gpustack/host/hosttest"
)

// TestJudgeReports: --computes-report replaces what cannot be read, and nothing that was
// found.
func TestJudgeReports(t *testing.T) {
	found := []find.NotReporting{{Cell: "cell1", Host: "gpu1", Why: []string{"does not report its PCI devices to Placement"}}}
	missing := errors.New("cell cell2: no answer within 1m0s")
	for _, test := range []struct {
		name     string
		found    []find.NotReporting
		missing  error
		asserted bool
		state    string
		errors   []string
	}{
		{"all report", nil, nil, false, ReportVerified, nil},
		{"all report, asserted", nil, nil, true, ReportVerified, nil},
		{"one does not", found, nil, true, "", []string{"cannot turn on pci_in_placement: host gpu1 (cell cell1): does not"}},
		{"a cell is missing", nil, missing, false, "", []string{"cannot determine whether every compute node reports"}},
		{"a cell is missing, asserted", nil, missing, true, ReportAsserted, nil},
		{"one does not and a cell is missing, asserted", found, missing, true, "", []string{"host gpu1 (cell cell1)", "cell cell2: no answer"}},
	} {
		state, warnings, err := judgeReports(test.found, test.missing, test.asserted)
		if (err == nil) != (test.errors == nil) || err == nil && state != test.state || (state == ReportAsserted) != (len(warnings) == 1) {
			t.Errorf("%s: %q, %q, %v", test.name, state, warnings, err)
		}
		for _, want := range test.errors {
			hosttest.ContainsIn(t, test.name, want, err.Error())
		}
	}
}
