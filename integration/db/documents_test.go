package db

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"

	"github.com/google/jsonschema-go/jsonschema"
)

// checkDocument compares what a command has printed with its schema: exactly one document.
func checkDocument(t testing.TB, command string, printed []byte) {
	t.Helper()
	text := hosttest.Read(t, filepath.Join("../../docs/schema", strings.ReplaceAll(command, " ", "-")+".json"))
	var schema jsonschema.Schema
	hosttest.NoError(t, json.Unmarshal([]byte(text), &schema))
	resolved, err := schema.Resolve(nil)
	hosttest.NoError(t, err)
	var document any
	err = json.Unmarshal(printed, &document)
	if err == nil {
		err = resolved.Validate(document)
	}
	if err != nil {
		t.Errorf("%s: not as docs/schema describes it: %v\n%s", command, err, printed)
	}
}

// TestDocuments: with -o json, repairs, their undo and their entry are one document each, and so
// are the question for each of them and a repair that is skipped.
func TestDocuments(t *testing.T) {
	reset(t)
	cell := database.Cell1
	gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
	cell.Compute(t, "gpu2")
	cell.Instance(t, UUID(2), "gpu2", "active", "")
	cell.Card(t, gpu1, first, "allocated", UUID(1))
	root := machine(t)
	var document struct {
		Host, Version, Time *string
		Changed, Applied    bool
		Entry               *int
		Changes, Repairs    []struct{ State string }
		Refusals            []struct{ Code, Allow string }
	}
	run := func(want int, args ...string) {
		t.Helper()
		cmd := exec.Command(gpustack, append(args, "--root", root, "-o", "json")...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "LANG=C.UTF-8"}
		var talk strings.Builder
		cmd.Stderr = &talk
		out, err := cmd.Output()
		checkDocument(t, args[0], out)
		document.Refusals, document.Changes, document.Repairs = nil, nil, nil
		if jsonErr := json.Unmarshal(out, &document); jsonErr != nil || cmd.ProcessState.ExitCode() != want {
			t.Fatalf("%q: %v, %v: %s%s", args, jsonErr, err, out, talk.String())
		}
	}
	repairs := []string{"repair-migration", "--host-is-off", "gpu1"}
	apply := slices.Concat(repairs, []string{"--apply", "--wait", "1s"})
	run(2, repairs...)
	run(1, apply...)
	if d := document; !d.Changed || d.Applied || len(d.Changes) != 1 || len(d.Refusals) != 1 || d.Refusals[0].Code != "unconfirmed" || d.Refusals[0].Allow != "--yes" {
		t.Errorf("the question: %+v", d)
	}
	run(0, append(apply, "--yes")...)
	if d := document; !d.Applied || d.Entry == nil || len(d.Changes) != 1 || d.Changes[0].State != "repaired" || d.Version == nil || d.Time == nil {
		t.Errorf("the repair: %+v", d)
	}
	run(0, "history")
	run(0, "history", "1")
	run(2, "undo", "--dry-run")
	run(1, "undo")
	if d := document; len(d.Repairs) != 1 || len(d.Refusals) != 1 || d.Refusals[0].Code != "unconfirmed" {
		t.Errorf("the question of undo: %+v", d)
	}
	run(0, "undo", "--yes")
	if d := document; !d.Applied || len(d.Repairs) != 1 || d.Repairs[0].State != "undone" {
		t.Errorf("undo: %+v", d)
	}
	if rows := cell.Dump(t, "pci_devices", "status"); rows[0][0] != "allocated" {
		t.Errorf("after undo: %v", rows)
	}
}
