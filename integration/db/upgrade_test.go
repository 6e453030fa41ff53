package db

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
)

// TestUpgrade: an entry that an earlier release has written is undone, and one that it left
// when it was killed is determined. testdata/upgrade has what commit aa95e30 wrote: one
// report_count for a repair, no schema, and no state of a repair that has begun.
func TestUpgrade(t *testing.T) {
	text, err := os.ReadFile("testdata/upgrade/aa95e30-rows.json")
	if err != nil {
		t.Fatal(err)
	}
	var entry struct{ Rows []cleanup.Unit }
	if err := json.Unmarshal(text, &entry); err != nil {
		t.Fatal(err)
	}
	row := entry.Rows[0].Rows[0]
	killed := strings.NewReplacer(`"status": "done"`, `"status": "applying"`, `"state": "repaired"`, `"state": "planned"`)
	for name, test := range map[string]struct {
		entry   string
		written bool
		args    []string
		want    string
		rows    string // of the device afterwards
	}{
		"undone":                   {string(text), true, []string{"undo"}, "entry 1 is undone", "allocated"},
		"killed before COMMIT":     {killed.Replace(string(text)), false, []string{"undo"}, "entry 1 is undone", "allocated"},
		"killed after COMMIT":      {killed.Replace(string(text)), true, []string{"repair-migration", "--apply"}, "entry 1, 0000:00:00.0 of gpu1: repaired", "available"},
		"killed before, and again": {killed.Replace(string(text)), false, []string{"repair-migration", "--apply", "--host-is-off", "gpu1", "--settle", "0s"}, "entry 1, 0000:00:00.0 of gpu1: skipped", "available"},
	} {
		t.Run(name, func(t *testing.T) {
			cell := stale(t, 1)
			columns := row.Before
			if test.written {
				columns = row.After
			}
			if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.pci_devices SET status = ?, instance_uuid = ?, request_id = ?, updated_at = ? WHERE id = ?", columns["status"], columns["instance_uuid"], columns["request_id"], columns["updated_at"], row.Key); err != nil {
				t.Fatal(err)
			}
			root := machine(t)
			dir := filepath.Join(root, "var/lib/gpustack/journal")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "0001.json"), []byte(test.entry), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(gpustack, append(test.args, "--root", root, "--yes")...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), test.want) {
				t.Errorf("%v: %s", err, out)
			}
			got := cell.Dump(t, "pci_devices", "status")
			if diff := cmp.Diff([][]string{{test.rows}}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
