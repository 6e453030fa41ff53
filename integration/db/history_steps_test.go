package db

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errCannot goes with a step that this state of the world does not permit.
var errCannot = errors.New("cannot be done now")

// A step is a line of text, so that a history can be printed and kept as a case:
//
//	boot H F            the next guest starts on host H with function F
//	migrate G H F S     a cold migration of guest G to H with F has come to status S, and goes on
//	resize G H F S      a resize to another flavor has
//	macvtap G           the guest uses VFs as network interfaces, without VFIO
//	unmapped H          which functions the network interfaces of guests are is not readable on H
//	live G H F S        a live migration has; completed means that
//	                    post_live_migration_at_destination failed, arrived that the source failed
//	                    after the guest had left it
//	evacuate G H F      the guest is evacuated
//	die G               what carries on the guest's latest migration ends
//	reset G             an operator resets the guest's state
//	delete G [stays]    the guest is deleted; stays: its process is not ended
//	null G              deleted of the guest's row is NULL, which Nova does not find
//	context G           its migration_context stays
//	down H, start H     nova-compute of a host ends, starts
//	off H               the machine is switched off
//	node H              service and node of the host are deleted
//	stray G H F         a process of the guest uses F, which no row says
//	row H F STATUS [G]  the row is written by hand; STATUS none deletes it; G 0 is an instance
//	                    that is gone
//	clock H D [wide]    the host's clock is ahead by a duration, such as 8m or -25s; wide: its
//	                    kernel calls it synchronized, with a maximal error that covers this
//	vanish H            the host has no VFs while a guest uses their PF
//	wait M              minutes pass
func (w *truth) step(line string) error {
	words := strings.Fields(line)
	w.minute++
	a := arguments{w: w, words: words[1:]}
	var act func(*arguments) error
	switch words[0] {
	case "boot":
		act = w.boot
	case "migrate", "resize", "live":
		act = func(a *arguments) error { return w.move(a, words[0]) }
	case "evacuate":
		act = w.evacuate
	case "die":
		act = func(a *arguments) error {
			m := a.guest().latest()
			if m == nil || m.thread == nil {
				return errCannot
			}
			m.thread = nil
			return a.err
		}
	case "reset":
		act = func(a *arguments) error {
			g := a.guest()
			if g.deleted || g.task == "" && g.vm == "active" {
				return errCannot
			}
			g.vm, g.task, g.changed = "active", "", w.minute
			return a.err
		}
	case "delete":
		act = w.delete
	case "null":
		act = func(a *arguments) error { a.guest().null = true; return a.err }
	case "context":
		act = func(a *arguments) error {
			g := a.guest()
			if g.context = g.latest(); g.context == nil {
				return errCannot
			}
			return a.err
		}
	case "down", "off", "start", "node":
		act = func(a *arguments) error { return w.machine(words[0], a.host(), a.err) }
	case "stray":
		act = func(a *arguments) error {
			g, h := a.guest(), a.host()
			f := a.function(h)
			if a.err != nil || h.off || w.inGuest(h, f) != "" {
				return errors.Join(a.err, errCannot)
			}
			// It has been there all the time: of what began after the last report and changed no
			// row, nothing can know.
			w.uses = append(w.uses, &use{guest: g, host: h, function: f, from: -1000, until: -1})
			return nil
		}
	case "row":
		act = w.byHand
	case "clock":
		act = func(a *arguments) error {
			h := a.host()
			ahead, err := time.ParseDuration(a.word())
			h.ahead, h.wide = ahead, a.word() == "wide"
			return errors.Join(a.err, err)
		}
	case "vanish":
		act = func(a *arguments) error { a.host().vanish = true; return a.err }
	case "unmapped":
		act = func(a *arguments) error { a.host().unmapped = true; return a.err }
	case "macvtap":
		act = func(a *arguments) error { a.guest().macvtap = true; return a.err }
	case "wait":
		act = func(a *arguments) error { w.minute += a.number(); return a.err }
	default:
		return fmt.Errorf("no step %q", words[0])
	}
	if err := act(&a); err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}

// arguments are the words of a step. The first error stays.
type arguments struct {
	w     *truth
	words []string
	err   error
}

func (a *arguments) word() string {
	if len(a.words) == 0 {
		return ""
	}
	word := a.words[0]
	a.words = a.words[1:]
	return word
}

func (a *arguments) number() int {
	n, err := strconv.Atoi(a.word())
	a.err = errors.Join(a.err, err)
	return n
}

func (a *arguments) host() *realHost {
	h, err := a.w.host(a.word())
	if a.err = errors.Join(a.err, err); err != nil {
		return &realHost{}
	}
	return h
}

func (a *arguments) guest() *realGuest {
	g, err := a.w.guest(a.number())
	if a.err = errors.Join(a.err, err); err != nil {
		return &realGuest{}
	}
	return g
}

func (a *arguments) function(h *realHost) *function {
	f, err := h.function(a.word())
	if a.err = errors.Join(a.err, err); err != nil {
		return &function{}
	}
	return f
}

func (g *realGuest) latest() *realMove {
	if len(g.moves) == 0 {
		return nil
	}
	return g.moves[len(g.moves)-1]
}

func (w *truth) boot(a *arguments) error {
	h := a.host()
	f := a.function(h)
	g := &realGuest{uuid: UUID(len(w.guests) + 1), host: h, vm: "active", changed: w.minute, kind: f.kind, holds: []string{h.name}}
	if a.err != nil || !h.up() || w.inGuest(h, f) != "" || !w.claim(h, f, g.uuid) {
		return errors.Join(a.err, errCannot)
	}
	w.guests = append(w.guests, g)
	w.begin(g, h, f)
	return nil
}

// settled returns whether a move of the guest can begin.
func (g *realGuest) settled() bool {
	m := g.latest()
	return !g.deleted && g.host != nil && g.vm == "active" && g.task == "" && (m == nil || m.thread == nil)
}

// own returns the function that the guest has by its host's rows.
func (g *realGuest) own() *function {
	for _, f := range g.host.functions {
		if f.row != nil && f.row.owner == g.uuid && f.row.status == "allocated" {
			return f
		}
	}
	return nil
}

// newMove begins a move of a guest to a function of another host.
func (w *truth) newMove(g *realGuest, kind string, to *realHost, f *function) (*realMove, error) {
	if !g.settled() || g.host == to || !to.up() || f.kind != g.kind || g.own() == nil || w.inGuest(to, f) != "" || !slices.Contains(g.holds, g.host.name) {
		return nil, errCannot
	}
	old := g.own()
	if !w.claim(to, f, g.uuid) {
		return nil, errCannot
	}
	m := &realMove{kind: kind, from: g.host, to: to, old: old, new: f, changed: w.minute, uuid: UUID(100 + 10*slices.Index(w.guests, g) + len(g.moves))}
	g.moves = append(g.moves, m)
	g.changed = w.minute
	return m, nil
}

// move is a cold or a live migration up to a status.
func (w *truth) move(a *arguments, kind string) error {
	g, to := a.guest(), a.host()
	f, status := a.function(to), a.word()
	if a.err != nil || g.host == nil || !g.host.up() {
		return errors.Join(a.err, errCannot)
	}
	from := g.host
	m, err := w.newMove(g, map[string]string{"migrate": "migration", "resize": "resize", "live": "live-migration"}[kind], to, f)
	if err != nil {
		return err
	}
	if kind == "resize" {
		kind, m.resize = "migrate", true
	}
	if kind == "migrate" { // since Zed each claim makes new requests
		m.request = RequestOf(m.uuid)
		f.row.request = m.request
	}
	// nova/conductor/tasks/migrate.py, replace_allocation_with_migration
	m.status, m.holds, g.holds = status, g.holds, []string{to.name}
	arrive := func() {
		w.end(g, from)
		w.define(g, from, m.old)
		g.host = to
	}
	switch kind + " " + status {
	case "migrate migrating", "migrate pre-migrating":
		g.task, m.thread, g.context = "resize_migrating", from, m
		if status == "migrating" {
			w.end(g, from) // it is off while its disk is copied
			w.define(g, from, m.old)
		}
	case "migrate post-migrating":
		arrive()
		g.task, m.thread, g.context = "resize_finish", to, m
	case "migrate finished", "migrate confirming":
		arrive()
		w.begin(g, to, f)
		g.vm, g.context, m.applied = "resized", m, true
		if status == "confirming" {
			m.thread = from
		}
	case "migrate error": // the copy failed, and the guest goes on where it was
		g.holds, m.holds = m.holds, nil
	case "live running":
		g.task, m.thread, g.context = "migrating", from, m
		w.begin(g, to, f)
	case "live error":
		g.holds, m.holds = m.holds, nil
	case "live arrived":
		w.end(g, from)
		w.begin(g, to, f)
		m.status = "error"
	case "live completed":
		w.end(g, from)
		w.begin(g, to, f)
		m.holds = nil
	default:
		return fmt.Errorf("no status %q", status)
	}
	return nil
}

// evacuate is from a host that Nova believes to be down, and that may live.
func (w *truth) evacuate(a *arguments) error {
	g, to := a.guest(), a.host()
	f := a.function(to)
	if a.err != nil || g.host == nil || g.host.up() {
		return errors.Join(a.err, errCannot)
	}
	m, err := w.newMove(g, "evacuation", to, f)
	if err != nil {
		return err
	}
	m.status = "done"
	g.host = to
	g.holds = append(slices.Clone(g.holds), to.name)
	w.begin(g, to, f)
	return nil
}

func (w *truth) delete(a *arguments) error {
	g := a.guest()
	stays := a.word() == "stays"
	if a.err != nil || g.deleted {
		return errors.Join(a.err, errCannot)
	}
	g.deleted, g.vm, g.task, g.changed, g.holds = true, "deleted", "", w.minute, nil
	for _, m := range g.moves {
		m.thread, m.holds = nil, nil
	}
	g.moves = nil // instance_destroy deletes them
	for _, h := range w.hosts {
		if h.up() && !stays {
			w.end(g, h)
			w.freeOf(g, h)
		}
	}
	return nil
}

// machine is what happens to a host.
func (w *truth) machine(what string, h *realHost, err error) error {
	if err != nil {
		return err
	}
	stop := func() {
		h.before = append(h.before, span{h.started, w.minute})
		h.silent = w.minute
		for _, g := range w.guests {
			for _, m := range g.moves {
				if m.thread == h {
					m.thread = nil
				}
			}
		}
	}
	switch {
	case what == "down" && h.up():
		stop()
	case what == "off" && !h.off:
		h.off = true
		if h.up() {
			stop()
		}
		for _, u := range w.uses {
			if u.host == h && u.until < 0 {
				u.until = w.minute
			}
		}
	case what == "start" && !h.off && !h.deleted: // or a restart
		if h.up() {
			stop()
		}
		h.silent, h.started = -1, w.minute
		w.audit(h)
	case what == "node" && !h.up() && !h.deleted:
		h.deleted = true
	default:
		return errCannot
	}
	return nil
}

// audit is what a nova-compute does when it starts: it removes evacuated guests, ends its own
// tasks, and frees what no instance or migration keeps.
func (w *truth) audit(h *realHost) {
	for _, g := range w.guests {
		for _, m := range g.moves {
			if m.kind == "evacuation" && m.status == "done" && m.from == h {
				m.status, m.changed = "completed", w.minute
				w.end(g, h)
				g.holds = slices.DeleteFunc(slices.Clone(g.holds), func(name string) bool { return name == h.name })
			}
		}
		if g.host == h && g.task == "resize_migrating" {
			g.task, g.changed = "", w.minute
		}
		if !g.keeps(h) {
			if g.deleted { // _cleanup_running_deleted_instances
				w.end(g, h)
			}
			w.freeOf(g, h)
		}
	}
}

// byHand writes a row as no nova-compute does.
func (w *truth) byHand(a *arguments) error {
	h := a.host()
	f, status := a.function(h), a.word()
	owner := ""
	if len(a.words) > 0 {
		owner = UUID(77) // of no instance
		if n := a.number(); n > 0 {
			g, err := w.guest(n)
			if err != nil {
				return err
			}
			owner = g.uuid
		}
	}
	if a.err != nil {
		return a.err
	}
	if status == "none" {
		f.row = nil
		return nil
	}
	w.set(f, status, owner)
	return nil
}
