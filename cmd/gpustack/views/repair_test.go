package views

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"testing"

	"gpustack/cleanup"
	"gpustack/cleanup/repair"
	"gpustack/cmd/gpustack/term"
)

// TestRepairPlanText: the plan of a repair describes a migration_context instead of printing its
// 4 kB, before the repair and before its undo; one in another format is printed.
func TestRepairPlanText(t *testing.T) {
	text, err := os.ReadFile("../../../cleanup/testdata/migration_context.json")
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.TrimSpace(string(text))
	plan := func(value string) cleanup.Unit {
		return cleanup.Unit{Repair: cleanup.Online, Instance: "U", State: cleanup.Written,
			Closings: []cleanup.Closing{{Migration: 3, Status: "failed"}, {Migration: 4, Status: "failed"}, {Migration: 9, Status: "confirmed"}},
			Rows: []cleanup.Row{{Table: "instance_extra", Key: "5",
				Before: map[string]*string{"migration_context": &value}, After: map[string]*string{"migration_context": nil}}}}
	}
	print := func(print func(u *term.UI)) string {
		var b bytes.Buffer
		u := &term.UI{Out: bufio.NewWriter(&b)}
		print(u)
		u.Out.Flush()
		return b.String()
	}
	const described = `    the migration_context, of migration 3, 3525 bytes:
      old: PCI devices 0000:84:00.0 of compute node 1, PCI requests K4200:1, no NUMA topology, no other resources
      new: PCI devices 0000:84:00.0 of compute node 2, PCI requests K4200:1, no NUMA topology, no other resources
`
	const title = "\nonline repair of migrations 3, 4 and 9, instance U\n"
	const statement = "  UPDATE instance_extra SET migration_context = ? WHERE id = ? AND migration_context <=> ?\n"
	for name, test := range map[string]struct{ got, want string }{
		"repair": {print(func(u *term.UI) { PrintRepairPlan(u, []cleanup.Unit{plan(whole)}) }),
			title + statement + "    with NULL, 5, the migration_context\n" + described},
		"undo": {print(func(u *term.UI) { printUndoPlan(u, plan(whole), repair.Standing{}) }),
			"\nonline repair of migrations 3, 4 and 9\n" + statement + "    with the migration_context, 5, NULL\n" + described},
		"another format": {print(func(u *term.UI) { PrintRepairPlan(u, []cleanup.Unit{plan(`{"migration": 3}`)}) }),
			title + statement + "    with NULL, 5, \"{\\\"migration\\\": 3}\"\n"},
	} {
		if test.got != test.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, test.got, test.want)
		}
	}
}
