package db

import (
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// TestAllCells: rows of every cell are judged, those of disabled ones too and of those
// whose URL is a template; and an instance counts as gone only when no cell has it.
func TestAllCells(t *testing.T) {
	reset(t)
	cell2 := database.AddCell(t, "cell2", Row{"disabled": true, "database_connection": Template("nova_cell2")})
	gpu1, gpu2 := database.Cell1.Compute(t, "gpu1"), cell2.Compute(t, "gpu2")
	database.Cell1.Card(t, gpu1, "0000:80:00.0", "allocated", UUID(1)) // cell2's
	cell2.Instance(t, UUID(1), "gpu2", "active", "")
	database.Cell1.Card(t, gpu1, "0000:81:00.0", "allocated", UUID(2)) // nobody's
	database.Cell1.Card(t, gpu1, "0000:82:00.0", "allocated", UUID(3)) // mapped, and nowhere
	database.API.Insert(t, "instance_mappings", Row{"instance_uuid": UUID(3), "project_id": "p"})
	database.Cell1.Card(t, gpu1, "0000:83:00.0", "allocated", UUID(4)) // cell0's: it never got a host
	database.Cell0.Instance(t, UUID(4), "", "error", "")
	cell2.Card(t, gpu2, "0000:80:00.0", "allocated", UUID(1))
	cell2.Card(t, gpu2, "0000:81:00.0", "allocated", UUID(5)) // nobody's
	root := machine(t)
	got, status := findings(t, root)
	want := []string{
		"gpu1 0000:80:00.0 E unknown", "gpu1 0000:81:00.0 A stale nova", "gpu1 0000:82:00.0 A unknown", "gpu1 0000:83:00.0 E unknown",
		"gpu2 0000:81:00.0 A stale nova",
	}
	if diff := cmp.Diff(want, got); diff != "" || status != 2 {
		t.Errorf("exit status %d, (-want +got):\n%s", status, diff)
	}
	for _, narrow := range [][]string{{"--cell", "cell2"}, {"--host", "gpu2"}, {"--instance", UUID(5)}} {
		if got, _ := findings(t, root, narrow...); !cmp.Equal(got, want[4:]) {
			t.Errorf("%q: %q", narrow, got)
		}
	}
	if got, _ := findings(t, root, "--device", "82:00.0"); !cmp.Equal(got, want[2:3]) {
		t.Errorf("%q", got)
	}
	if _, stderr, status := repairMigration(t, root, "--cell", "cell3"); status != 1 || !strings.Contains(stderr, "cell cell3: no such cell") {
		t.Errorf("exit status %d, %s", status, stderr)
	}

	// One cell by its URL: what it does not have may be anywhere, unless nova_api tells.
	url := database.URL("nova_cell1")
	got, _ = findings(t, root, "--database", url)
	hosttest.EqualIn(t, "--database",
		[]string{"gpu1 0000:80:00.0 A unknown", "gpu1 0000:81:00.0 A unknown", "gpu1 0000:82:00.0 A unknown", "gpu1 0000:83:00.0 A unknown"}, got)
	got, _ = findings(t, root, "--database", url, "--api-database", database.URL("nova_api"))
	hosttest.EqualIn(t, "--api-database", want[:4], got)

	// A cell that does not answer makes what is absent unknown, everywhere, and is said.
	if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_api.cell_mappings SET database_connection = 'mysql+pymysql://nova:hunter2@127.0.0.1:1/nova_cell2' WHERE name = 'cell2'"); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := repairMigration(t, root)
	if status != 1 || !strings.Contains(stderr, "error: cell cell2 at 127.0.0.1:1: ") || strings.Contains(stderr, "hunter2") || strings.Contains(stdout, "STALE") || strings.Count(stdout, "UNKNOWN") != 4 {
		t.Errorf("exit status %d, %s%s", status, stdout, stderr)
	}
	if _, stderr, status := repairMigration(t, root, "--apply", "--yes"); status != 1 || !strings.Contains(stderr, "cell cell2") {
		t.Errorf("--apply: exit status %d, %s", status, stderr)
	}
}

// TestSocket: nova.conf may name the server's socket.
func TestSocket(t *testing.T) {
	reset(t)
	gpu1 := database.Cell1.Compute(t, "gpu1", LastSeen(time.Hour))
	database.Cell1.Card(t, gpu1, first, "allocated", UUID(1))
	if got, _ := findings(t, database.SocketRoot); !cmp.Equal(got, []string{"gpu1 " + first + " A stale offline"}) {
		t.Errorf("%q", got)
	}
}
