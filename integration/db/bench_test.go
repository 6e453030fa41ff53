package db

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// BenchmarkRepairMigration times the whole process on a cell of a million devices, of which 20 are
// stale, beside one scan of the tables that decide: interleaved, because both depend on what else
// the machine does. It prints the medians, the statements that the process sends, and the memory
// that it takes at most, side by side for clouds with more and more to judge.
func BenchmarkRepairMigration(b *testing.B) {
	w := world{nodes: 100_000, instances: 200_000, migrations: 300_000, stale: 20}
	w.make(b)
	for _, test := range []struct {
		name   string
		change []string
	}{
		{"open=0.1%", w.open(1000)},
		{"open=1%", w.open(100)},
		{"open=5%", w.open(20)},
		{"open=20%", w.open(5)},
		// The migrations of these left devices on the destination, whose rows must be judged (case B).
		{"open=20%,left=0.1%", w.leave(1000)},
		{"open=20%,left=1%", w.leave(100)},
		{"open=20%,left=5%", w.leave(20)},
		// No pools match; of the nodes whose nova-compute is down they are not judged.
		{"pools-differ", []string{"DELETE FROM pci_devices WHERE id > " + strconv.Itoa(w.devices()), "UPDATE compute_nodes SET pci_stats = '[]'",
			"UPDATE services SET last_seen_up = UTC_TIMESTAMP() + INTERVAL 1 DAY"}},
		{"pools-differ,down", []string{"UPDATE services SET last_seen_up = UTC_TIMESTAMP() - INTERVAL 1 DAY"}},
	} {
		execInCell1(b, test.change...)
		b.Run(test.name, w.bench)
	}
}

// bench prints the figures of a world.
func (w world) bench(b *testing.B) {
	root := machine(b)
	var whole, own, scans, read []float64
	for range 5 {
		scans = append(scans, seconds(b, func(ctx context.Context) error { return w.scan(ctx, true) }))
		read = append(read, seconds(b, func(ctx context.Context) error { return w.scan(ctx, false) }))
		cmd := exec.Command(gpustack, "repair-migration", "--root", root)
		whole = append(whole, seconds(b, func(context.Context) error {
			out, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 2 {
				return fmt.Errorf("%s", out)
			}
			return nil
		}))
		own = append(own, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	}
	before := selects(b)
	_, most := maxRSS(b, root, "repair-migration", "--root", root)
	b.ReportMetric(float64(selects(b)-before), "statements")
	b.ReportMetric(median(scans), "scan-s")
	b.ReportMetric(median(read), "read-s")
	b.ReportMetric(median(whole), "gpustack-s")
	b.ReportMetric(median(own), "gpustack-own-cpu-s")
	b.ReportMetric(median(whole)/median(scans), "times-the-scan")
	b.ReportMetric(most, "MiB")
	b.ReportMetric(0, "ns/op")
}

// selects returns how many SELECT statements the server has run.
func selects(b *testing.B) int {
	b.Helper()
	n, err := strconv.Atoi(database.find(b, "SHOW GLOBAL STATUS LIKE 'Com_select'")[0][1])
	hosttest.NoError(b, err)
	return n
}

func seconds(b *testing.B, act func(context.Context) error) float64 {
	b.Helper()
	begin := time.Now()
	hosttest.NoError(b, act(b.Context()))
	return time.Since(begin).Seconds()
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// scan reads the columns that decide, of all live rows of the five tables, one table after the
// other: within the server, which returns sums, or to a client, which drops them.
func (w world) scan(ctx context.Context, sums bool) error {
	for table, columns := range map[string]string{
		"pci_devices":    "compute_node_id, status, instance_uuid, request_id",
		"compute_nodes":  "host, hypervisor_hostname",
		"instances":      "uuid, host, node, vm_state, task_state",
		"instance_extra": "instance_uuid, pci_requests, migration_context",
		"migrations":     "instance_uuid, status",
	} {
		statement := "SELECT " + columns
		if sums {
			statement = "SELECT SUM(LENGTH(CONCAT_WS(' ', " + columns + ")))"
		}
		if err := drop(ctx, statement+" FROM nova_cell1."+table+" WHERE deleted = 0"); err != nil {
			return err
		}
	}
	return nil
}

// drop reads all rows of a query.
func drop(ctx context.Context, query string) error {
	rows, err := database.SQL.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]sql.RawBytes, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
	}
	return rows.Err()
}
