package nova

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what openstacksdk answers to nova/cloud/testdata/openstacksdk.jsonl")

// TestOpenstacksdk: what the unit tests of nova/cloud expect is what the openstacksdk of the tests'
// tree asks Keystone for.
func TestOpenstacksdk(t *testing.T) {
	const recorded = "../../nova/cloud/testdata/openstacksdk.jsonl"
	command := exec.CommandContext(t.Context(), "/usr/bin/python3", "python/credentials.py")
	command.Stderr = os.Stderr
	got, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(recorded, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run with -update (-recorded +openstacksdk):\n%s", diff)
	}
}
