package nova

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

var update = flag.Bool("update", false, "write what openstacksdk and Placement answer to testdata of nova/cloud")

// TestOpenstacksdk: what the unit tests of nova/cloud expect is what the openstacksdk of the tests'
// tree asks Keystone for. That of another release than the recorded one words errors in another
// way and differs in three kinds of cases.
func TestOpenstacksdk(t *testing.T) {
	type line struct {
		Name   string
		Answer struct {
			Error string
			Body  json.RawMessage
		}
	}
	compareRecorded(t, "python/credentials.py", "../../nova/cloud/testdata/openstacksdk.jsonl", func(string, string) func(string, string) bool {
		return func(recorded, now string) bool {
			var before, after line
			if json.Unmarshal([]byte(recorded), &before) != nil || json.Unmarshal([]byte(now), &after) != nil || before.Name != after.Name {
				return false
			}
			name, refused := after.Name, after.Answer.Error != ""
			switch {
			case before.Answer.Error != "":
				return refused
			case refused: // the system as well as a project (keystoneauth1)
				return strings.Contains(name, ": system_scope in ")
			case strings.Contains(string(after.Answer.Body), `"token":{"id":"None"}`):
				return strings.HasPrefix(name, "token") || strings.HasPrefix(name, "v3token")
			}
			// An option beside auth counts, and not the one in auth (openstacksdk).
			return strings.HasPrefix(name, "twice: ") && strings.HasSuffix(name, "beside")
		}
	})
}

// compareRecorded compares what a script of the tests' tree prints with what it printed when it was
// recorded. Where the first lines differ, which name the releases, other returns a function that
// tells whether two lines may differ.
func compareRecorded(t *testing.T, script, recorded string, other func(recorded, now string) func(recorded, now string) bool) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/usr/bin/python3", script)
	command.Stderr = os.Stderr
	got, err := command.Output()
	hosttest.NoError(t, err)
	if *update {
		hosttest.NoError(t, os.WriteFile(recorded, got, 0o644))
	}
	want := hosttest.Read(t, recorded)
	before, after := strings.Split(want, "\n"), strings.Split(string(got), "\n")
	if before[0] != after[0] && len(before) == len(after) {
		differs, differ := other(before[0], after[0]), 0
		for i := range before {
			if before[i] != after[i] && (i == 0 || differs(before[i], after[i])) {
				before[i], differ = after[i], differ+1
			}
		}
		t.Logf("%d of %d lines differ as those of another release do", differ, len(before))
		if differ > len(before)/4 {
			t.Error("these are too many to compare the others")
		}
	}
	hosttest.EqualIn(t, "run with -update", before, after)
}
