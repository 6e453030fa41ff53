package db

import (
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
)

// talkPage is the page whose part about rows TestTalk proves.
const talkPage = "../../docs/talk.md"

// TestTalk: the rows that the talk shows are those of two free devices. repair-migration prints of
// them what docs/talk.md shows, and Nova's tracker agrees: it changes neither row and offers both
// devices, and deleted rows come back under new ids when nova-compute starts. The same rows as an
// unfinished migration leaves them are the ones that need a repair.
func TestTalk(t *testing.T) {
	reset(t)
	rows := hosttest.Read(t, "../../examples/talk-rows.sql")
	page := hosttest.Read(t, talkPage)
	cell := database.Cell1
	node := cell.Compute(t, "gpu21", Node(Row{"id": 21}))
	update(t, strings.Replace(rows, "INSERT INTO pci_devices", "INSERT INTO "+cell.Name+".pci_devices", 1))
	devices := cell.Reported(t, node)

	shown := strings.SplitAfter(page, "```text\n$ gpustack repair-migration\n")[1:]
	if len(shown) != 2 {
		t.Fatalf("%s shows repair-migration %d times", talkPage, len(shown))
	}
	prints := func(i, status int) {
		t.Helper()
		block, _, _ := strings.Cut(shown[i], "```")
		stdout, stderr, got := repairMigration(t, machine(t))
		if !terminal.Shows(block, stdout+stderr) || got != status {
			t.Errorf("exit status %d; %s shows\n%s\nand the command prints\n%s%s", got, talkPage, block, stdout, stderr)
		}
	}

	one := 1
	free := Tracked{
		Changes: []Change{}, Pools: []Pool{{Product: "10de:11b4", Type: "type-PCI", NUMA: &one, Count: 2}},
		Offers: map[string]int{"K4200": 2}, Free: []string{first, second},
	}
	hosttest.EqualIn(t, "Nova's tracker", free, database.TrackAndSave(t, cell, node, devices))
	prints(0, 0)
	update(t, "DELETE FROM "+cell.Name+".pci_devices WHERE id IN (45, 48)")
	free.Changes = []Change{{first, "status", "NULL", "available"}, {second, "status", "NULL", "available"}}
	hosttest.EqualIn(t, "Nova's tracker, of deleted rows", free, database.TrackAndSave(t, cell, node, devices))
	want := [][]string{{first, "available", "NULL"}, {second, "available", "NULL"}}
	hosttest.EqualIn(t, "rows that were deleted", want, cell.Dump(t, "pci_devices", "address", "status", "instance_uuid"))

	// The guest is on another host, and a migration that failed keeps both devices here.
	old := Row{"updated_at": Ago(time.Hour)}
	guest := UUID(1)
	cell.Compute(t, "gpu22")
	cell.Instance(t, guest, "gpu22", "active", "")
	cell.Migration(t, 1, guest, "migration", "error", "gpu21", "gpu22", old)
	update(t, "UPDATE "+cell.Name+".pci_devices SET status = 'allocated', instance_uuid = ?, request_id = ?, updated_at = ?", guest, RequestOf(guest),
		old["updated_at"])
	if tracked := database.TrackAndSave(t, cell, node, devices); len(tracked.Changes) > 0 || len(tracked.Free) > 0 {
		t.Errorf("Nova's tracker frees devices: %+v", tracked)
	}
	prints(1, 2)
}
