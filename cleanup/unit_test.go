package cleanup

import (
	"testing"

	"gpustack/host/hosttest"
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
	hosttest.Equal(t, want, u.Back())
	hosttest.EqualIn(t, "the recorded row", at("allocated"), u.Rows[0].Before)
	hosttest.EqualIn(t, "the row that was read", at("allocated"), read.Before)
}
