package containertest

import (
	"math"
	"slices"
)

// Compared is one measurement in both places.
type Compared struct {
	Name            string
	Unit            string // "MB/s" (10^6 bytes; of a command, as it counts them), "GFLOP/s" or "s"
	Host, Container Measured
}

// Measured are several runs of one measurement.
type Measured struct {
	Median float64
	Spread float64 // the largest minus the smallest, in per cent of the median
}

// Difference returns by how many per cent of the host's median the container's is larger.
func (c Compared) Difference() float64 { return (c.Container.Median/c.Host.Median - 1) * 100 }

// Elapsed is the measurement that every program has: how long it takes, in a container with its
// start.
const Elapsed = "elapsed"

// compare returns the measurements of which all runs have one, in the order of the first run.
func compare(runs []Run) (compared []Compared) {
	names, values := []string{}, map[string]map[Place][]float64{}
	units := map[string]string{}
	for _, r := range runs {
		for _, m := range r.measurements() {
			if values[m.name] == nil {
				names = append(names, m.name)
				values[m.name], units[m.name] = map[Place][]float64{}, m.unit
			}
			values[m.name][r.Place] = append(values[m.name][r.Place], m.value)
		}
	}
	for _, name := range names {
		host, container := values[name][OnHost], values[name][InContainer]
		// A program that measures 0 has measured nothing.
		if len(host)+len(container) == len(runs) && len(host) == len(container) && measured(host).Median > 0 {
			compared = append(compared, Compared{name, units[name], measured(host), measured(container)})
		}
	}
	return compared
}

type measurement struct {
	name, unit string
	value      float64
}

// measurements returns what a run has measured.
func (r Run) measurements() (all []measurement) {
	if r.Answer != nil {
		for _, g := range r.Answer.GPUs {
			if g.ToDevice > 0 && g.ToHost > 0 {
				all = append(all, measurement{"host to device, pinned", "MB/s", g.ToDevice}, measurement{"device to host, pinned", "MB/s", g.ToHost})
				break // the first one, which a container with one GPU and the host both have
			}
		}
	}
	for _, p := range r.Programs {
		for _, f := range p.Figures {
			switch name := p.Name + ": " + f.Name; {
			case f.MBps != nil:
				all = append(all, measurement{name, "MB/s", *f.MBps})
			case f.GFLOPs != nil:
				all = append(all, measurement{name, "GFLOP/s", *f.GFLOPs})
			}
		}
	}
	return append(all, measurement{Elapsed, "s", r.Seconds})
}

// measured returns the median of runs and their spread.
func measured(values []float64) Measured {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	median := (values[(n-1)/2] + values[n/2]) / 2
	spread := 0.0
	if median != 0 {
		spread = math.Abs((values[n-1] - values[0]) / median * 100)
	}
	return Measured{median, spread}
}
