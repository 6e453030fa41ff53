package db

import (
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var record = flag.String("record", "", "TestUpgradeKilled: first write testdata/upgrade/COMMIT.json again, with the binary of that commit (`COMMIT=BINARY`)")

// A rowState is the entry of a repair of two devices that a run of an earlier commit left, and the
// rows beside it.
type rowState struct {
	Name  string          `json:"name"`  // status of the entry, states of its repairs, statuses of the rows
	Entry json.RawMessage `json:"entry"` // null if the run left none
	Rows  []rowColumns    `json:"rows"`
}

// rowColumns are the columns of a row of pci_devices that a repair changes.
type rowColumns struct {
	ID       int64   `json:"id"`
	Status   string  `json:"status"`
	Instance *string `json:"instance_uuid"`
	Request  *string `json:"request_id"`
	Updated  *string `json:"updated_at"`
}

var (
	repairTwo = []string{"repair-migration", "--apply", "--host-is-off", "gpu1", "--settle", "0s"}
	undoTwo   = []string{"undo"}
)

// refusedUndo are the states of which undo reports an error and changes nothing, as it did with the
// commit itself: aa95e30 reverted a repair before it recorded that, so that a revert that was
// committed looks like a change by something else.
var refusedUndo = map[string]string{
	"aa95e30 done repaired repaired available allocated":      "row 2 of pci_devices has been changed since",
	"aa95e30 undoing repaired taken back allocated allocated": "row 1 of pci_devices has been changed since",
}

const laterName = " by a later release"

// laterFields adds fields that this release does not know to an entry, its repairs, devices and
// rows.
var laterFields = strings.NewReplacer(`"schema":`, `"later":{"a":[1]},"schema":`, `"cell":`, `"later":1,"cell":`, `"address":`, `"later":null,"address":`, `"table":`, `"later":"","table":`)

// TestUpgradeKilled: of a repair of two devices by an earlier commit, which was done, undone, or
// killed at each write of the journal, repair-migration and undo determine the outcome. In the end
// all devices are available, or all are as before, and no entry is open. Fields of a later release
// change nothing.
func TestUpgradeKilled(t *testing.T) {
	if commit, binary, ok := strings.Cut(*record, "="); ok {
		recordRows(t, commit, binary)
	}
	for _, commit := range []string{"aa95e30", "72aac5b", "47ed7fd"} {
		text, err := os.ReadFile("testdata/upgrade/" + commit + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var states []rowState
		if err := json.Unmarshal(text, &states); err != nil {
			t.Fatal(err)
		}
		if len(states) < 6 {
			t.Errorf("%s: %d states", commit, len(states))
		}
		for _, s := range states {
			if strings.HasPrefix(s.Name, "done ") {
				later := s
				later.Name += laterName
				later.Entry = []byte(laterFields.Replace(string(s.Entry)))
				states = append(states, later)
			}
		}
		for _, s := range states {
			for _, argv := range [][]string{undoTwo, repairTwo} {
				t.Run(commit+" "+s.Name+" "+argv[0], func(t *testing.T) {
					cell := stale(t, 2)
					before := columns(t)
					root := machine(t)
					s.lay(t, root)
					if argv[0] == undoTwo[0] && strings.HasPrefix(s.Name, "undone") {
						argv = repairTwo
					}
					left := columns(t)
					out, err := exec.Command(gpustack, append(argv, "--root", root, "--yes")...).CombinedOutput()
					if refused := refusedUndo[commit+" "+strings.TrimSuffix(s.Name, laterName)]; refused != "" && argv[0] == undoTwo[0] {
						if err == nil || !strings.Contains(string(out), refused) {
							t.Errorf("%q: %v, want %q: %s", argv, err, refused, out)
						}
						if diff := cmp.Diff(left, columns(t)); diff != "" {
							t.Errorf("(-before +after):\n%s", diff)
						}
						return
					}
					if err != nil {
						t.Fatalf("%q: %v: %s", argv, err, out)
					}
					want := []string{"available", "available"}
					if argv[0] == undoTwo[0] {
						want = []string{"allocated", "allocated"}
						if diff := cmp.Diff(owners(before), owners(columns(t))); diff != "" {
							t.Errorf("(-before +after):\n%s", diff)
						}
					}
					var got []string
					for _, row := range cell.Dump(t, "pci_devices", "status") {
						got = append(got, row[0])
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%q (-want +got):\n%s\n%s", argv, diff, out)
					}
					for _, e := range history(t, root) {
						if e != "done" && e != "undone" {
							t.Errorf("%q leaves an entry %s: %s", argv, e, out)
						}
					}
				})
			}
		}
	}
}

// recordRows writes the states that the binary of a commit leaves. It needs strace. recordUpgrade
// of package integration describes how to build the binary:
//
//	go test ./integration/db -run TestUpgradeKilled -record aa95e30=/tmp/gpustack
func recordRows(t *testing.T, commit, binary string) {
	t.Helper()
	var states []rowState
	keep := func(root string) {
		s := rowState{Rows: columns(t)}
		entries, err := filepath.Glob(filepath.Join(root, "var/lib/gpustack/journal/[0-9]*.json"))
		if err != nil || len(entries) > 1 {
			t.Fatalf("%q, %v", entries, err)
		}
		var entry struct {
			Status string
			Rows   []struct{ State string }
		}
		for _, file := range entries {
			if s.Entry, err = os.ReadFile(file); err == nil {
				err = json.Unmarshal(s.Entry, &entry)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		words := []string{entry.Status}
		for _, unit := range entry.Rows {
			words = append(words, unit.State)
		}
		for _, row := range s.Rows {
			words = append(words, row.Status)
		}
		s.Name = strings.Join(words, " ")
		if s.Entry != nil && !slices.ContainsFunc(states, func(o rowState) bool { return o.Name == s.Name }) {
			states = append(states, s)
		}
	}
	strace := func(n int, argv ...string) (killed bool) {
		t.Helper()
		cmd := exec.Command("strace", slices.Concat([]string{"-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat",
			"-e", fmt.Sprintf("inject=renameat:signal=KILL:when=%d", n), binary}, argv)...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatalf("%v: %s", err, out)
		}
		return err != nil
	}
	run := func(argv ...string) {
		t.Helper()
		if out, err := exec.Command(binary, argv...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", argv, err, out)
		}
	}
	for _, first := range [][][]string{nil, {repairTwo}} { // what is run before, and then killed
		for n := 1; ; n++ {
			stale(t, 2)
			root := machine(t)
			last := repairTwo
			for _, argv := range first {
				run(append(argv, "--root", root, "--yes")...)
				last = undoTwo
			}
			killed := strace(n, append(last, "--root", root, "--yes")...)
			keep(root)
			if !killed {
				break
			}
		}
	}
	var lines []string
	for _, s := range states {
		line, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	if err := os.WriteFile("testdata/upgrade/"+commit+".json", []byte("[\n"+strings.Join(lines, ",\n")+"\n]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d states", commit, len(states))
}

// lay restores the rows and the journal of a state.
func (s rowState) lay(t *testing.T, root string) {
	t.Helper()
	for _, row := range s.Rows {
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.pci_devices SET status = ?, instance_uuid = ?, request_id = ?, updated_at = ? WHERE id = ?",
			row.Status, row.Instance, row.Request, row.Updated, row.ID); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(root, "var/lib/gpustack/journal")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "0001.json"), s.Entry, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// columns returns the rows of pci_devices, by id.
func columns(t *testing.T) (rows []rowColumns) {
	t.Helper()
	found, err := database.SQL.QueryContext(t.Context(), "SELECT id, status, instance_uuid, request_id, CAST(updated_at AS CHAR) FROM nova_cell1.pci_devices ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var row rowColumns
		var instance, request, updated sql.NullString
		if err := found.Scan(&row.ID, &row.Status, &instance, &request, &updated); err != nil {
			t.Fatal(err)
		}
		for to, from := range map[**string]sql.NullString{&row.Instance: instance, &row.Request: request, &row.Updated: updated} {
			if from.Valid {
				*to = &from.String
			}
		}
		rows = append(rows, row)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// owners returns rows without the times of their changes.
func owners(rows []rowColumns) []rowColumns {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Updated = nil
	}
	return rows
}

// history returns the statuses of the entries of a machine.
func history(t *testing.T, root string) (statuses []string) {
	t.Helper()
	out, err := exec.Command(gpustack, "history", "--root", root, "-o", "json").Output()
	var report struct{ Entries []struct{ Status string } }
	if err == nil {
		err = json.Unmarshal(out, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range report.Entries {
		statuses = append(statuses, e.Status)
	}
	return statuses
}
