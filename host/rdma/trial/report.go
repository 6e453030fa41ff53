package trial

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"gpustack/host"
)

// Report is what a program of perftest has measured.
type Report struct {
	Bytes      int `json:"message_bytes"` // the size of a message
	Iterations int `json:"iterations"`    // how many were completed
	// the result of a program for bandwidth, as the side that connects measured it; null for others
	Bandwidth *Bandwidth `json:"bandwidth"`
	// the result of ib_write_lat and ib_send_lat (half of the way there and back) and ib_read_lat (a
	// complete RDMA READ); null for others
	Latency *Latency `json:"latency"`
}

// Bandwidth is what a program for bandwidth has measured.
type Bandwidth struct {
	Average float64  `json:"average_bytes_per_second"` // of all messages
	Peak    *float64 `json:"peak_bytes_per_second"`    // null if perftest did not measure it
	// messages per second; null if perftest did not report it
	MessageRate *float64 `json:"messages_per_second"`
}

// Latency is in microseconds: the time of a message there, as half of the way there and back, or
// of a complete RDMA READ.
type Latency struct {
	Min     float64 `json:"min_us"`                     // the shortest time
	Typical float64 `json:"typical_us"`                 // the median
	Average float64 `json:"average_us"`                 // the mean
	P99     float64 `json:"ninety_ninth_percentile_us"` // the time that one in a hundred exceeds
	Max     float64 `json:"max_us"`                     // the longest time
}

// Errors of reports.
var (
	ErrNoReport  = errors.New("printed no report")
	ErrCut       = errors.New("the report has no figures")
	ErrMalformed = errors.New("the report is malformed")
)

// Columns of reports (perftest, src/perftest_parameters.h, RESULT_FMT and RESULT_FMT_LAT).
const (
	columnBytes      = "#bytes"
	columnIterations = "#iterations"
	columnPeak       = "BW peak"
	columnAverage    = "BW average"
	columnRate       = "MsgRate"
)

// Units of figures: of bandwidths in bytes and of rates of messages, of times, and of counts. Despite
// its name, MB is 2^20 bytes (perftest(1), --report_gbits); later releases call it MiB.
var (
	rates  = map[string]float64{"MB/sec": 1 << 20, "MiB/sec": 1 << 20, "Gb/sec": 1e9 / 8, "Mpps": 1e6}
	times  = map[string]float64{"usec": 1}
	counts = map[string]float64{"": 1}
)

// columnName is the form of a column's name, with its unit.
var columnName = host.LazyRegexp(`#bytes|#iterations|[^\[\]\s][^\[\]]*\[[^\[\]]+\]`)

// Parse reads the output of a program of perftest: after messages and properties of the test, a
// line with the names of columns, possibly more messages, and one line with figures. A report with
// several lines of figures is of another kind of test.
//
// Errors: ErrNoReport, ErrCut, ErrMalformed.
func Parse(stdout []byte) (Report, error) {
	var columns []string
	var row []float64
	for line := range strings.Lines(string(stdout)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, columnBytes) {
			columns, row = columnName().FindAllString(line, -1), nil
			continue
		}
		figures, ok := figures(line)
		if columns == nil || !ok {
			continue
		}
		if row != nil {
			return Report{}, fmt.Errorf("%w: it has several lines of figures", ErrMalformed)
		}
		if row = figures; len(row) != len(columns) {
			return Report{}, fmt.Errorf("%w: %s below %s", ErrMalformed, host.Numbered(len(row), "figure"), host.Numbered(len(columns), "column"))
		}
	}
	switch {
	case columns == nil:
		return Report{}, ErrNoReport
	case row == nil:
		return Report{}, ErrCut
	}
	t := table{map[string]float64{}, map[string]string{}, nil}
	for i, c := range columns {
		name, unit, _ := strings.Cut(strings.TrimSuffix(c, "]"), "[")
		t.figures[name], t.units[name] = row[i], unit
	}
	return t.report()
}

// figures returns the numbers of a line; ok is false of a line that is not one of figures.
func figures(line string) (all []float64, ok bool) {
	for _, word := range strings.Fields(line) {
		n, err := strconv.ParseFloat(strings.Replace(word, "-nan", "nan", 1), 64) // as glibc prints it
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, false
		}
		all = append(all, n)
	}
	return all, len(all) > 1
}

// table is a line of figures by the names of its columns, with their units.
type table struct {
	figures map[string]float64
	units   map[string]string
	err     error
}

// figure returns the figure of a column in one of several units. perftest computes figures by the
// frequency of the CPU, and prints inf or nan if it found none; negative ones are seen after long
// tests (linux-rdma/perftest, issue 82).
func (t *table) figure(name string, units map[string]float64) float64 {
	n, ok := t.figures[name]
	scale, known := units[t.units[name]]
	switch {
	case t.err != nil:
	case !ok:
		t.err = fmt.Errorf("%w: it has no column %q", ErrMalformed, name)
	case !known:
		t.err = fmt.Errorf("%w: %s has the unit %q", ErrMalformed, name, t.units[name])
	case math.IsInf(n*scale, 0) || math.IsNaN(n) || n < 0:
		t.err = fmt.Errorf("%w: %s is %v", ErrMalformed, name, n)
	}
	return n * scale
}

// report returns the report of a table.
func (t *table) report() (Report, error) {
	r := Report{Bytes: int(t.figure(columnBytes, counts)), Iterations: int(t.figure(columnIterations, counts))}
	if _, ok := t.figures[columnAverage]; ok {
		r.Bandwidth = &Bandwidth{Average: t.figure(columnAverage, rates)}
		if peak := t.figure(columnPeak, rates); peak > 0 {
			r.Bandwidth.Peak = &peak
		}
		if _, ok := t.figures[columnRate]; ok {
			r.Bandwidth.MessageRate = new(t.figure(columnRate, rates))
		}
	} else {
		r.Latency = &Latency{
			Min: t.figure("t_min", times), Typical: t.figure("t_typical", times), Average: t.figure("t_avg", times), Max: t.figure("t_max", times),
			P99: t.figure("99% percentile", times),
		}
	}
	if t.err != nil {
		return Report{}, t.err
	}
	return r, nil
}
