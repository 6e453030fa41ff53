// Package race runs programs that do the same job side by side, for benchmarks of
// whole processes.
package race

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// Peer is a program in a race.
type Peer struct {
	Name string
	Argv []string
	Env  []string                 // beside this process's own
	Each func(round int) []string // argv of a round, where Argv is nil
}

// Run runs peers in turn, the last being ours, and reports the median time of each,
// the median ratio of ours to each other's, and the processor's time that ours takes.
func Run(b *testing.B, peers ...Peer) {
	times := make([][]float64, len(peers))
	var cpu []float64
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
			if i == len(peers)-1 {
				cpu = append(cpu, milliseconds(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()))
			}
		}
	}
	ours := times[len(peers)-1]
	for i, p := range peers {
		if i < len(peers)-1 {
			ratios := make([]float64, len(ours))
			for round := range ours {
				ratios[round] = ours[round] / times[i][round]
			}
			b.ReportMetric(median(ratios), "of-"+p.Name)
		}
		b.ReportMetric(median(times[i]), p.Name+"-ms")
	}
	b.ReportMetric(median(cpu), "own-cpu-ms")
	b.ReportMetric(0, "ns/op") // of all peers together, it says nothing
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
