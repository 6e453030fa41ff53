package db

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/integration/evidence"
)

// many makes hosts with devices that guests hold, and rows that are free; it returns the
// arguments with the hosts' reports.
func many(t testing.TB, hosts, each int) (args []string) {
	t.Helper()
	hosttest.NoError(t, database.Reset(t.Context()))
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

// TestStatementsOfManyNodes: the number of statements that read rows by their addresses does not
// depend on the number of nodes, and each finds its rows by an index that begins with the node and
// the address.
func TestStatementsOfManyNodes(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, nodes int) (args []string){
		"guests that use free devices": func(t *testing.T, nodes int) (args []string) {
			for i := range nodes {
				host, u := fmt.Sprintf("gpu%d", i), UUID(i)
				node := database.Cell1.Compute(t, host)
				database.Cell1.Instance(t, u, host, "active", "", Asks("K4200:2", RequestOf(u)))
				r := evidence.Report(host)
				id := fmt.Sprintf("%032d", i)
				r.MachineID = &id
				for n := range 2 {
					a := pci.Address{Bus: uint8(0x84 + n)}
					database.Cell1.Card(t, node, a.String(), "available", "")
					one := []pci.Address{a}
					r.Holders = append(r.Holders, guest.Holder{PID: 2, Command: "qemu-system-x86", UUID: &u, Group: &n, Functions: one, Asked: one})
				}
				r.Guests = append(r.Guests, guest.Guest{PID: 2, Command: "qemu-system-x86", UUID: &u, Asked: []pci.Address{{Bus: 0x84}, {Bus: 0x85}}})
				args = append(args, "--guests", evidence.Write(t, r))
			}
			return args
		},
		"renamed nodes": func(t *testing.T, nodes int) (args []string) {
			for i := range nodes {
				host, u := fmt.Sprintf("gpu%d", i), UUID(i)
				old := database.Cell1.Compute(t, host, ServiceDeleted(time.Hour))
				live := database.Cell1.Compute(t, host, Node(Row{"hypervisor_hostname": host + ".example.org"}))
				database.Cell1.Instance(t, u, host, "active", "")
				database.Cell1.Card(t, old, first, "allocated", u)
				database.Cell1.Card(t, live, first, "available", "")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			counts := map[int]int{}
			for _, nodes := range []int{3, 40} {
				reset(t)
				args := make(t, nodes)
				var by []string
				for _, statement := range logged(t, func() { findings(t, machine(t), args...) }) {
					related := len(args) > 0 && !strings.Contains(statement, "AND NOT ")
					if strings.Contains(statement, "address IN (") && !related {
						by = append(by, statement)
					}
				}
				counts[nodes] = len(by)
				for _, statement := range by {
					// Of so few rows the server would read all.
					forced := strings.Replace(statement, "pci_devices", "pci_devices FORCE INDEX (uniq_pci_devices0compute_node_id0address0deleted)", 1)
					plan := database.find(t, "EXPLAIN "+forced)
					if plan[0][3] != "range" || plan[0][6] != "47" {
						t.Errorf("%d nodes: %s", nodes, plan)
					}
				}
			}
			if counts[3] == 0 || counts[3] != counts[40] {
				t.Errorf("statements by number of nodes: %v", counts)
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

// maxRSS runs gpustack and returns its output and the most memory that it has had, in MiB
// (getrusage(2)). A small process starts it: until a child of vfork(2) executes a program, it has
// the memory of its parent, which Linux counts as its own (fs/exec.c, exec_mmap).
func maxRSS(t testing.TB, root string, args ...string) (out string, most float64) {
	t.Helper()
	const start = `import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)`
	file := filepath.Join(t.TempDir(), "maxrss")
	cmd := exec.Command("python3", append([]string{"-c", start, file, gpustack}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root}
	text, _ := cmd.CombinedOutput() // the callers check the output
	kib, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	n, err := strconv.Atoi(string(kib))
	hosttest.NoError(t, err)
	return string(text), float64(n) / 1024
}
