package cleanup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRows: the rows that undo a unit's are those as they were, the last first, and making them
// changes no row that the unit has recorded.
func TestRows(t *testing.T) {
	at := func(status string) map[string]*string {
		return map[string]*string{"status": &status, "request_id": nil}
	}
	read := Row{Table: "pci_devices", Key: "1", Before: at("allocated")}
	changed := read.With(map[string]*string{"status": text("available")})
	u := Unit{Rows: []Row{changed, {Table: "migrations", Key: "2", Before: at("error"), After: at("failed")}}}
	want := []Row{
		{Table: "migrations", Key: "2", Before: at("failed"), After: at("error")},
		{Table: "pci_devices", Key: "1", Before: at("available"), After: at("allocated")},
	}
	if diff := cmp.Diff(want, u.Back()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(at("allocated"), u.Rows[0].Before); diff != "" {
		t.Errorf("the recorded row (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(at("allocated"), read.Before); diff != "" {
		t.Errorf("the row that was read (-want +got):\n%s", diff)
	}
}
