package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/service"
)

// start starts a server program, which answers at a path when it serves, and stops it when the test
// is done.
func start(t testing.TB, name string, port int, path string, argv ...string) {
	t.Helper()
	s := service.Service{
		Program: service.Program{Name: name, Argv: argv, Env: []string{"PATH=" + os.Getenv("PATH")}, Log: filepath.Join(t.TempDir(), name+".log")},
		Ready: func(ctx context.Context) error {
			_, err := get(ctx, port, path)
			return err
		},
	}
	hosttest.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// get returns what a server on this machine answers.
func get(ctx context.Context, port int, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return string(body), nil
}

// startExporter starts a node_exporter that reads the files in a folder, and returns its port.
func startExporter(t testing.TB, collector string) (port int) {
	t.Helper()
	port = freePorts(t, 1)[0]
	start(t, "node_exporter", port, "/metrics", "prometheus-node-exporter", fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port),
		"--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory="+collector)
	return port
}

func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports, err := service.Ports(n)
	hosttest.NoError(t, err)
	return ports
}

// prometheus is a Prometheus that scrapes hosts and evaluates gpustack.rules every second.
type prometheus struct {
	t    testing.TB
	port int
}

// waits is the time that an alert waits for, which the test shortens to fit.
var waits = regexp.MustCompile(`(?m)^( +for:) .*$`)

// startPrometheus starts one. hosts are the ports of node_exporters by the names of their hosts.
func startPrometheus(t testing.TB, hosts map[string]int) prometheus {
	t.Helper()
	dir := t.TempDir()
	rules := hosttest.Read(t, filepath.Join(examples, "gpustack.rules"))
	if n := len(waits.FindAllString(rules, -1)); n < 5 {
		t.Fatalf("only %d alerts wait", n)
	}
	config := "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [gpustack.rules]\nscrape_configs:\n  - job_name: node\n    static_configs:\n"
	for host, port := range hosts {
		config += fmt.Sprintf("      - targets: ['127.0.0.1:%d']\n        labels: {instance: %s}\n", port, host)
	}
	for name, text := range map[string]string{"gpustack.rules": waits.ReplaceAllString(rules, "$1 2s"), "prometheus.yml": config} {
		hosttest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	p := prometheus{t, freePorts(t, 1)[0]}
	start(t, "prometheus", p.port, "/-/ready", "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", p.port))
	return p
}

// api returns the data of an answer of Prometheus.
func (p prometheus) api(path string, data any) {
	p.t.Helper()
	text, err := get(p.t.Context(), p.port, "/api/v1/"+path)
	if err == nil {
		err = json.Unmarshal([]byte(text), &struct{ Data any }{data})
	}
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", path, err, text)
	}
}

// query returns how many series an expression has.
func (p prometheus) query(expression string) int {
	p.t.Helper()
	var data struct{ Result []any }
	p.api("query?query="+url.QueryEscape(expression), &data)
	return len(data.Result)
}

// metrics returns the names of all metrics that were scraped.
func (p prometheus) metrics() (names []string) {
	p.t.Helper()
	p.api("label/__name__/values", &names)
	return names
}

// alerts returns alerts of a state, each as "host name", sorted.
func (p prometheus) alerts(states ...string) (list []string) {
	p.t.Helper()
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	p.api("alerts", &data)
	for _, a := range data.Alerts {
		if slices.Contains(states, a.State) {
			list = append(list, a.Labels["instance"]+" "+a.Labels["alertname"])
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// until waits for a condition, which is asked every 200 ms.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	err := service.Wait(t.Context(), func(context.Context) (again bool, err error) {
		if holds() {
			return false, nil
		}
		return true, fmt.Errorf("not %s", what)
	})
	hosttest.NoError(t, err)
}
