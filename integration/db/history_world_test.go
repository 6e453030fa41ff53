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
	before    []span        // earlier processes of nova-compute
	off       bool          // the machine does not run
	deleted   bool          // the rows of its service and its node are deleted
	ahead     time.Duration // how far its clock is ahead of the database's
	wide      bool          // its kernel calls the clock synchronized, with an error that covers ahead
	vanish    bool          // it has no VFs while a guest uses their PF
	unmapped  bool          // which functions the network interfaces of guests are is not readable
	functions []*function
}

// span is from a minute until another one.
type span struct{ from, until int }

type function struct {
	address, kind, parent string
	row                   *functionRow // nil: there is none
}

// functionRow is a row of pci_devices.
type functionRow struct {
	status  string
	owner   string // an instance's uuid, or ""
	changed int
	request string // its request; "": the owner's first one
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
	null     bool // deleted of its row is NULL
	changed  int
	kind     string // of the function that it asks for
	macvtap  bool   // it uses VFs as network interfaces, without VFIO
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
	resize             bool   // to another flavor
	request            string // of the device on the destination
	applied            bool   // finish_resize has applied the context
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
	related := append(h.family(f), f)
	for _, x := range related {
		if g := w.usedBy(h, x); g != nil {
			return fmt.Sprintf("guest %s uses %s of %s", g.uuid[:8], x.address, h.name)
		}
	}
	for _, g := range w.guests {
		for _, m := range g.moves {
			if m.thread != nil && (m.from == h && slices.Contains(related, m.old) || m.to == h && slices.Contains(related, m.new)) {
				return fmt.Sprintf("a thread on %s carries on the %s of guest %s, with %s of %s", m.thread.name, m.kind, g.uuid[:8], f.address, h.name)
			}
		}
	}
	return ""
}

// afterRestart is inGuest after a restart of nova-compute of the host, which ends its threads.
func (w *truth) afterRestart(h *realHost, f *function) string {
	for _, g := range w.guests {
		for _, m := range g.moves {
			if m.thread == h {
				m.thread = nil
				defer func() { m.thread = h }()
			}
		}
	}
	return w.inGuest(h, f)
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
	f.row = &functionRow{status: status, owner: owner, changed: w.minute}
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

// novaCompute returns when the nova-compute that ran at a minute was started.
func (h *realHost) novaCompute(minute int) (started int, ran bool) {
	if h.up() && h.started <= minute {
		return h.started, true
	}
	for _, s := range h.before {
		if s.from <= minute && minute < s.until {
			return s.from, true
		}
	}
	return 0, false
}

// clock is what the kernel of a host says of its clock. It is no lie: a clock that is synchronized
// is not further off than its error and half a minute.
func (h *realHost) clock() *guest.Clock {
	ahead := h.ahead.Abs()
	if h.wide {
		return &guest.Clock{Synchronized: true, MaxErrorUS: ahead.Microseconds()}
	}
	return &guest.Clock{Synchronized: ahead < 30*time.Second, MaxErrorUS: 1000}
}

// virtualFunctions are the PFs and VFs of a host, as it has them at a minute.
func (w *truth) virtualFunctions(h *realHost, minute int) (list []guest.PhysicalFunction) {
	for _, pf := range h.functions {
		listed := guest.PhysicalFunction{Address: pciAddress(pf)}
		for _, vf := range h.functions {
			if vf.parent == pf.address {
				listed.Functions = append(listed.Functions, pciAddress(vf))
			}
		}
		gone := h.vanish && slices.ContainsFunc(w.uses, func(u *use) bool { return u.host == h && u.function == pf && !u.defined && u.at(minute) })
		if len(listed.Functions) > 0 && !gone {
			list = append(list, listed)
		}
	}
	return list
}

func pciAddress(f *function) pci.Address {
	address, err := pci.ParseAddress(f.address)
	if err != nil {
		panic(err)
	}
	return address
}

// at returns whether the use goes on at a minute.
func (u *use) at(minute int) bool { return u.from <= minute && (u.until < 0 || u.until > minute) }

// report is what gpustack host guests printed on a host, some minutes ago, with a token or "".
func (w *truth) report(h *realHost, ago int, token string) guest.Report {
	minute := w.minute - ago
	return evidence.Report(h.name, func(r *guest.Report) {
		collected := w.at(minute)
		if ago == 0 {
			collected = time.Now()
		}
		r.Collected, r.Clock, r.NovaCompute, r.VirtualFunctions = collected.Add(h.ahead), h.clock(), []guest.NovaCompute{}, w.virtualFunctions(h, minute)
		booted := w.at(-100_000).Add(h.ahead)
		r.Booted = &booted
		if token != "" {
			r.Token = &token
		}
		if at, ran := h.novaCompute(minute); ran {
			started, age := w.at(at).Add(h.ahead), int(collected.Sub(w.at(at))/time.Second)
			r.NovaCompute = append(r.NovaCompute, guest.NovaCompute{PID: 1, Command: "nova-compute", Started: &started, AgeSeconds: &age})
		}
		for n, u := range w.uses {
			if u.host == h && u.at(minute) {
				u.report(r, n)
				if h.unmapped && u.interfaces() {
					r.Doubtful = &guest.Doubtful{Functions: h.network(), Because: []string{"an interface of domain " + u.guest.uuid}}
				}
			}
		}
	})
}

// interfaces returns whether the guest uses the function as a network interface: no process has a
// file of it open, and the guest's arguments do not name it.
func (u *use) interfaces() bool { return u.guest.macvtap && u.function.kind == "type-VF" }

// network returns the functions of a host's adapter with SR-IOV.
func (h *realHost) network() (list []pci.Address) {
	for _, f := range h.functions {
		if f.kind != "type-PCI" {
			list = append(list, pciAddress(f))
		}
	}
	return list
}

// report adds a use of a function to a report. n numbers it.
func (u *use) report(r *guest.Report, n int) {
	functions, pid, command := []pci.Address{pciAddress(u.function)}, 1000+n, "qemu-system-x86"
	domain := guest.Domain{UUID: u.guest.uuid, Name: fmt.Sprintf("instance-%08d", n), Running: !u.defined, Functions: functions, Files: []string{"file"}}
	if u.interfaces() && u.host.unmapped {
		domain.Functions = []pci.Address{}
	}
	r.Domains = append(r.Domains, domain)
	switch {
	case u.defined:
		return
	case u.interfaces():
		r.Guests = append(r.Guests, guest.Guest{PID: pid, Command: command, UUID: &u.guest.uuid, Asked: []pci.Address{}})
		return
	}
	r.Guests = append(r.Guests, guest.Guest{PID: pid, Command: command, UUID: &u.guest.uuid, Asked: functions})
	holder := guest.Holder{PID: pid, Command: command, UUID: &u.guest.uuid, Functions: functions, Asked: functions}
	if u.function.kind == "vdpa" {
		node := "vhost-vdpa-0"
		holder.VDPA = &node
	} else {
		holder.Group = &n
	}
	r.Holders = append(r.Holders, holder)
}

// aged is a report that shows neither relations nor vdpa devices nor the clock.
func aged(r guest.Report, h *realHost) guest.Report {
	vdpa := func(a pci.Address) bool {
		return slices.ContainsFunc(h.functions, func(f *function) bool { return f.kind == "vdpa" && pciAddress(f) == a })
	}
	without := func(list []pci.Address) []pci.Address { return slices.DeleteFunc(slices.Clone(list), vdpa) }
	r.VirtualFunctions, r.Clock, r.Token = nil, nil, nil
	for k := range r.NovaCompute {
		r.NovaCompute[k].AgeSeconds = nil
	}
	for k := range r.Domains {
		r.Domains[k].Functions = without(r.Domains[k].Functions)
	}
	for k := range r.Guests {
		r.Guests[k].Asked = without(r.Guests[k].Asked)
	}
	r.Holders = slices.DeleteFunc(r.Holders, func(holder guest.Holder) bool { return holder.VDPA != nil })
	r.Sources = slices.DeleteFunc(r.Sources, func(s guest.Source) bool { return s.Name == "sriov" || s.Name == "vdpa" })
	return r
}
