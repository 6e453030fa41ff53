package db

import (
	"fmt"
	"testing"
	"time"

	"gpustack/host/guest"
	"gpustack/host/pci"
	"gpustack/integration/evidence"
)

// many makes hosts with devices that guests hold, and rows that are free; it returns the
// arguments with the hosts' reports.
func many(t testing.TB, hosts, each int) (args []string) {
	t.Helper()
	if err := database.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	for h := range hosts {
		name := fmt.Sprintf("gpu%d", h)
		node := database.Cell1.Compute(t, name)
		statement := "INSERT INTO nova_cell1.pci_devices (compute_node_id, address, vendor_id, product_id, dev_type, label, status, extra_info, deleted, created_at) SELECT ?, CONCAT(LPAD(LOWER(HEX(seq DIV 65536)), 4, '0'), ':', LPAD(LOWER(HEX((seq DIV 256) % 256)), 2, '0'), ':', LPAD(LOWER(HEX(seq % 256 DIV 8)), 2, '0'), '.', seq % 8), '10de', '11b4', 'type-PCI', 'label', 'available', '{}', 0, UTC_TIMESTAMP() FROM nova_cell1.seq_0_to_999999 WHERE seq < ?"
		if _, err := database.SQL.ExecContext(t.Context(), statement, node, each); err != nil {
			t.Fatal(err)
		}
		r := evidence.Report(name)
		id := fmt.Sprintf("%032d", h)
		r.MachineID = &id
		for n := range each {
			a := []pci.Address{{Domain: uint32(n / 65536), Bus: uint8(n / 256), Slot: uint8(n % 256 / 8), Function: uint8(n % 8)}}
			uuid := fmt.Sprintf("%08d-0000-4000-8000-%012d", h, n)
			r.Holders = append(r.Holders, guest.Holder{PID: n + 2, Command: "qemu-system-x86", UUID: &uuid, Group: &n, Functions: a, Asked: a})
			r.Guests = append(r.Guests, guest.Guest{PID: n + 2, Command: "qemu-system-x86", UUID: &uuid, Asked: a})
		}
		args = append(args, "--guests", evidence.Write(t, r))
	}
	return args
}

// TestManyDevices: as many devices in reports as a large cloud has are each found, of
// many hosts and of one, in a time that grows as they do.
func TestManyDevices(t *testing.T) {
	for _, test := range []struct{ hosts, each int }{{100, 336}, {1, 33_600}} {
		t.Run(fmt.Sprintf("%d of %d", test.hosts, test.each), func(t *testing.T) {
			args := many(t, test.hosts, test.each)
			begin := time.Now()
			found, status := findings(t, machine(t), args...)
			t.Logf("%d devices of %d hosts: %.1f s", test.hosts*test.each, test.hosts, time.Since(begin).Seconds())
			if status != 2 || len(found) != test.hosts*test.each {
				t.Errorf("exit status %d, %d findings", status, len(found))
			}
		})
	}
}

// BenchmarkReports times the whole process that compares reports with the rows.
func BenchmarkReports(b *testing.B) {
	for _, n := range []struct{ hosts, each int }{{100, 336}, {100, 1000}, {1, 33_600}, {1, 100_000}} {
		b.Run(fmt.Sprintf("%dx%d", n.hosts, n.each), func(b *testing.B) {
			args := append(many(b, n.hosts, n.each), "-o", "json")
			root := b.TempDir()
			for b.Loop() {
				if _, stderr, status := repairMigration(b, root, append(args, "--database", database.URL(cell1Database))...); status != 2 {
					b.Fatal(stderr)
				}
			}
			b.ReportMetric(float64(n.hosts*n.each), "devices")
		})
	}
}
