package db

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
)

// openAll connects to the databases of all cells.
func openAll(t *testing.T) *novadb.Databases {
	t.Helper()
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL(apiDatabase), Local: database.URL(cell1Database)})
	hosttest.NoError(t, err)
	t.Cleanup(func() { databases.Close() })
	return databases
}

// judged returns what is found, with the number of rows of each verdict. No row is judged twice.
func judged(t *testing.T, databases *novadb.Databases, o find.Options) (found []string, summary cleanup.Summary, pools cleanup.PoolReport) {
	t.Helper()
	seen := map[string]bool{}
	cells, pools, err := find.RowsAndPools(t.Context(), databases, o, func(f cleanup.Finding) {
		row := fmt.Sprint(f.Cell, " ", f.Device.ID)
		if seen[row] {
			t.Errorf("row %s is judged twice", row)
		}
		seen[row] = true
		if f.Verdict != cleanup.Legitimate {
			// Evidence and reason have ages.
			found = append(found, fmt.Sprintf("%s %s %s %s %q %q %d", row, f.Case, f.Verdict, f.Repair, f.Needs, f.Steps, len(f.Frees)))
		}
	})
	hosttest.NoError(t, err)
	return found, cleanup.Total(cells), pools
}

// random makes a cell of records as Nova writes them, of records in every stage of what Nova does,
// and of records that it does not write.
func random(t *testing.T, r *rand.Rand) {
	t.Helper()
	reset(t)
	cell := database.Cell1
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	orNULL := func(text string) any {
		if text == "NULL" {
			return nil
		}
		return text
	}
	one := func(of int) bool { return r.IntN(of) == 0 }
	var hosts []string
	var nodes []int64
	for i := range 8 {
		host := fmt.Sprintf("gpu%d", i)
		var options []HostOption
		switch {
		case one(8):
			options = append(options, ServiceDeleted(time.Hour))
		case one(8):
			options = append(options, Node(Row{"deleted": nil}))
		case one(8):
			options = append(options, Node(Row{"hypervisor_hostname": host + ".example.org"}))
		}
		hosts, nodes = append(hosts, host), append(nodes, cell.Compute(t, host, options...))
	}
	if one(3) { // a host whose name the database treats as equal to another's
		cell.Compute(t, "GPU7", Service(Row{"host": "other"}), Node(Row{"hypervisor_hostname": "other"}))
	}
	address := 0
	for i := range 120 {
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", r.Uint32(), i)
		k := r.IntN(len(hosts))
		host := hosts[k]
		count := 1 + r.IntN(3)
		row := Row{"uuid": id, "host": host, "node": host, "vm_state": "active", "launched_on": host, "hidden": false}
		extra := Row{"instance_uuid": id, "pci_requests": fmt.Sprintf(`[{"count": %d, "spec": [{"vendor_id": "10de"}], "request_id": "%s"}]`, count, RequestOf(id))}
		migrated, contradicts := false, false
		if one(2) {
			for range 1 + r.IntN(2) {
				switch r.IntN(15) {
				case 0:
					row["vm_state"] = orNULL(pick("building", "resized", "soft-delete", "error", "stopped", "shelved_offloaded", "paused", "Active", "NULL"))
				case 1:
					row["task_state"] = pick("resize_migrating", "deleting", "spawning")
				case 2:
					row["host"] = orNULL(pick("NULL", strings.ToUpper(host), host+" ", hosts[r.IntN(len(hosts))]))
				case 3:
					row["node"] = orNULL(pick("NULL", strings.ToUpper(host), host+".example.org", hosts[r.IntN(len(hosts))]))
				case 4:
					row["deleted"] = []any{itsID{}, nil}[r.IntN(2)]
				case 5:
					extra["pci_requests"] = orNULL(pick("[]", "NULL", "{", `[{"Count": 1}]`, `[{"count": 9, "spec": []}]`, `[{"count": 0}, {"count": 1}]`))
				case 6:
					extra["migration_context"] = pick("{}", `{"nova_object.data": {"migration_id": 3}}`)
				case 7:
					extra["deleted"] = itsID{}
				case 8:
					row["uuid"] = strings.ToUpper(id)
				case 9:
					contradicts = true
				default:
					migrated = true
				}
			}
		}
		switch {
		case !cell.has("instances", "compute_id"):
		case contradicts:
			row["compute_id"] = []any{nil, 9999, nodes[r.IntN(len(nodes))]}[r.IntN(3)]
		default:
			cell.nameByID(t, row, "instances", "host", "node", "compute_id")
		}
		there := !one(30)
		if there {
			cell.Insert(t, "instances", row)
		}
		for range 1 + r.IntN(40)/39 {
			if there && !one(30) {
				cell.Insert(t, "instance_extra", extra)
			}
		}
		for range 1 + r.IntN(3) {
			if !there || !migrated {
				break
			}
			move := Row{"deleted": r.IntN(20) / 19, "source_node": host, "cross_cell_move": one(10)}
			switch r.IntN(30) {
			case 0:
				move["uuid"] = nil
			case 1:
				move["created_at"], move["updated_at"] = nil, nil
			case 2:
				move["updated_at"] = nil
			case 3:
				move["status"] = orNULL(pick("NULL", ""))
			case 4:
				move["source_compute"] = strings.ToUpper(host)
			case 5:
				if cell.has("migrations", "dest_compute_id") {
					move["dest_compute_id"] = []any{nil, 9999, nodes[r.IntN(len(nodes))]}[r.IntN(3)]
				}
			}
			cell.Migration(t, 0, id, pick("migration", "resize", "live-migration", "evacuation"), pick("error", "done", "migrating", "completed", "confirmed", "Completed"),
				host, hosts[r.IntN(len(hosts))], move)
		}
		devices := count
		if one(10) {
			devices++
		}
		for range devices {
			node, status, owner := nodes[k], pick("allocated", "allocated", "allocated", "claimed"), id
			switch r.IntN(40) {
			case 0:
				node = nodes[r.IntN(len(nodes))]
			case 1:
				status = pick("available", "Allocated", "unavailable", "unclaimable", "removed", "Available", "allocated ")
			case 2:
				owner = pick("", strings.ToUpper(id), id+" ", "gone", UUID(1))
			}
			columns := Row{"instance_uuid": orNull(owner)}
			if one(60) {
				columns["deleted"] = itsID{}
			}
			address++
			cell.Card(t, node, fmt.Sprintf("0000:%02x:%02x.0", address/32, address%32), status, id, columns)
		}
		address++
		cell.Card(t, nodes[k], fmt.Sprintf("0000:%02x:%02x.0", address/32, address%32), "available", "")
	}
	// Instances that are ordinary apart from one open migration each.
	node := cell.Compute(t, "plain")
	moves := []Row{
		{}, {"cross_cell_move": true}, {"migration_type": "evacuation", "status": "done"}, {"status": "migrating", "updated_at": nil}, {"source_compute": "PLAIN"},
		{"uuid": nil}, {"uuid": ""}, {"status": nil}, {"status": ""}, {"created_at": nil, "updated_at": nil}, {"updated_at": "0000-00-00 00:00:00"},
	}
	if cell.has("migrations", "dest_compute_id") {
		moves = append(moves, Row{"dest_compute_id": node}, Row{"dest_compute_id": 9999}, Row{"dest_compute_id": nil})
	}
	for i, move := range moves {
		id := UUID(1000 + i)
		cell.Instance(t, id, "plain", "active", "")
		cell.Card(t, node, fmt.Sprintf("0000:ff:%02x.0", i), "allocated", id)
		cell.Migration(t, 0, id, "migration", "error", "plain", pick(hosts...), move)
	}
}

// TestOrdinaryRows: what is found while ordinary rows are only counted is what is found when each
// row is judged, whatever the databases contain. No nova-compute goes down meanwhile, however slow the machine is.
func TestOrdinaryRows(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if seed%2 == 1 {
				addComputeIDs(t)
			}
			r := rand.New(rand.NewPCG(seed, 1))
			random(t, r)
			databases := openAll(t)
			want, all, wantPools := judged(t, databases, find.Options{All: true, Down: time.Hour})
			found, summary, pools := judged(t, databases, find.Options{Down: time.Hour})
			hosttest.EqualIn(t, "(-each judged +found)", want, found)
			hosttest.EqualIn(t, "(-each judged +found)", wantPools, pools, cmpopts.IgnoreUnexported(cleanup.PoolDifference{}))
			if summary != all {
				t.Errorf("%+v, each judged: %+v", summary, all)
			}
			t.Logf("%+v", all)
			if all.Legitimate < 20 || all.Stale < 5 || all.Unknown < 5 {
				t.Errorf("this seed is no test: %+v", all)
			}
		})
	}
}

// TestLargeCell: the whole process on a cell of 100,000 devices, of which few are doubtful.
func TestLargeCell(t *testing.T) {
	w := world{nodes: 10_000, instances: 20_000, migrations: 30_000, stale: 20}
	w.make(t)
	execInCell1(t, w.open(5)...) // which changes nothing for instances that are on their node
	root := machine(t)
	statements := logged(t, func() {
		out, most := maxRSS(t, root, "repair-migration", "--root", root)
		hosttest.Contains(t, fmt.Sprintf("%d stale, 0 suspicious, 0 unknown, 0 busy, %d legitimate", w.stale, w.devices()/5*4-w.stale), out)
		// The binary alone takes about 15 MiB. 100,000 rows of 250 bytes, and as many again that are
		// not collected yet, would take 50.
		if most > 40 {
			t.Errorf("%.0f MiB of memory", most)
		}
	})
	large := []string{"pci_devices", "instances", "instance_extra", "migrations", "compute_nodes", "services"}
	read := map[string]bool{}
	judgements := 0
	for _, statement := range statements {
		if strings.HasPrefix(statement, judgement) {
			judgements++
		}
		for _, row := range database.find(t, "EXPLAIN "+statement) {
			table, extra := row[2], row[9]
			if table == "v" { // as the statement calls it
				table = "services"
			}
			if slices.Contains(large, table) {
				read[table] = true
			}
			if strings.Contains(extra, "filesort") || strings.Contains(extra, "temporary") {
				t.Errorf("%s\n%s", statement, row)
			}
		}
	}
	for _, table := range large {
		if !read[table] {
			t.Errorf("no statement reads %s: %q", table, statements)
		}
	}
	hosttest.EqualIn(t, "judged batches of rows", 1, judgements)
}

// judgement is how the statement begins that reads the instances of rows that are judged.
const judgement = "SELECT i.uuid, COALESCE("

// logged returns the statements that clients send to cell1 during act, and that read its tables.
func logged(t *testing.T, act func()) (statements []string) {
	t.Helper()
	exec := func(statement string) {
		if _, err := database.SQL.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("TRUNCATE TABLE mysql.general_log")
	exec("SET GLOBAL log_output = 'TABLE', GLOBAL general_log = 1")
	defer exec("SET GLOBAL general_log = 0")
	act()
	exec("SET GLOBAL general_log = 0")
	from := regexp.MustCompile(`(?s)^SELECT .*\bFROM (\w+)`)
	for _, row := range database.find(t, "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE command_type IN ('Query', 'Execute') AND user_host LIKE '%"+User+"%'") {
		if found := from.FindStringSubmatch(row[0]); found != nil && slices.ContainsFunc(database.columns[cell1Database][found[1]], func(column) bool { return true }) {
			statements = append(statements, from.ReplaceAllStringFunc(row[0], func(s string) string {
				return strings.TrimSuffix(s, found[1]) + cell1Database + "." + found[1]
			}))
		}
	}
	return statements
}

// TestJudgedOnce: a run judges each row once for its report, once under the locks of a repair, and
// once when nova-compute has had its time. The plan is not a further time.
func TestJudgedOnce(t *testing.T) {
	leftContext(t, "failed")
	root := machine(t)
	times := 0
	for _, statement := range logged(t, func() {
		if stdout, stderr, status := repairMigration(t, root, "--apply", "--yes"); status != 0 {
			t.Errorf("exit status %d, %s%s", status, stdout, stderr)
		}
	}) {
		if strings.HasPrefix(statement, judgement) {
			times++
		}
	}
	// Afterwards no row is doubtful.
	hosttest.EqualIn(t, "times judged", 2, times)
}
