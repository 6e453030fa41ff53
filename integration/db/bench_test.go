package db

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkRepairMigration times the whole process that judges a million rows, each of
// which an instance has, with one stale among them, and reports the memory that it
// takes at most.
func BenchmarkRepairMigration(b *testing.B) {
	const devices, nodes = 1_000_000, 1000
	if err := database.Reset(b.Context()); err != nil {
		b.Fatal(err)
	}
	run := func(statement string, args ...any) {
		b.Helper()
		if _, err := database.SQL.ExecContext(b.Context(), statement, args...); err != nil {
			b.Fatal(err)
		}
	}
	for i := range nodes {
		database.Cell1.Compute(b, fmt.Sprintf("gpu%d", i+1))
	}
	database.Cell1.Instance(b, UUID(0), "gpu1", "active", "")
	// Instance n is on node n mod 1000, and has the one device of its number.
	run("SET SESSION foreign_key_checks = 0")
	run("INSERT INTO nova_cell1.instances (uuid, host, node, vm_state, deleted, created_at, hidden) SELECT LPAD(seq, 36, '0'), CONCAT('gpu', 1 + seq % ?), CONCAT('gpu', 1 + seq % ?), 'active', 0, UTC_TIMESTAMP(), 0 FROM seq_1_to_1000000", nodes, nodes)
	run("INSERT INTO nova_cell1.instance_extra (instance_uuid, pci_requests, deleted, created_at) SELECT LPAD(seq, 36, '0'), '[{\"count\": 1}]', 0, UTC_TIMESTAMP() FROM seq_1_to_1000000")
	run("INSERT INTO nova_cell1.pci_devices (compute_node_id, address, vendor_id, product_id, dev_type, label, status, extra_info, instance_uuid, deleted, created_at) SELECT (SELECT MIN(id) FROM nova_cell1.compute_nodes) + seq % ?, CONCAT(LPAD(HEX(seq DIV 65536), 4, '0'), ':', LPAD(HEX((seq DIV 256) % 256), 2, '0'), ':', LPAD(HEX(seq % 256 DIV 8), 2, '0'), '.', seq % 8), '10de', '11b4', 'type-PCI', 'label', 'allocated', '{}', LPAD(seq, 36, '0'), 0, UTC_TIMESTAMP() FROM seq_1_to_1000000", nodes)
	run("UPDATE nova_cell1.instances SET deleted = id WHERE uuid = LPAD(777777, 36, '0')")
	root := b.TempDir()
	text, err := os.ReadFile(database.Conf())
	if err == nil {
		err = os.MkdirAll(filepath.Join(root, "etc/nova"), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "etc/nova/nova.conf"), text, 0o640)
	}
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		cmd := exec.Command(gpustack, "repair-migration", "--root", root)
		begin := time.Now()
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 2 {
			b.Fatalf("%s", out)
		}
		b.ReportMetric(time.Since(begin).Seconds(), "s")
		b.ReportMetric((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), "own-cpu-s")
		b.ReportMetric(maxRSS(cmd), "MiB")
		b.Logf("%s", out)
	}
	b.ReportMetric(devices, "rows")
	b.ReportMetric(0, "ns/op")
}
