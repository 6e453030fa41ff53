package metrics_test

import (
	"strings"
	"testing"
	"time"

	"gpustack/host/metrics"
)

var (
	rows  = metrics.Family{Name: "gpustack_rows", Type: metrics.Gauge, Help: `Rows \ by` + "\nhost.", Labels: []string{"cell", "host"}}
	total = metrics.Family{Name: "gpustack_errors_total", Type: metrics.Counter, Help: "Errors."}
	state = metrics.Family{Name: "gpustack_state", Type: metrics.Gauge, Help: "State.", Labels: []string{"command", "state"}}
)

// TestEncode: families are in the order of their names, samples as they were given, and values of
// labels are escaped.
func TestEncode(t *testing.T) {
	t.Parallel()
	samples := []metrics.Sample{rows.Of(2, "cell1", "gpu\"1\"\\\n"), total.Of(1<<53 + 0.0), rows.Of(0.5, "", "b\xffc")}
	samples = append(samples, metrics.Set(state, []string{"on", "off"}, "off", "x")...)
	samples = append(samples, metrics.OfRun("host check", "v1", time.Unix(1764253264, 999))...)
	const want = `# HELP gpustack_build_info The version of gpustack that wrote the metrics of a command; always 1.
# TYPE gpustack_build_info gauge
gpustack_build_info{command="host check",version="v1"} 1
# HELP gpustack_errors_total Errors.
# TYPE gpustack_errors_total counter
gpustack_errors_total 9007199254740992
# HELP gpustack_last_run_timestamp_seconds When the command last completed, in seconds since 1970.
# TYPE gpustack_last_run_timestamp_seconds gauge
gpustack_last_run_timestamp_seconds{command="host check"} 1764253264
# HELP gpustack_rows Rows \\ by\nhost.
# TYPE gpustack_rows gauge
gpustack_rows{cell="cell1",host="gpu\"1\"\\\n"} 2
gpustack_rows{cell="",host="b` + "\uFFFD" + `c"} 0.5
# HELP gpustack_state State.
# TYPE gpustack_state gauge
gpustack_state{command="x",state="on"} 0
gpustack_state{command="x",state="off"} 1
`
	got, err := metrics.Encode(samples)
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestEncodeRefuses: what node_exporter would refuse is not written.
func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	other := total
	other.Help = "Other errors."
	for want, samples := range map[string][]metrics.Sample{
		`metric gpustack_rows{cell="a",host="b"}: two samples`:      {rows.Of(1, "a", "b"), total.Of(1), rows.Of(2, "a", "b")},
		"metric gpustack_rows: 1 values for the labels cell, host":  {rows.Of(1, "a")},
		"metric gpustack_errors_total: two families have this name": {total.Of(1), other.Of(2)},
	} {
		if got, err := metrics.Encode(samples); err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%v, want %s\n%s", err, want, got)
		}
	}
}
