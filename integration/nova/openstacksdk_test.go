package nova

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what openstacksdk and Placement answer to testdata of nova/cloud")

// TestOpenstacksdk: what the unit tests of nova/cloud expect is what the openstacksdk of the tests'
// tree asks Keystone for.
func TestOpenstacksdk(t *testing.T) {
	compareRecorded(t, "python/credentials.py", "../../nova/cloud/testdata/openstacksdk.jsonl")
}

// compareRecorded compares what a script of the tests' tree prints with what it printed when it was
// recorded.
func compareRecorded(t *testing.T, script, recorded string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/usr/bin/python3", script)
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
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("run with -update (-recorded +now):\n%s", diff)
	}
}
