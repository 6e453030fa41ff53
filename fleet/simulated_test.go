package fleet_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gpustack/fleet"
	"gpustack/fleet/fleettest"
	"gpustack/host/hosttest"
)

var fleets = flag.Int("fleets", 2, "how many fleets TestSimulated finishes")

// simulated is a fleet of which one command finishes wave after wave, while other things happen.
type simulated struct {
	*rand.Rand
	t       *testing.T
	seed    uint64
	now     time.Time
	nodes   []*simulatedNode
	known   map[string]*fleet.Node // documents that were read before, by what they show
	keep    int
	drained int // how often a node was taken out of service
}

// simulatedNode is a node as it is, beside its documents, which may be older.
type simulatedNode struct {
	fleettest.Node
	zone, reason string
	down, away   bool // away: no documents are collected
	drains       int
}

func (n *simulatedNode) schedulable() bool { return n.reason == "" && !n.down }

// documents reads the documents of all nodes. They are read once for nodes that differ in their time alone.
func (s *simulated) documents() fleet.Fleet {
	var f fleet.Fleet
	for _, n := range s.nodes {
		if !n.away {
			n.Time = s.now
		}
		spec := n.Node
		spec.Time = fleettest.Made
		key := fmt.Sprint(spec.Name, spec.Kernel, len(spec.Guests)) // nothing else changes
		if s.known[key] == nil {
			read, err := fleet.Read(source(fleettest.Lines(s.t, spec)))
			hosttest.NoError(s.t, err)
			s.known[key] = read.Nodes[0]
		}
		node := *s.known[key]
		scan, check, guests := *node.Scan, *node.Check, *node.Guests
		scan.Time, check.Time, guests.Time = n.Time, n.Time, n.Time
		node.Scan, node.Check, node.Guests = &scan, &check, &guests
		f.Nodes = append(f.Nodes, &node)
	}
	return f
}

func (s *simulated) zones() fleet.Zones {
	z := fleet.Zones{By: fleet.ByZone}
	for _, n := range s.nodes {
		z.Hosts = append(z.Hosts, fleet.ZoneHost{Name: n.Name, Zones: []string{n.zone}, Down: n.down, Disabled: n.reason != "", Reason: n.reason})
	}
	return z
}

// others is what operators, users and machines do meanwhile.
func (s *simulated) others(quiet bool) {
	for i, n := range s.nodes {
		switch free := len(n.Guests) == 0; {
		case !free && s.IntN(6) == 0:
			n.Guests = nil
		case free && n.schedulable() && !quiet && s.IntN(60) == 0:
			s.guest(i)
		}
		switch {
		case n.reason == "RMA 7" && (quiet || s.IntN(10) == 0), n.reason == foreign && (quiet || s.IntN(10) == 0):
			n.reason = ""
		case n.reason == "" && !quiet && s.IntN(200) == 0:
			n.reason = []string{"RMA 7", foreign}[s.IntN(2)]
		}
		n.down = !quiet && (n.down && s.IntN(4) > 0 || s.IntN(300) == 0)
		n.away = !quiet && (n.away && s.IntN(3) > 0 || s.IntN(100) == 0)
	}
}

func (s *simulated) guest(i int) {
	s.nodes[i].Guests = []fleettest.Guest{{UUID: fmt.Sprintf("6f3e8a52-0d0c-4c3e-9d3b-%012x", i), Running: true, GPUs: []string{"17:00"}}}
}

// free returns how many GPUs of a zone are schedulable.
func (s *simulated) free(zone string) (gpus int) {
	for _, n := range s.nodes {
		if n.zone == zone && n.schedulable() && !n.away {
			gpus += len(n.GPUs)
			if len(n.Guests) > 0 {
				gpus--
			}
		}
	}
	return gpus
}

// carryOut carries out a wave as the role does: all nodes are disabled, then each is changed and
// enabled. A node that has got a guest since stays disabled, and so do those behind an interruption.
func (s *simulated) carryOut(w fleet.Wave) {
	byName := map[string]*simulatedNode{}
	for _, n := range s.nodes {
		byName[n.Name] = n
	}
	for _, node := range w.Nodes {
		n := byName[node.Name]
		switch {
		case n.reason == own && w.Kind != fleet.Interrupted, n.reason != own && w.Kind == fleet.Interrupted:
			s.t.Fatalf("seed %d: %s is disabled for %q, in a wave of kind %s", s.seed, n.Name, n.reason, w.Kind)
		case n.reason != "" && n.reason != own, n.down, n.away, len(n.Guests) > 0, n.reason == "" && n.Kernel == "new":
			s.t.Fatalf("seed %d: %+v is in a wave", s.seed, n)
		case n.reason == "":
			n.drains++
			s.drained++
		}
		n.reason = own
	}
	for _, zone := range []string{"az0", "az1", "az2"} {
		if left := s.free(zone); w.Kind != fleet.Interrupted && left < s.keep {
			s.t.Errorf("seed %d: %d GPUs are left in %s, %d are to be kept", s.seed, left, zone, s.keep)
		}
	}
	for i, node := range w.Nodes {
		n := byName[node.Name]
		if s.IntN(60) == 0 { // scheduled before the service was disabled
			s.guest(slices.Index(s.nodes, n))
			continue
		}
		if s.IntN(40) == 0 {
			n.Kernel = []string{"old", "new"}[s.IntN(2)] // the run ends before or behind the reboot
			if s.IntN(2) == 0 {
				continue
			}
			return
		}
		n.Kernel, n.reason = "new", ""
		if i == len(w.Nodes)-1 {
			return
		}
	}
}

// TestSimulated: a fleet of 800 nodes in three zones is finished by one plan after another, while guests
// come and go, others disable hosts, nodes are down, documents are missing, and runs are interrupted. No
// plan takes out a node that others hold, that has guests or is done, or more than may be; none is drained
// twice.
func TestSimulated(t *testing.T) {
	known := map[string]*fleet.Node{}
	for seed := range uint64(*fleets) {
		s := simulated{Rand: rand.New(rand.NewPCG(seed, 59)), t: t, seed: seed, now: fleettest.Made, known: known, keep: 40}
		for i := range 800 {
			n := fleettest.New(fmt.Sprintf("gpu%03d", i), []int{2, 4, 8}[i%3])
			n.Kernel = "old"
			s.nodes = append(s.nodes, &simulatedNode{Node: n, zone: fmt.Sprintf("az%d", i/3%3)})
		}
		waves, waits, step := 0, 0, 0
		for done := false; !done; step++ {
			if step > 400 {
				t.Fatalf("seed %d: not done after %d steps", seed, step)
			}
			s.now = s.now.Add(2 * time.Hour)
			s.others(step > 60)
			p, err := s.documents().Plan(fleet.PlanOptions{Zones: s.zones(), Map: "FILE", Goal: fleet.Goal{Kernel: "new"}, Keep: fleet.Keep{Number: s.keep},
				MaxAge: time.Hour, Now: s.now, Own: isOwn})
			switch {
			case err != nil && !errors.Is(err, fleet.ErrKeep):
				t.Fatal(err)
			case err != nil || len(p.Waves) == 0:
				waits++
				done = err == nil && p.Done == len(s.nodes)
				continue
			}
			waves++
			if n := len(p.Waves[0].Nodes); len(p.Waves) > 1 || n > 40 {
				t.Fatalf("seed %d: %d waves, with %d nodes", seed, len(p.Waves), n)
			}
			s.carryOut(p.Waves[0])
		}
		for _, n := range s.nodes {
			if n.drains != 1 || n.Kernel != "new" || n.reason != "" {
				t.Errorf("seed %d: %s was drained %d times: %+v", seed, n.Name, n.drains, n)
			}
		}
		t.Logf("seed %d: %d steps, %d waves, %d without one", seed, step, waves, waits)
	}
}
