package cleanup

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gpustack/nova/cloud"
)

// TestEarlierUnit: a repair that commit 37dfc5c recorded, which closed one migration per repair,
// is read as one of this release, and what this release records is read back.
func TestEarlierUnit(t *testing.T) {
	text, err := os.ReadFile("../integration/db/testdata/upgrade/37dfc5c.json")
	if err != nil {
		t.Fatal(err)
	}
	var units []Unit
	if err := json.Unmarshal(text, &units); err != nil {
		t.Fatal(err)
	}
	u := units[0]
	if diff := cmp.Diff([]Closing{{3, "failed"}}, u.Closings); diff != "" || u.Name() != "migration 3" || !u.Closes(3) || u.Closes(4) {
		t.Errorf("%s (-want +got):\n%s", u.Name(), diff)
	}
	one, card := 1, map[string]int{"CUSTOM_PCI_10DE_11B4": 1}
	holds := func(provider string) cloud.Allocations {
		a := cloud.Allocations{Providers: map[string]map[string]int{}, Project: "p", User: "u", Generation: &one}
		if provider != "" {
			a.Providers[provider] = card
		}
		return a
	}
	const consumer = "5f0c1c9e-0000-4000-8000-00000000000a"
	want := &AllocationChange{
		Before: Allocations{holds("provider of gpu2"), map[string]cloud.Allocations{consumer: holds("provider of gpu1")}},
		After:  Allocations{holds("provider of gpu1"), map[string]cloud.Allocations{consumer: holds("")}},
	}
	if diff := cmp.Diff(want, u.Placement); diff != "" {
		t.Errorf("Placement (-want +got):\n%s", diff)
	}
	again, err := json.Marshal(units)
	if err != nil {
		t.Fatal(err)
	}
	var same []Unit
	if err := json.Unmarshal(again, &same); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(units, same, cmpopts.IgnoreUnexported(Finding{})); diff != "" {
		t.Errorf("(-recorded +read):\n%s", diff)
	}
	// Before Newton, migrations had no uuid and so no consumer.
	var old AllocationChange
	if err := json.Unmarshal([]byte(`{"migration": "", "before": {"instance": {}, "migration": {"allocations": {}}}, "after": {"instance": {}}}`), &old); err != nil || len(old.Before.Migrations) > 0 {
		t.Errorf("%+v, %v", old, err)
	}
}

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
