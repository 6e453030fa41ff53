package views

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"gpustack/cleanup"
	"gpustack/cleanup/repair"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/operate/rows"
)

// TestRepairPlanText: the plan of a repair describes a migration_context instead of printing its
// 4 kB, before the repair and before its undo; one in another format is printed.
func TestRepairPlanText(t *testing.T) {
	text := hosttest.Read(t, "../../../cleanup/testdata/migration_context.json")
	whole := strings.TrimSpace(text)
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
	const title = "\nonline repair of migrations 3, 4 and 9, instance U\n\nstatements, one transaction for each repair:\n"
	const statement = "  UPDATE instance_extra SET migration_context = ? WHERE id = ? AND migration_context <=> ?\n"
	for name, test := range map[string]struct{ got, want string }{
		"repair": {print(func(u *term.UI) { PrintRepairPlan(u, []cleanup.Unit{plan(whole)}) }),
			title + statement + "    with NULL, 5, the migration_context of migration 3 (3525 bytes)\n"},
		"undo": {print(func(u *term.UI) { printUndoPlan(u, plan(whole), repair.Standing{}) }),
			"\nonline repair of migrations 3, 4 and 9\n" + statement + "    with the migration_context of migration 3 (3525 bytes), 5, NULL\n"},
		"another format": {print(func(u *term.UI) { PrintRepairPlan(u, []cleanup.Unit{plan(`{"migration": 3}`)}) }),
			title + statement + "    with NULL, 5, \"{\\\"migration\\\": 3}\"\n"},
	} {
		hosttest.EqualIn(t, name, test.want, test.got)
	}
}

// TestRepairsTogether: devices about which the report says the same stand together, also if rows of
// others lie between them, and what repairs free stands above all statements.
func TestRepairsTogether(t *testing.T) {
	finding := func(address, reason string) cleanup.Finding {
		f := cleanup.Finding{Host: "gpu2", Verdict: cleanup.Stale, Case: cleanup.CaseError, Reason: reason, Consequence: "the devices are not assigned to a guest"}
		f.Device.Address, f.Device.Vendor, f.Device.Product, f.Device.Status = address, "10de", "20b5", "allocated"
		return f
	}
	unit := func(migration int64, addresses ...string) cleanup.Unit {
		value := "failed"
		w := cleanup.Unit{Repair: cleanup.Online, Instance: fmt.Sprintf("U%d", migration), State: cleanup.Planned,
			Closings: []cleanup.Closing{{Migration: migration, Status: value}},
			Rows: []cleanup.Row{{Table: "migrations", Key: fmt.Sprint(migration), Before: map[string]*string{"status": nil},
				After: map[string]*string{"status": &value}}}}
		for _, a := range addresses {
			owner := w.Instance
			w.Devices = append(w.Devices, cleanup.Held{Device: cleanup.Device{Address: a, Instance: &owner}, Host: "gpu2"})
		}
		return w
	}
	var b bytes.Buffer
	u := &term.UI{Out: bufio.NewWriter(&b)}
	PrintRepairs(u, rows.Observed{Findings: []cleanup.Finding{
		finding("0000:24:00.0", "kept by migration 7"), finding("0000:41:00.0", "kept by migration 9"), finding("0000:81:00.0", "kept by migration 7"),
	}, Summary: cleanup.Summary{Stale: 3},
		Pools: cleanup.PoolReport{Why: "a part of the rows was read"}, Allocations: cleanup.AllocationReport{Why: "no credentials"}})
	PrintRepairPlan(u, []cleanup.Unit{unit(7, "0000:24:00.0", "0000:81:00.0"), unit(9, "0000:41:00.0")})
	u.Out.Flush()
	const want = `gpu2 0000:24:00.0  10de:20b5 allocated  STALE (case B)
gpu2 0000:81:00.0  10de:20b5 allocated  STALE (case B)
  why     kept by migration 7
  so      the devices are not assigned to a guest

gpu2 0000:41:00.0  10de:20b5 allocated  STALE (case B)
  why     kept by migration 9
  so      the devices are not assigned to a guest

3 stale, 0 suspicious, 0 unknown, 0 busy, 0 legitimate
pools not judged: a part of the rows was read
allocations not judged: no credentials

online repair of migration 7, instance U7
  frees 0000:24:00.0 of gpu2
  frees 0000:81:00.0 of gpu2
online repair of migration 9, instance U9
  frees 0000:41:00.0 of gpu2

statements, one transaction for each repair:

online repair of migration 7, instance U7
  UPDATE migrations SET status = ? WHERE id = ? AND status <=> ?
    with "failed", 7, NULL

online repair of migration 9, instance U9
  UPDATE migrations SET status = ? WHERE id = ? AND status <=> ?
    with "failed", 9, NULL
`
	hosttest.Equal(t, want, b.String())
}

// TestNext: a dry run ends with the commands for the reports that are needed, each host once, and the
// one that repairs; without anything to repair it prints none.
func TestNext(t *testing.T) {
	finding := func(verdict cleanup.Verdict, by cleanup.Repair, needs string, hosts ...string) cleanup.Finding {
		return cleanup.Finding{Verdict: verdict, Repair: by, Needs: needs, Reports: hosts}
	}
	for name, test := range map[string]struct {
		findings []cleanup.Finding
		want     string
	}{
		"reports": {[]cleanup.Finding{finding(cleanup.Unknown, cleanup.NoRepair, "", "gpu2", "gpu1"), finding(cleanup.Unknown, cleanup.NoRepair, "", "gpu2")}, `
next:
  ssh gpu1 gpustack host guests --token T -o json > gpu1.json
  ssh gpu2 gpustack host guests --token T -o json > gpu2.json
  gpustack repair-migration --host-is-off gpu3 --guests gpu1.json --guests gpu2.json --apply
`},
		"a repair":             {[]cleanup.Finding{finding(cleanup.Stale, cleanup.Online, "")}, "\nnext:\n  gpustack repair-migration --host-is-off gpu3 --apply\n"},
		"a repair by Nova":     {[]cleanup.Finding{finding(cleanup.Stale, cleanup.ByNova, "")}, ""},
		"a repair that cannot": {[]cleanup.Finding{finding(cleanup.Stale, cleanup.Offline, "confirmation")}, ""},
	} {
		var b bytes.Buffer
		u := &term.UI{Out: bufio.NewWriter(&b)}
		PrintNext(u, "T", rows.Observed{Findings: test.findings}, host.NewCommand("repair-migration").Flag("host-is-off", "gpu3"))
		u.Out.Flush()
		hosttest.EqualIn(t, name, test.want, b.String())
	}
}
