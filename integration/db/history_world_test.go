package db

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host/guest"
	"gpustack/host/pci"
	"gpustack/integration/evidence"
)

// truth is a simulated cloud: what its rows and Placement say, and what is so. It has two hosts
// with the same functions each: a card without SR-IOV, and one with a PF, two VFs and a vdpa
// device. Times are minutes since the world began.
type truth struct {
	minute int
	hosts  []*realHost
	guests []*realGuest
	uses   []*use
	nodes  []int64 // ids in compute_nodes, once the rows are inserted
	now    time.Time
}

type realHost struct {
	name      string
	silent    int           // since when nova-compute has not run; -1: it runs
	started   int           // when it was started
	off       bool          // the machine does not run
	deleted   bool          // the rows of its service and its node are deleted
	ahead     time.Duration // how far its clock is ahead of the database's
	functions []*function
}

type function struct {
	address, kind, parent string
	row                   *functionRow // nil: there is none
}

// functionRow is a row of pci_devices.
type functionRow struct {
	status  string
	owner   string // an instance's uuid, or ""
	changed int
}

// use is a guest's process on a host, and the function that it uses there.
type use struct {
	guest       *realGuest
	host        *realHost
	function    *function
	from, until int // minutes; until is -1 while it goes on
	defined     bool
}

type realGuest struct {
	uuid     string
	host     *realHost // by its row
	vm, task string
	deleted  bool
	changed  int
	kind     string // of the function that it asks for
	moves    []*realMove
	context  *realMove
	holds    []string // hosts whose providers it holds allocations of
}

type realMove struct {
	uuid, kind, status string
	from, to           *realHost
	old, new           *function
	changed            int
	thread             *realHost // whose nova-compute carries it on; nil: none
	holds              []string
}

func newTruth() *truth {
	w := &truth{}
	for _, name := range []string{"gpu1", "gpu2"} {
		h := &realHost{name: name, silent: -1, started: -1000}
		for _, f := range []struct{ address, kind, parent string }{
			{"0000:84:00.0", "type-PCI", ""},
			{"0000:40:00.0", "type-PF", ""},
			{"0000:40:00.1", "type-VF", "0000:40:00.0"},
			{"0000:40:00.2", "type-VF", "0000:40:00.0"},
			{"0000:40:00.3", "vdpa", "0000:40:00.0"},
		} {
			h.functions = append(h.functions, &function{f.address, f.kind, f.parent, &functionRow{status: "available", changed: -1000}})
		}
		w.hosts = append(w.hosts, h)
	}
	return w
}

func (w *truth) host(name string) (*realHost, error) {
	for _, h := range w.hosts {
		if h.name == name {
			return h, nil
		}
	}
	return nil, fmt.Errorf("no host %s", name)
}

// function finds one by the end of its address: 84:00.0, or 40:00.1.
func (h *realHost) function(address string) (*function, error) {
	for _, f := range h.functions {
		if strings.HasSuffix(f.address, address) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("%s has no function %s", h.name, address)
}

// guest finds one by its number, from 1.
func (w *truth) guest(n int) (*realGuest, error) {
	if n < 1 || n > len(w.guests) {
		return nil, fmt.Errorf("no guest %d", n)
	}
	return w.guests[n-1], nil
}

// up returns whether nova-compute reports.
func (h *realHost) up() bool { return h.silent < 0 }

// family returns the functions that a guest which uses f excludes others from: its PF, or its VFs.
func (h *realHost) family(f *function) (list []*function) {
	for _, other := range h.functions {
		if other.address == f.parent || other.parent == f.address {
			list = append(list, other)
		}
	}
	return list
}

// usedBy returns the guest that uses a function now, nil for none.
func (w *truth) usedBy(h *realHost, f *function) *realGuest {
	for _, u := range w.uses {
		if u.host == h && u.function == f && u.until < 0 && !u.defined {
			return u.guest
		}
	}
	return nil
}

// inGuest returns why a function must not be offered: a guest uses it, its PF, or one of its VFs,
// or a thread is about to start a guest on it. "" if it may be offered.
func (w *truth) inGuest(h *realHost, f *function) string {
	for _, x := range append(h.family(f), f) {
		if g := w.usedBy(h, x); g != nil {
			return fmt.Sprintf("guest %s uses %s of %s", g.uuid[:8], x.address, h.name)
		}
	}
	for _, g := range w.guests {
		for _, m := range g.moves {
			if m.thread != nil && (m.from == h && m.old == f || m.to == h && m.new == f) {
				return fmt.Sprintf("a thread on %s carries on the %s of guest %s, with %s of %s", m.thread.name, m.kind, g.uuid[:8], f.address, h.name)
			}
		}
	}
	return ""
}

// start has a guest's process use a function from now on.
func (w *truth) begin(g *realGuest, h *realHost, f *function) {
	w.uses = append(w.uses, &use{guest: g, host: h, function: f, from: w.minute, until: -1})
}

// end ends what a guest uses on a host, nil for all hosts.
func (w *truth) end(g *realGuest, h *realHost) {
	for _, u := range w.uses {
		if u.guest == g && (h == nil || u.host == h) && u.until < 0 {
			u.until = w.minute
		}
	}
}

// define leaves a guest's domain defined on a host, not running.
func (w *truth) define(g *realGuest, h *realHost, f *function) {
	w.uses = append(w.uses, &use{guest: g, host: h, function: f, from: w.minute, until: -1, defined: true})
}

// claim does to rows what PciDevice.claim and allocate do; false if Nova would refuse.
func (w *truth) claim(h *realHost, f *function, owner string) bool {
	if f.row == nil || f.row.status != "available" || h.deleted {
		return false
	}
	for _, x := range h.family(f) {
		if x.row != nil && (x.row.status == "allocated" || x.row.status == "claimed") {
			return false
		}
	}
	for _, x := range h.family(f) {
		if x.row != nil {
			w.set(x, "unavailable", "")
		}
	}
	w.set(f, "allocated", owner)
	return true
}

// free does to rows what PciDevice.free does.
func (w *truth) free(h *realHost, f *function) {
	w.set(f, "available", "")
	for _, x := range h.family(f) {
		if x.row == nil {
			continue
		}
		if f.kind == "type-PF" || !slices.ContainsFunc(h.family(x), func(y *function) bool { return y.row != nil && y.row.status != "available" }) {
			w.set(x, "available", "")
		}
	}
}

func (w *truth) set(f *function, status, owner string) {
	f.row = &functionRow{status, owner, w.minute}
}

// freeOf frees the rows of a guest on a host, nil for all hosts whose nova-compute runs.
func (w *truth) freeOf(g *realGuest, host *realHost) {
	for _, h := range w.hosts {
		for _, f := range h.functions {
			if f.row != nil && f.row.owner == g.uuid && (host == h || host == nil && h.up()) {
				w.free(h, f)
			}
		}
	}
}

func (m *realMove) open() bool {
	return !slices.Contains([]string{"confirmed", "reverted", "failed", "completed", "cancelled", "done"}, m.status)
}

// keeps returns whether nova-compute keeps the devices of a guest on a host (clean_usage).
func (g *realGuest) keeps(h *realHost) bool {
	return !g.deleted && g.host == h || slices.ContainsFunc(g.moves, func(m *realMove) bool { return m.open() && (m.from == h || m.to == h) })
}

// at is the time of a minute by the database's clock.
func (w *truth) at(minute int) time.Time {
	return w.now.Add(time.Duration(minute-w.minute) * time.Minute)
}

// report is what gpustack host guests printed on a host, some minutes ago.
func (w *truth) report(h *realHost, ago int) guest.Report {
	minute := w.minute - ago
	at := func(minute int) time.Time { return w.at(minute).Add(h.ahead) }
	return evidence.Report(h.name, func(r *guest.Report) {
		r.Collected = at(minute)
		if ago == 0 {
			r.Collected = time.Now().Add(h.ahead)
		}
		booted, started := at(-100_000), at(h.started)
		r.Booted, r.NovaCompute[0].Started = &booted, &started
		if !h.up() && h.silent <= minute {
			r.NovaCompute = []guest.NovaCompute{}
		}
		for n, u := range w.uses {
			if u.host != h || u.from > minute || u.until >= 0 && u.until <= minute {
				continue
			}
			address, err := pci.ParseAddress(u.function.address)
			if err != nil {
				panic(err)
			}
			functions := []pci.Address{address}
			if u.function.kind == "vdpa" {
				functions = []pci.Address{} // no VFIO: neither QEMU's arguments nor a group name it
			}
			domain := guest.Domain{UUID: u.guest.uuid, Name: fmt.Sprintf("instance-%08d", n), Running: !u.defined, Functions: functions, Files: []string{"file"}}
			r.Domains = append(r.Domains, domain)
			if u.defined {
				continue
			}
			pid := 1000 + n
			r.Guests = append(r.Guests, guest.Guest{PID: pid, Command: "qemu-system-x86_64", UUID: &u.guest.uuid, Asked: functions})
			if len(functions) > 0 {
				r.Holders = append(r.Holders, guest.Holder{PID: pid, Command: "qemu-system-x86", UUID: &u.guest.uuid, Group: &n, Functions: functions, Asked: functions})
			}
		}
	})
}
