package containertest

import (
	"testing"

	"gpustack/host/cuda"
	"gpustack/host/cuda/answer"
)

// TestCompare: medians of the runs in each place, what differs, and the spread. A measurement that
// a run lacks is left out.
func TestCompare(t *testing.T) {
	gflops := 2000.0
	var runs []Run
	for i := range 5 {
		for _, p := range []Place{InContainer, OnHost} {
			rate := 100 + float64(i)
			r := Run{Place: p, Seconds: 1, Answer: &answer.Answer{GPUs: []answer.GPU{{ToDevice: rate, ToHost: 50}}}}
			if p == InContainer {
				r.Answer.GPUs[0].ToHost, r.Seconds = 49, 1.5
			}
			if i < 4 {
				r.Programs = []cuda.Program{{Name: "nbody", Figures: []cuda.Figure{{Name: "single precision", GFLOPs: &gflops}}}}
			}
			runs = append(runs, r)
		}
	}
	got := compare(runs)
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []Compared{
		{"host to device, pinned", "MB/s", Measured{102, 400.0 / 102}, Measured{102, 400.0 / 102}},
		{"device to host, pinned", "MB/s", Measured{50, 0}, Measured{49, 0}},
		{Elapsed, "s", Measured{1, 0}, Measured{1.5, 0}},
	} {
		if got[i] != want {
			t.Errorf("%+v, want %+v", got[i], want)
		}
	}
	if d := got[1].Difference(); d > -1.99 || d < -2.01 {
		t.Errorf("difference %g", d)
	}
}
