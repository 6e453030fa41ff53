package monitoring

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// TestMetrics: promtool has nothing to say of what each command writes, healthy and not, and one
// node_exporter accepts the files of all of them together.
func TestMetrics(t *testing.T) {
	compute, cloud := ready(t), controller(t)
	compute.writes(0, "host check")
	rdma := newNode(t)
	run(t, 0, "", gpustack, "host", "unpack", "../../examples/hgx-8xa100.txtar", rdma.root)
	rdma.collector, cloud.collector = compute.collector, compute.collector
	rdma.writes(0, "rdma check")
	cloud.writes(0, "repair-migration")
	check := func(when string) (families int) {
		files, err := filepath.Glob(filepath.Join(compute.collector, "*"))
		if err != nil || len(files) != 3 {
			t.Fatalf("%s: %q, %v", when, files, err)
		}
		for _, file := range files {
			text := hosttest.Read(t, file)
			families += strings.Count(text, "# TYPE ")
			hosttest.EqualIn(t, when+": "+file, "", run(t, 0, text, "promtool", "check", "metrics"))
		}
		return families
	}
	healthy := check("healthy")

	port := startExporter(t, compute.collector)
	scraped := func(when string) {
		t.Helper()
		text, err := get(t.Context(), port, "/metrics")
		hosttest.NoError(t, err)
		if !strings.Contains(text, "\nnode_textfile_scrape_error 0\n") {
			t.Errorf("%s: node_exporter refuses a file", when)
		}
		// Every series of every file is there. node_exporter sorts the labels.
		got := map[string]bool{}
		for line := range strings.Lines(text) {
			got[sorted(line)] = true
		}
		for _, file := range []string{"host-check", "rdma-check", "repair-migration"} {
			for line := range strings.Lines(hosttest.Read(t, filepath.Join(compute.collector, "gpustack-"+file+".prom"))) {
				if !strings.HasPrefix(line, "#") && !got[sorted(line)] {
					t.Errorf("%s: not scraped: %s", when, line)
				}
			}
		}
	}
	scraped("healthy")

	compute.shell("rm sys/bus/pci/devices/0000:84:00.0")
	stale(t)
	compute.writes(2, "host check")
	cloud.writes(2, "repair-migration")
	if faulty := check("faulty"); faulty <= healthy {
		t.Errorf("%d families, and %d before", faulty, healthy)
	}
	scraped("faulty")
	// A Placement that does not answer is an error: the file stays.
	before := hosttest.Read(t, filepath.Join(compute.collector, "gpustack-repair-migration.prom"))
	down := cloud
	down.env = append(slices.Clone(cloud.env), fmt.Sprintf("OS_AUTH_URL=http://127.0.0.1:%d/v3", freePorts(t, 1)[0]))
	down.writes(1, "repair-migration")
	hosttest.EqualIn(t, "after an error", before, hosttest.Read(t, filepath.Join(compute.collector, "gpustack-repair-migration.prom")))
	// What node_exporter refuses is seen: the test would notice it.
	hosttest.NoError(t, os.WriteFile(filepath.Join(compute.collector, "again.prom"),
		[]byte(hosttest.Read(t, filepath.Join(compute.collector, "gpustack-host-check.prom"))+"x y z\n"), 0o644))
	text, err := get(t.Context(), port, "/metrics")
	if err != nil || !strings.Contains(text, "\nnode_textfile_scrape_error 1\n") {
		t.Errorf("node_exporter accepts a malformed file: %v\n%s", err, text)
	}
}

// sorted returns the name and the labels of a sample, sorted.
func sorted(line string) string {
	name, labels, _ := strings.Cut(line[:strings.LastIndex(line, " ")], "{")
	pairs := strings.Split(strings.TrimSuffix(labels, "}"), ",")
	slices.Sort(pairs)
	return name + "{" + strings.Join(pairs, ",")
}

// TestRules: promtool accepts the rules, and each alert fires when it should and not before.
func TestRules(t *testing.T) {
	dir := t.TempDir()
	rules := filepath.Join(dir, "gpustack.rules")
	text := hosttest.Read(t, filepath.Join(examples, "gpustack.rules"))
	test := []string{"test", "rules"}
	var tests string
	for _, name := range []string{"rules_test.yml", "rules_day_test.yml"} {
		file := filepath.Join(dir, name)
		cases := hosttest.Read(t, filepath.Join("testdata", name))
		tests += cases
		test = append(test, file)
		hosttest.NoError(t, os.WriteFile(file, []byte(cases), 0o644))
	}
	write := func(text string) {
		t.Helper()
		hosttest.NoError(t, os.WriteFile(rules, []byte(text), 0o644))
	}
	write(text)
	hosttest.Contains(t, "SUCCESS: ", run(t, 0, "", "promtool", "check", "rules", "--lint-fatal", rules))
	run(t, 0, "", "promtool", test...)
	var names, waiting []string
	for _, alert := range strings.Split(text, "- alert: ")[1:] {
		name, rest, _ := strings.Cut(alert, "\n")
		names = append(names, name)
		if waits.MatchString(rest) {
			waiting = append(waiting, name)
		}
		if n := strings.Count(tests, "alertname: "+name+"\n"); n < 2 {
			t.Errorf("%s is tested %d times", name, n)
		}
	}
	if len(names) < 10 || len(waiting) < 5 || len(waiting) == len(names) {
		t.Fatalf("alerts %q, of which %q wait", names, waiting)
	}
	// With another time to wait, the tests of each alert that waits fail.
	for _, other := range []string{"1s", "2d"} {
		write(waits.ReplaceAllString(text, "$1 "+other))
		out := run(t, 1, "", "promtool", test...)
		for _, name := range names {
			if failed, want := strings.Contains(out, "alertname: "+name+","), slices.Contains(waiting, name); failed != want {
				t.Errorf("for: %s: the test of %s has failed: %v, want %v", other, name, failed, want)
			}
		}
	}
}

// TestAlerts: Prometheus scrapes node_exporters that read what the commands have written. Healthy
// hosts have no alert; a lost GPU, a pending reboot, a stale row, a silent timer, errors of a link
// and metrics that are gone have theirs, and no others; once repaired, they end.
func TestAlerts(t *testing.T) {
	lost, pending, cloud, silent, gone := ready(t), ready(t), controller(t), ready(t), ready(t)
	hosts := map[string]node{"lost": lost, "pending": pending, "controller": cloud, "silent": silent, "gone": gone}
	files, ports := map[string]string{}, map[string]int{}
	for name, n := range hosts {
		command := "host check"
		if name == "controller" {
			command = "repair-migration"
		}
		files[name] = n.writes(0, command)
		ports[name] = startExporter(t, n.collector)
	}
	p := startPrometheus(t, ports)
	until(t, "scraped", func() bool { return p.query("gpustack_last_run_timestamp_seconds") == len(hosts) })
	healthy := time.Now()

	// Alerts that wait would fire 2 s after.
	until(t, "evaluated for 4 s", func() bool { return time.Since(healthy) > 4*time.Second })
	if list := p.alerts("pending", "firing"); list != nil {
		t.Fatalf("alerts of healthy hosts: %q", list)
	}

	lost.shell("rm sys/bus/pci/devices/0000:84:00.0; echo TOTAL_ERR_FATAL 3 >sys/bus/pci/devices/0000:88:00.0/aer_dev_fatal")
	lost.writes(2, "host check")
	pending.shell(`sed -i "s/ intel_iommu=on iommu=pt//" proc/cmdline; echo "btime 1000000000" >proc/stat`)
	pending.writes(2, "host check")
	stale(t)
	cloud.writes(2, "repair-migration")
	silent.silent(files["silent"], 2*time.Hour)
	hosttest.NoError(t, os.Remove(files["gone"]))
	want := []string{"controller GpustackStaleRows", "gone GpustackGone", "lost GpustackFunctionMissing", "lost GpustackNotReady",
		"lost GpustackPCIeErrors", "pending GpustackRebootPending", "silent GpustackSilent"}
	until(t, "all firing", func() bool { return len(p.alerts("firing")) >= len(want) })
	if list := p.alerts("pending", "firing"); !slices.Equal(list, want) {
		t.Errorf("alerts %q, want %q", list, want)
	}
	checkNames(t, p.metrics())
	for _, expression := range expressions(t, hosttest.Read(t, filepath.Join(examples, "dashboard.json"))) {
		if !strings.HasPrefix(expression, "label_values(") { // Grafana's own
			p.query(strings.ReplaceAll(expression, "$instance", ".*")) // fails unless it is an expression
		}
	}

	lost.shell("ln -s ../../../devices/pci0000:80/0000:80:02.0/0000:84:00.0 sys/bus/pci/devices/0000:84:00.0")
	lost.writes(0, "host check")
	pending.shell(`sed -i "s/\$/ intel_iommu=on iommu=pt/" proc/cmdline; echo "btime 9000000000" >proc/stat`)
	pending.writes(0, "host check")
	hosttest.NoError(t, database.Reset(t.Context()))
	cloud.writes(0, "repair-migration")
	silent.writes(0, "host check")
	gone.writes(0, "host check")
	// Errors are remembered for an hour.
	until(t, "all ended but for errors", func() bool { return slices.Equal(p.alerts("pending", "firing"), []string{"lost GpustackPCIeErrors"}) })
}

// checkNames: what rules, dashboard and documentation name is among the metrics that were scraped,
// and the documentation names all of gpustack's.
func checkNames(t *testing.T, scraped []string) {
	t.Helper()
	name := regexp.MustCompile(`\b(gpustack_[a-z0-9_]+|node_textfile_[a-z_]+|up)\b`)
	used := map[string]map[string]bool{}
	for _, file := range []string{"gpustack.rules", "dashboard.json", "../../docs/monitoring.md"} {
		text := hosttest.Read(t, filepath.Join(examples, file))
		used[file] = map[string]bool{}
		switch file {
		case "dashboard.json":
			text = strings.Join(expressions(t, text), "\n")
		case "gpustack.rules":
			text = regexp.MustCompile(`(?m)^ +(summary|description):.*$`).ReplaceAllString(text, "")
		default:
			text = strings.ReplaceAll(text, " up ", " ")
		}
		for _, n := range name.FindAllString(text, -1) {
			used[file][n] = true
			if !slices.Contains(scraped, n) {
				t.Errorf("%s names %s, which nothing has written", file, n)
			}
		}
		if len(used[file]) < 8 {
			t.Errorf("%s names only %q", file, slices.Sorted(maps.Keys(used[file])))
		}
	}
	for _, n := range scraped {
		if strings.HasPrefix(n, "gpustack_") && !used["../../docs/monitoring.md"][n] {
			t.Errorf("docs/monitoring.md does not name %s", n)
		}
	}
}

// expressions returns the expressions of a dashboard's panels and variables.
func expressions(t *testing.T, text string) (list []string) {
	t.Helper()
	var dashboard struct {
		Title, UID string
		Panels     []struct {
			ID          int
			Title, Type string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
		Templating struct{ List []struct{ Definition string } }
	}
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatalf("dashboard.json: %v", err)
	}
	ids := map[int]bool{}
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] || panel.Title == "" || len(panel.Targets) == 0 || panel.GridPos.X+panel.GridPos.W > 24 || panel.GridPos.H == 0 {
			t.Errorf("panel %+v", panel)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			list = append(list, target.Expr)
		}
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Definition != "" { // of no query: the data source
			list = append(list, variable.Definition)
		}
	}
	return list
}
