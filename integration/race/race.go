// Package race runs programs that do the same job side by side, for benchmarks of
// whole processes.
package race

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// Peer is a program in a race.
type Peer struct {
	Name string
	Argv []string
	Env  []string                 // beside this process's own
	Each func(round int) []string // argv of a round, where Argv is nil
}

// Run runs peers in turn, the last being ours, and reports the median time of each,
// the median ratio of ours to each other's, in time that passed and in the processor's
// time, the processor's time that ours takes, its largest size in memory, which is at least that of
// this process, and the machine's load at the end.
func Run(b *testing.B, peers ...Peer) {
	times := make([][]float64, len(peers))
	cpu := make([][]float64, len(peers))
	var size float64 // of ours, in MiB
	for b.Loop() {
		for i, p := range peers {
			argv := p.Argv
			if p.Each != nil {
				argv = p.Each(len(times[i]))
			}
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), p.Env...)
			start := time.Now()
			if out, err := cmd.Output(); err != nil {
				b.Fatalf("%q: %v\n%s", argv, err, out)
			}
			times[i] = append(times[i], milliseconds(time.Since(start)))
			cpu[i] = append(cpu[i], milliseconds(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()))
			if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && i == len(peers)-1 {
				size = max(size, float64(usage.Maxrss)/1024)
			}
		}
	}
	last := len(peers) - 1
	for i, p := range peers {
		if i < last {
			b.ReportMetric(ratio(times[last], times[i]), "of-"+p.Name)
			b.ReportMetric(ratio(cpu[last], cpu[i]), "cpu-of-"+p.Name)
		}
		b.ReportMetric(median(times[i]), p.Name+"-ms")
	}
	b.ReportMetric(median(cpu[last]), "own-cpu-ms")
	b.ReportMetric(size, "own-MiB")
	b.ReportMetric(load(b), "load")
	b.ReportMetric(0, "ns/op") // of all peers together, it says nothing
}

// ratio returns the median ratio of ours to theirs, round by round.
func ratio(ours, theirs []float64) float64 {
	ratios := make([]float64, len(ours))
	for round := range ours {
		ratios[round] = ours[round] / theirs[round]
	}
	return median(ratios)
}

// load returns the number of processes that ran or waited for the processor in the last minute
// (proc_loadavg(5)).
func load(b *testing.B) float64 {
	text := hosttest.Read(b, "/proc/loadavg")
	first, _, _ := strings.Cut(text, " ")
	load, err := strconv.ParseFloat(first, 64)
	hosttest.NoError(b, err)
	return load
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
