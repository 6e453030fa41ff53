package trial_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/rdma/trial"
)

// shown returns a report in one line.
func shown(r trial.Report, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case r.Bandwidth != nil:
		line := fmt.Sprintf("%d x %d: %.0f B/s", r.Iterations, r.Bytes, r.Bandwidth.Average)
		if r.Bandwidth.Peak != nil {
			line += fmt.Sprintf(", peak %.0f", *r.Bandwidth.Peak)
		}
		if r.Bandwidth.MessageRate != nil {
			line += fmt.Sprintf(", %.0f messages/s", *r.Bandwidth.MessageRate)
		}
		return line
	}
	l := r.Latency
	return fmt.Sprintf("%d x %d: %.2f < %.2f (%.2f) < %.2f < %.2f us", r.Iterations, r.Bytes, l.Min, l.Typical, l.Average, l.P99, l.Max)
}

// TestParseRecorded: what real programs have printed; testdata names the sources.
func TestParseRecorded(t *testing.T) {
	t.Parallel()
	wants := map[string]string{
		"connectx7-infinitely.txt":  "the report is malformed: it has several lines of figures",
		"connectx7-once.txt":        "882805 x 65536: 11571250000 B/s, 176554 messages/s",
		"connectx3-cut.txt":         "the report has no figures",
		"debian12-ib_write_bw.txt":  "20 x 65536: 23026729 B/s, peak 59118715, 351 messages/s",
		"debian12-ib_read_bw.txt":   "20 x 65536: 16273900 B/s, peak 50153390, 248 messages/s",
		"debian12-ib_write_lat.txt": "20 x 2: 3717.42 < 6203.03 (17701.62) < 129942.54 < 129942.54 us",
		"debian12-ib_read_lat.txt":  "20 x 2: 121.30 < 139.65 (159.32) < 438.83 < 438.83 us",
		"frequency.txt":             "5000 x 65536: 12298192159 B/s, 187656 messages/s",
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != len(wants) {
		t.Errorf("%v, %v", files, err)
	}
	for _, file := range files {
		text := hosttest.Read(t, file)
		hosttest.EqualIn(t, file, wants[filepath.Base(file)], shown(trial.Parse([]byte(text))))
	}
}

const (
	bandwidthColumns = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
	latencyColumns   = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% " +
		"percentile[usec]   99.9% percentile[usec] \n"
	line = "---------------------------------------------------------------------------------------\n"
)

// TestParse: reports in the formats of perftest's source, and those that are none.
func TestParse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		kind error
		want string
	}{
		"bandwidth": {line + bandwidthColumns + " 65536      5000             11.50              10.25\t\t   0.000164\n" + line, nil,
			"5000 x 65536: 10747904 B/s, peak 12058624, 164 messages/s"},
		"MiB": {strings.ReplaceAll(bandwidthColumns, "MB", "MiB") + " 65536 100 0.00 1.00 0.0\n", nil, "100 x 65536: 1048576 B/s, 0 messages/s"},
		"Gb": {strings.ReplaceAll(bandwidthColumns, "MB", "Gb") + " 65536 100 2.00 1.00 0.0\n", nil,
			"100 x 65536: 125000000 B/s, peak 250000000, 0 messages/s"},
		"latency": {latencyColumns + " 2       1000          0.88           6.84         0.98   \t       1.03     \t0.20\t\t1.21 \t\t5.42\n", nil,
			"1000 x 2: 0.88 < 0.98 (1.03) < 1.21 < 6.84 us"},
		"more columns": {strings.TrimSuffix(bandwidthColumns, "\n") + "    CPU_Util[%]\n 65536 100 2.00 1.00 0.1\t    99.01\n", nil,
			"100 x 65536: 1048576 B/s, peak 2097152, 100000 messages/s"},
		"nothing":          {"", trial.ErrNoReport, ""},
		"figures alone":    {" 65536 100 2.00 1.00 0.1\n", trial.ErrNoReport, ""},
		"columns alone":    {bandwidthColumns, trial.ErrCut, ""},
		"cut columns":      {bandwidthColumns[:30], trial.ErrCut, ""},
		"cut figures":      {bandwidthColumns + " 65536      5000         11", trial.ErrMalformed, ""},
		"twice":            {bandwidthColumns + " 65536 100 2.00 1.00 0.1\n 65536 100 2.00 1.00 0.1\n", trial.ErrMalformed, ""},
		"cycles":           {strings.ReplaceAll(latencyColumns, "usec", "cycles") + " 2 1000 1 2 3 4 5 6 7\n", trial.ErrMalformed, ""},
		"another unit":     {strings.ReplaceAll(bandwidthColumns, "MB", "kB") + " 65536 100 2.00 1.00 0.1\n", trial.ErrMalformed, ""},
		"infinite":         {bandwidthColumns + " 65536 100 inf inf inf\n", trial.ErrMalformed, ""},
		"not a number":     {latencyColumns + " 2 1000 -nan nan nan nan nan nan nan\n", trial.ErrMalformed, ""},
		"negative":         {bandwidthColumns + " 65536 100 0.00 -12.00 0.1\n", trial.ErrMalformed, ""},
		"of a duration":    {" #bytes        #iterations       t_avg[usec]    tps average\n 2 1000 1.00\n", trial.ErrMalformed, ""},
		"rate of messages": {" #bytes #iterations MsgRate[Mpps]\n 2 1000 1.00\n", trial.ErrMalformed, ""},
	} {
		r, err := trial.Parse([]byte(test.text))
		if !errors.Is(err, test.kind) || test.kind == nil && shown(r, err) != test.want {
			t.Errorf("%s: %s, want %v%s", name, shown(r, err), test.kind, test.want)
		}
	}
}

// FuzzParse: no output leads to a panic, or to figures that cannot have been measured.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	hosttest.NoError(f, err)
	for _, file := range files {
		text := hosttest.Read(f, file)
		f.Add([]byte(text))
	}
	f.Add([]byte(latencyColumns + " 2       1000          0.88           6.84         0.98   \t       1.03     \t0.20\t\t1.21 \t\t5.42\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := trial.Parse(text)
		if err != nil {
			if r != (trial.Report{}) {
				t.Errorf("%+v with %v", r, err)
			}
			return
		}
		var figures []float64
		switch {
		case (r.Bandwidth == nil) == (r.Latency == nil):
			t.Fatalf("%+v", r)
		case r.Bandwidth != nil:
			figures = []float64{r.Bandwidth.Average}
			if r.Bandwidth.MessageRate != nil {
				figures = append(figures, *r.Bandwidth.MessageRate)
			}
			if r.Bandwidth.Peak != nil {
				figures = append(figures, *r.Bandwidth.Peak)
			}
		default:
			figures = []float64{r.Latency.Min, r.Latency.Typical, r.Latency.Average, r.Latency.P99, r.Latency.Max}
		}
		for _, n := range append(figures, float64(r.Bytes), float64(r.Iterations)) {
			if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
				t.Errorf("%+v", r)
			}
		}
	})
}
