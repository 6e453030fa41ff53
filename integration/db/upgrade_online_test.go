package db

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/cleanup"
	"gpustack/cleanup/repair"
)

// TestUpgradeOnline: an online repair that an earlier commit recorded, with the allocations of two
// consumers, is undone, and if that run was interrupted, determined: before its request to
// Placement, between that and COMMIT, and after COMMIT. Commit 37dfc5c recorded the one migration
// that it closed, 47ed7fd a list, but not the rows that are freed with devices.
func TestUpgradeOnline(t *testing.T) {
	for _, file := range []string{"37dfc5c.json", "47ed7fd-online.json"} {
		t.Run(file, func(t *testing.T) { upgradeOnline(t, file) })
	}
}

func upgradeOnline(t *testing.T, file string) {
	text, err := os.ReadFile("testdata/upgrade/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		state             cleanup.State
		posted, committed bool
		want              cleanup.State // once it is determined
		side              repair.Side
	}{
		"written":                        {cleanup.Written, true, true, cleanup.Written, repair.After},
		"killed before Placement":        {cleanup.Begun, false, false, cleanup.Skipped, repair.Before},
		"killed before COMMIT":           {cleanup.Begun, true, false, cleanup.Skipped, repair.Before},
		"killed after COMMIT":            {cleanup.Begun, true, true, cleanup.Written, repair.After},
		"killed, Placement was reverted": {cleanup.Begun, false, true, cleanup.Written, repair.After},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t)
			var units []cleanup.Unit
			if err := json.Unmarshal(text, &units); err != nil {
				t.Fatal(err)
			}
			u := &units[0]
			u.State = test.state
			for _, row := range u.Rows {
				columns := row.Before
				if test.committed {
					columns = row.After
				}
				var set []string
				var args []any
				for _, c := range slices.Sorted(maps.Keys(columns)) {
					set, args = append(set, c+" = ?"), append(args, columns[c])
				}
				statement := fmt.Sprintf("UPDATE nova_cell1.%s SET %s WHERE id = ?", row.Table, strings.Join(set, ", "))
				if _, err := database.SQL.ExecContext(t.Context(), statement, append(args, row.Key)...); err != nil {
					t.Fatal(err)
				}
			}
			if test.posted {
				for consumer, a := range u.Placement.After.Migrations {
					a.Generation = d.placement.held[consumer].Generation
					u.Placement.After.Migrations[consumer] = a
				}
				seen := maps.Clone(u.Placement.After.Migrations)
				seen[d.uuid] = u.Placement.After.Instance
				if err := d.placement.SetAllocations(t.Context(), seen); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.repairer.Recover(t.Context(), units, false); err != nil || u.State != test.want {
				t.Fatalf("%v, state %s (%s)", err, u.State, u.Note)
			}
			d.is(t, test.side)
			if err := d.repairer.Undo(t.Context(), units); err != nil {
				t.Fatal(err)
			}
			d.is(t, repair.Before)
		})
	}
}
