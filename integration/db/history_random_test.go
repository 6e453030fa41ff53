package db

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var (
	histories   = flag.Int("histories", 10, "how many random histories TestHistories plays")
	historySeed = flag.Uint64("history-seed", 31, "with which TestHistories chooses them; 0 for another one each time")
)

// random plays random histories.
func (l *historyLab) random(t *testing.T) {
	seed := *historySeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	progress := map[string]int{}
	begin := time.Now()
	for n := range *histories {
		p := l.play(t, chooseHistory(rand.New(rand.NewPCG(seed, uint64(n)))))
		for what, times := range p.progress {
			progress[what] += times
		}
		if len(p.wrong) > 0 {
			t.Errorf("seed %d, history %d: %v", seed, n, p)
		}
	}
	t.Logf("%d histories of seed %d in %.1f s: %v", *histories, seed, time.Since(begin).Seconds(), progress)
	for _, what := range []string{"a context applied", "online with a host declared off", "repaired reopen", "confirmed in place of a host that is off"} {
		if progress[what] < *histories/rare {
			t.Errorf("%s: %d times in %d histories of seed %d", what, progress[what], *histories, seed)
		}
	}
	for _, what := range []string{"a PF whose family is absent", "online with both reports", "offline on a host declared off", "recovered after a lost COMMIT"} {
		if least := *histories / often; progress[what] < least {
			t.Errorf("%s: %d times in %d histories of seed %d, at least %d expected", what, progress[what], *histories, seed, least)
		}
	}
}

// often is in how many histories each repair that must stay possible is made at least once.
const often = 30

// rare is the same for repairs that fewer histories lead to.
const rare = 300

// chooser chooses the steps of a history, and keeps those that can be done.
type chooser struct {
	*rand.Rand
	w      *truth
	lines  []string
	honest bool // an operator does what docs/repair.md asks for, and nothing else happens
}

func oneOf[T any](c *chooser, list ...T) T { return list[c.IntN(len(list))] }

func (c *chooser) chance(percent int) bool { return c.IntN(100) < percent }

func (c *chooser) host() string { return oneOf(c, "gpu1", "gpu2") }

func (c *chooser) function() string {
	return oneOf(c, "84:00.0", "40:00.0", "40:00.0", "40:00.1", "40:00.1", "40:00.2", "40:00.3")
}

func (c *chooser) guest() int { return 1 + c.IntN(max(1, len(c.w.guests))) }

// try adds a step if it can be done.
func (c *chooser) try(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if c.w.step(line) == nil {
		c.lines = append(c.lines, line)
	}
}

// chooseHistory returns a history that can be played.
func chooseHistory(random *rand.Rand) []string {
	c := &chooser{Rand: random, w: newTruth()}
	c.honest = c.chance(50)
	for _, host := range []string{"gpu1", "gpu2"} {
		if c.chance(20) && !c.honest {
			c.try("clock %s %s", host, oneOf(c, "-9m", "-6m", "6m", "8m", "9m", "25s", "-25s", "90s wide", "-3m wide", "8m wide"))
		}
		if c.chance(30) {
			c.try("vanish %s", host)
		}
		if c.chance(10) && !c.honest {
			c.try("unmapped %s", host)
		}
	}
	c.try("boot %s 84:00.0", c.host()) // a cell without instances is no cell at work
	for range 1 + c.IntN(3) {
		c.try("boot %s %s", c.host(), c.function())
		if c.chance(30) {
			c.try("macvtap %d", len(c.w.guests))
		}
	}
	switch story := c.IntN(10); {
	case story < 6:
		c.died()
		if c.chance(40) && !c.honest {
			c.relative()
			c.step()
		}
		if c.chance(20) { // a host dies for good
			c.try("off %s", c.host())
		}
		c.restart()
	case story < 8:
		host := c.relative()
		if !c.honest {
			c.step()
			host = c.host()
		}
		c.try(oneOf(c, "down %s", "down %s", "off %s"), host)
	default:
		for range 2 + c.IntN(5) {
			c.step()
		}
		c.try(oneOf(c, "down %s", "off %s"), c.host())
	}
	if c.honest {
		c.try("wait 15")
	} else {
		c.try("wait %d", oneOf(c, 2, 4, 12, 12, 15, 15, 15, 15))
	}
	c.evidence()
	c.runs()
	return c.lines
}

// relative is a function of the card with SR-IOV whose row is wrong, and perhaps a guest on another
// one of them. It returns the host.
func (c *chooser) relative() string {
	host := c.host()
	function := func() string { return oneOf(c, "40:00.0", "40:00.0", "40:00.1", "40:00.2", "40:00.3") }
	f := function()
	if c.honest {
		f = "40:00.0"
	}
	c.try("row %s %s %s", host, f, oneOf(c, "allocated 0", "allocated 0", "allocated", "unavailable", "bogus"))
	if f == "40:00.0" && c.chance(50) { // as Nova leaves them when it claims the PF
		for _, vf := range []string{"40:00.1", "40:00.2", "40:00.3"} {
			c.try("row %s %s unavailable", host, vf)
		}
	}
	if c.chance(30) {
		c.try("row %s %s none", host, function())
	}
	if c.chance(60) {
		c.try("stray %d %s %s", c.guest(), host, function())
	}
	return host
}

// died is a move that has come to some status, and what is done about it.
func (c *chooser) died() {
	g, status := c.guest(), oneOf(c, "pre-migrating", "migrating", "migrating", "post-migrating", "finished", "confirming", "error", "error")
	kind := oneOf(c, "migrate", "resize")
	if c.chance(20) && !c.honest {
		kind, status = "live", oneOf(c, "running", "error", "arrived", "completed")
	}
	functions := []string{"84:00.0", "40:00.0", "40:00.1", "40:00.2", "40:00.3"}
	c.Shuffle(len(functions), func(i, j int) { functions[i], functions[j] = functions[j], functions[i] })
	for _, host := range []string{"gpu1", "gpu2"} {
		for _, f := range functions {
			if before := len(c.lines); len(c.w.guests) >= g && c.w.guests[g-1].latest() == nil {
				if c.try("%s %d %s %s %s", kind, g, host, f, status); len(c.lines) > before {
					c.after(g, status)
					return
				}
			}
		}
	}
}

// after is what an operator does about a move, mostly.
func (c *chooser) after(g int, status string) {
	c.try("wait %d", oneOf(c, 1, 5, 20))
	if c.chance(60) || c.honest {
		c.try("die %d", g)
	}
	if status == "confirming" && (c.chance(50) || c.honest) {
		return // no state has to be reset
	}
	if c.chance(90) || c.honest {
		c.try("reset %d", g)
	}
}

// restart starts nova-compute anew, which case C asks for.
func (c *chooser) restart() {
	for _, host := range []string{"gpu1", "gpu2"} {
		if c.chance(90) || c.honest {
			c.try("start %s", host)
		}
	}
}

// step is any step.
func (c *chooser) step() {
	switch c.IntN(16) {
	case 0, 1:
		c.try("boot %s %s", c.host(), c.function())
	case 2:
		c.died()
	case 3:
		c.try("evacuate %d %s %s", c.guest(), c.host(), c.function())
	case 4:
		c.try("die %d", c.guest())
	case 5:
		c.try("reset %d", c.guest())
	case 6:
		c.try("delete %d", c.guest())
	case 7:
		c.try("delete %d stays", c.guest())
	case 8:
		c.try("down %s", c.host())
	case 9:
		c.try("start %s", c.host())
	case 10:
		c.try("off %s", c.host())
	case 11:
		if c.chance(30) {
			c.try("node %s", c.host())
		}
	case 12, 13:
		c.try("stray %d %s %s", c.guest(), c.host(), c.function())
	default:
		status := oneOf(c, "none", "none", "available", "unavailable", "allocated", "allocated", "allocated", "claimed", "bogus")
		owner := ""
		if status == "allocated" || status == "claimed" || c.chance(20) {
			owner = oneOf(c, "", "0", "0", fmt.Sprint(c.guest()))
		}
		c.try("row %s %s %s %s", c.host(), c.function(), status, owner)
	}
	if c.chance(30) {
		c.try("wait %d", oneOf(c, 1, 3, 12))
	}
}

// evidence is what operators have of each host.
func (c *chooser) evidence() {
	for _, h := range c.w.hosts {
		ahead := int(h.ahead.Minutes())
		switch {
		case c.honest && !h.off:
			c.lines = append(c.lines, strings.TrimSpace("report "+h.name+" 0 "+oneOf(c, "", "token:0")))
		case h.off && (c.chance(80) || c.honest):
			c.lines = append(c.lines, "believe "+h.name)
		case h.up() && c.chance(5): // the operator takes it for another host
			c.lines = append(c.lines, "believe "+h.name)
		case h.off || c.chance(8):
		case ahead > 0 && c.chance(60):
			c.lines = append(c.lines, strings.TrimSpace(fmt.Sprintf("report %s %d %s", h.name, ahead, c.token())))
		default:
			c.lines = append(c.lines, strings.TrimSpace(fmt.Sprintf("report %s %d %s", h.name, oneOf(c, 0, 0, 0, 0, 0, 0, 3, 12), c.token())))
		}
	}
}

// token is how a report was made.
func (c *chooser) token() string {
	return oneOf(c, "", "", "", "", "", "token:0", "token:0", "token:0", "token:2", "old")
}

// runs are one or more runs, most of the first ones with a fault.
func (c *chooser) runs() {
	point := func() int { return 1 + c.IntN(9) }
	fault := func() string {
		switch c.IntN(11) {
		case 8:
			return fmt.Sprintf("%d=nova:%s %d=nova:%s", point(), c.host(), point(), c.host())
		case 9:
			return fmt.Sprintf("%d=save:%d", point(), c.guest())
		case 10:
			return oneOf(c, "deadlock=", "post1=lost 6=deadlock:", fmt.Sprintf("%d=deadlock:", point())) + oneOf(c, "1", "2", "3")
		case 0:
			return fmt.Sprintf("post1=lost %d=B", 5+c.IntN(4))
		case 1:
			return fmt.Sprintf("post1=late:%d", oneOf(c, 0, 0, point()))
		case 2:
			return "post1=" + oneOf(c, "lost", "refused") + " post2=" + oneOf(c, "lost", "refused", "late:0")
		case 3:
			return "commit=" + oneOf(c, "lost", "answer")
		case 4:
			return fmt.Sprintf("update=cut %d=B", 5+c.IntN(4))
		case 5:
			return fmt.Sprintf("%d=kill", point())
		case 6:
			return fmt.Sprintf("%d=B", point())
		}
		return oneOf(c, "user=denied", "")
	}
	run := "run A"
	switch {
	case c.honest && c.chance(30):
		run += " commit=" + oneOf(c, "lost", "answer")
	case c.chance(65):
		run += " " + fault()
	}
	c.lines = append(c.lines, strings.TrimSpace(run))
	if c.chance(40) {
		c.lines = append(c.lines, "run "+oneOf(c, "A", "B"))
	}
}
