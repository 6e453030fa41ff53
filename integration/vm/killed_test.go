package vm

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/integration/vm/agent"
)

var (
	seed   = flag.Uint64("seed", 0, "draw the moments of kills from `SEED` (0: others each time)")
	rounds = flag.Int("rounds", 8, "kill `N` runs")
)

// A handover gives a card to guests, or back to the host.
type handover struct {
	name     string
	argv     []string
	drivers  map[string]string // of all functions, in the end
	override string            // of the card's
	takes    time.Duration     // when nobody kills it
}

// killedAtAnyMoment: of a run of host bind or host release that is killed, the next run
// puts right what is left, says so, and does what it is asked. No function is left
// without a driver that nothing is said of.
//
// The moments are drawn one from each of as many equal parts of a whole run as there are
// rounds, in random order, so that some come while drivers change hands. On a machine
// whose speed varies so much that none does, there are more rounds.
func killedAtAnyMoment(m machine) {
	const card, audio = "0000:02:00.0", "0000:02:00.1"
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	m.t.Logf("-seed %d", from)
	random := rand.New(rand.NewPCG(from, 0))
	m.run("modprobe", "vfio_iommu_type1")
	atFirst := m.drivers()
	bound := maps.Clone(atFirst)
	bound[card], bound[audio] = vfioPCI, vfioPCI
	bind := &handover{name: "bind", argv: []string{"gpustack", "host", "bind", "--live", "--yes", "--device", card, "--allow", audio}, drivers: bound, override: vfioPCI}
	release := &handover{name: "release", argv: []string{"gpustack", "host", "release", "--yes", "--device", card}, drivers: atFirst, override: "(null)"}

	// hand has a handover made, and returns what it says.
	hand := func(h *handover, when string) agent.Reply {
		reply := m.try(h.argv...)
		if reply.Status != 0 {
			m.t.Fatalf("%s: %s: exit status %d\n%s", when, h.name, reply.Status, reply.Stderr)
		}
		if diff := cmp.Diff(h.drivers, m.drivers()); diff != "" {
			m.t.Fatalf("%s: drivers after %s (-want +got):\n%s", when, h.name, diff)
		}
		for _, f := range []string{card, audio} {
			if got := strings.TrimSpace(m.run("cat", "/sys/bus/pci/devices/"+f+"/driver_override")); got != h.override {
				m.t.Errorf("%s: driver_override of %s after %s: %s, want %s", when, f, h.name, got, h.override)
			}
		}
		if h == bind {
			hosttest.EqualIn(m.t, when+": after "+h.name, taken, m.take(card))
		}
		return reply
	}
	for _, h := range []*handover{bind, release} {
		h.takes = hand(h, "at first").Took
	}

	next := release // which was the last
	cutOff, halfWay := 0, 0
	parts := random.Perm(*rounds)
	for i := 0; i < *rounds || cutOff == 0 && i < 2**rounds; i++ {
		h := bind
		if next == bind {
			h = release
		}
		share := (float64(parts[i%*rounds]) + random.Float64()) / float64(*rounds)
		moment := max(time.Duration(share*float64(h.takes)), 1)
		next = []*handover{bind, release}[random.IntN(2)]
		when := fmt.Sprintf("round %d: %s of %.2f s killed after %.2f s", i+1, h.name, h.takes.Seconds(), moment.Seconds())
		reply, err := m.Ask(m.t.Context(), agent.Request{Argv: h.argv, Kill: moment})
		hosttest.NoError(m.t, err)
		switch {
		case reply.Status > 0:
			m.t.Fatalf("%s: exit status %d\n%s", when, reply.Status, reply.Stderr)
		case reply.Status == 0: // it was faster this time
			h.takes = reply.Took
		}
		left, now := m.unfinished(), m.drivers()
		between := !maps.Equal(now, atFirst) && !maps.Equal(now, bound)
		when += fmt.Sprintf(": ended before: %t, an entry is left: %t, half-way: %t, then %s", reply.Status == 0, left, between, next.name)
		m.t.Log(when)
		if left {
			cutOff++
		}
		if between {
			halfWay++
		}
		if between && !left {
			m.t.Errorf("%s: the journal knows nothing of it", when)
		}
		talk := hand(next, when).Stderr
		if said := strings.Contains(talk, "was interrupted"); said != left {
			m.t.Errorf("%s: it says that a run was cut off: %t\n%s", when, said, talk)
		}
	}
	m.t.Logf("%d runs were cut off, %d of them with drivers half-way", cutOff, halfWay)
	if cutOff == 0 {
		m.t.Error("no run was interrupted, which shows nothing")
	}
	hand(release, "in the end")
}

// unfinished tells whether the journal of the machine has an entry that was cut off.
func (m machine) unfinished() bool {
	m.t.Helper()
	var history struct{ Entries []struct{ Status string } }
	hosttest.NoError(m.t, json.Unmarshal([]byte(m.run("gpustack", "history", "-o", "json")), &history))
	for _, e := range history.Entries {
		if e.Status != "done" && e.Status != "undone" {
			return true
		}
	}
	return false
}
