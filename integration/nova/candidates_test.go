package nova

import "testing"

// TestPlacement: what cloudtest answers with is what the Placement of the tests' tree answers.
func TestPlacement(t *testing.T) {
	compareRecorded(t, "python/candidates.py", "../../nova/cloud/cloudtest/testdata/placement.jsonl")
}
