package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
)

// play is a history that is carried out: steps of the world, then its rows, then what operators
// do.
//
//	report H AGO [WHAT]  a guest report of host H, some minutes old, is given to all runs. WHAT is
//	                     token:M for one with a token that is M minutes older than the report, or
//	                     old for one without relations, vdpa devices and the clock
//	believe H            --host-is-off H is given to all runs
//	run O [WHAT]…        operator O runs repair-migration --apply. WHAT is one of
//	    postN=lost, refused or late:P  the Nth change of allocations is applied and not answered,
//	                     is not applied, or is applied at point P, 0 for after all runs
//	    commit=lost, commit=answer  COMMIT, or its answer, is lost
//	    update=cut       the connection is lost at the first UPDATE
//	    user=denied      the account may not update migrations
//	    deadlock=N       the server ends the first N transactions of the run that wait for a
//	                     device, because of a deadlock
//	    P=kill, P=O      at point P the run is killed, or O runs
//	    P=nova:H         nova-compute of H does its audit, if it runs
//	    P=save:G         Nova saves the instance of guest G
//	    P=deadlock:N     as deadlock=N, from then on
type play struct {
	t         *testing.T
	lab       *historyLab
	w         *truth
	lines     []string
	inserted  bool
	reports   []guest.Report
	off       []string
	operators map[string]*operator
	others    others // what goes on beside a run

	wrong   []string // what is wrong with the outcome
	notes   []string // what operators met
	offered offers   // before the next run
	agreed  map[string]bool
	before  map[string]moved // by instance, before all runs

	requested map[string]bool // rows that had one of their instance's requests, before all runs

	progress map[string]int
	points   int // of the latest run
}

// historyLab is what histories share.
type historyLab struct {
	placement *Placement
	operators []*operator
	databases *novadb.Databases
}

// clear empties the tables that histories use. Reset takes longer.
func (l *historyLab) clear(t *testing.T) {
	t.Helper()
	for _, table := range []string{"nova_cell1.pci_devices", "nova_cell1.instance_extra", "nova_cell1.migrations", "nova_cell1.instances", "nova_cell1.compute_nodes", "nova_cell1.services",
		"nova_api.instance_mappings", "nova_api.host_mappings"} {
		l.sql(t, "DELETE FROM "+table)
	}
}

func (l *historyLab) sql(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := database.SQL.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// play carries a history out.
func (l *historyLab) play(t *testing.T, lines []string) *play {
	t.Helper()
	p := &play{t: t, lab: l, w: newTruth(), lines: lines, operators: map[string]*operator{}, progress: map[string]int{}}
	for _, o := range l.operators {
		*o = operator{name: o.name, cloud: o.cloud, client: o.client, forward: o.forward}
		o.bind()
		p.operators[o.name] = o
	}
	defer func() {
		for _, o := range l.operators {
			if o.databases != nil {
				o.databases.Close()
			}
		}
	}()
	for _, line := range lines {
		if err := p.do(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if p.inserted {
		p.end()
	}
	return p
}

func (p *play) do(line string) error {
	words := strings.Fields(line)
	switch words[0] {
	case "report":
		p.insert()
		h, err := p.w.host(words[1])
		if err != nil {
			return err
		}
		ago, err := strconv.Atoi(words[2])
		if err != nil {
			return err
		}
		return p.report(h, ago, words[3:])
	case "believe":
		p.insert()
		p.off = append(p.off, words[1])
		return nil
	case "run":
		p.insert()
		return p.run(words[1], words[2:])
	}
	return p.w.step(line)
}

// report gives a report to all runs.
func (p *play) report(h *realHost, ago int, how []string) error {
	kind, minutes, _ := strings.Cut(strings.Join(how, ""), ":")
	token := ""
	switch kind {
	case "":
	case "old":
		p.reports = append(p.reports, aged(p.w.report(h, ago, ""), h))
		return nil
	case "token":
		before, err := strconv.Atoi(minutes)
		if err != nil {
			return err
		}
		if token = guest.NewToken(p.w.at(p.w.minute - ago - before)); ago+before == 0 {
			if token, err = find.Token(p.t.Context(), p.lab.databases); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("no report %q", kind)
	}
	p.reports = append(p.reports, p.w.report(h, ago, token))
	return nil
}

// run is a run of an operator, and of those that run meanwhile.
func (p *play) run(name string, faults []string) error {
	if err := p.prepare(name, faults); err != nil {
		return err
	}
	o, before, entries := p.operators[name], p.rows(), len(p.operators[name].entries)
	err := o.run(p.t.Context())
	p.points = o.points
	hosttest.NoError(p.t, p.others.end())
	alive := slices.ContainsFunc(p.w.hosts, func(h *realHost) bool { return h.up() && slices.Contains(p.off, h.name) })
	switch {
	case alive && len(o.entries) > entries:
		p.fail("1: %s has repaired although a host is declared off whose nova-compute runs", name)
	case alive && errors.Is(err, find.ErrAlive):
		p.progress["refused: declared off and alive"]++
	}
	if slices.Contains(faults, "user=denied") && o.changed > 0 {
		p.fail("4: the database refuses to update migrations, and %s has changed allocations %d times", name, o.changed)
	}
	p.note("%s: %v; points: %s", name, err, strings.Join(o.seen, ", "))
	p.judge(o)
	p.checkChanges(before)
	return nil
}

// rows are the columns of the rows that what Nova offers depends on.
func (p *play) rows() (lines []string) {
	for table, columns := range map[string][]string{"pci_devices": {"compute_node_id", "address", "status", "instance_uuid", "deleted"}, "migrations": {"id", "instance_uuid", "status", "uuid"}} {
		for _, row := range database.Cell1.Dump(p.t, table, columns...) {
			lines = append(lines, strings.Join(row, " "))
		}
	}
	slices.Sort(lines)
	return lines
}

// checkChanges checks what Nova offers now, if rows have changed.
func (p *play) checkChanges(before []string) {
	if slices.Equal(before, p.rows()) {
		return
	}
	now := p.offers()
	p.checkOffered(p.offered, now)
	p.offered = now
}

// prepare connects an operator, with the faults of a run.
func (p *play) prepare(name string, faults []string) error {
	o := p.operators[name]
	if o == nil {
		return fmt.Errorf("no operator %s", name)
	}
	proof, err := cleanup.NewProof(p.reports, p.off)
	if err != nil {
		return err
	}
	options := find.Options{Proof: proof}
	if o.databases != nil {
		o.databases.Close()
	}
	o.cut = false
	o.posts, o.changed, o.points, o.seen, o.actions, o.fates = 0, 0, 0, nil, map[int]func(){}, map[string]string{}
	account := User
	var after []func()
	for _, fault := range faults {
		what, how, _ := strings.Cut(fault, "=")
		switch {
		case what == "commit" && how == "lost":
			after = append(after, func() { o.proxy.LoseCommit() })
		case what == "commit" && how == "answer":
			after = append(after, func() { o.proxy.LoseAnswer() })
		case what == "update":
			after = append(after, func() {
				o.proxy.Watch(func(packet []byte) bool {
					now := !o.cut && strings.HasPrefix(string(packet[min(1, len(packet)):]), "UPDATE ")
					o.cut = o.cut || now
					return now
				})
			})
		case what == "user":
			account = deniedUser
		case what == "deadlock":
			after = append(after, func() { p.deadlock(how) })
		case strings.HasPrefix(what, "post"):
			o.fates[what] = how
		default:
			point, err := strconv.Atoi(what)
			if err != nil {
				return fmt.Errorf("no fault %q", fault)
			}
			o.actions[point] = p.action(o, how)
		}
	}
	o.open(p.t, account, options)
	for _, f := range after {
		f()
	}
	return nil
}

// action is what happens at a point of a run.
func (p *play) action(o *operator, what string) func() {
	if what == "kill" {
		return func() { panic(killed{}) }
	}
	kind, how, _ := strings.Cut(what, ":")
	switch kind {
	case "deadlock":
		return func() { p.deadlock(how) }
	case "nova", "save":
		return func() { p.nova(kind, how) }
	}
	return func() {
		// The server needs a moment to see that a connection is lost.
		for patience := 100; rowsLocked(p.t); patience-- {
			if !o.cut || patience == 0 {
				p.note("%s does not run: rows are locked", what)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		hosttest.NoError(p.t, p.prepare(what, nil))
		other := p.operators[what]
		err := other.run(p.t.Context())
		p.note("meanwhile %s: %v; points: %s", what, err, strings.Join(other.seen, ", "))
		p.judge(other)
	}
}

func (p *play) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// insert writes the rows of the world, once.
func (p *play) insert() {
	if p.inserted {
		return
	}
	p.inserted = true
	t, w, cell := p.t, p.w, database.Cell1
	p.lab.clear(t)
	w.minute++
	w.now = time.Now().UTC().Truncate(time.Second)
	ids := map[*function]int64{}
	for _, h := range w.hosts {
		options := []HostOption{}
		if !h.up() {
			seen := w.at(h.silent)
			options = append(options, Service(Row{"last_seen_up": seen, "updated_at": seen}))
		}
		if h.deleted {
			options = append(options, ServiceDeleted(time.Minute))
		}
		node := cell.Compute(t, h.name, options...)
		w.nodes = append(w.nodes, node)
		for _, f := range h.functions {
			if f.row == nil {
				continue
			}
			columns := Row{"updated_at": w.at(f.row.changed)}
			if f.row.request != "" {
				columns["request_id"] = f.row.request
			}
			if f.kind != "type-PCI" {
				columns = columns.with(PF(), Row{"dev_type": f.kind, "parent_addr": orNull(f.parent)})
			}
			ids[f] = cell.Card(t, node, f.address, f.row.status, f.row.owner, columns)
		}
	}
	held, migrations := map[string][]string{}, map[string]bool{}
	for _, g := range w.guests {
		host := ""
		if g.host != nil {
			host = g.host.name
		}
		options := []InstanceOption{Asks(map[string]string{"type-PCI": "K4200:1", "type-PF": "flex:1", "type-VF": "flex-vf:1", "vdpa": "flex-vf:1"}[g.kind], RequestOf(g.uuid)),
			With(Row{"updated_at": w.at(g.changed), "instance_type_id": 1})}
		if g.deleted {
			options = append(options, InstanceDeleted(w.now.Sub(w.at(g.changed))))
		}
		cell.Instance(t, g.uuid, host, g.vm, g.task, options...)
		if g.null {
			p.lab.sql(t, "UPDATE nova_cell1.instances SET deleted = NULL WHERE uuid = ?", g.uuid)
		}
		held[g.uuid] = g.holds
		for _, m := range g.moves {
			columns := Row{"uuid": m.uuid, "updated_at": w.at(m.changed)}
			if m.resize {
				columns["new_instance_type_id"] = 2
			}
			id := cell.Migration(t, 0, g.uuid, m.kind, m.status, m.from.name, m.to.name, columns)
			held[m.uuid], migrations[m.uuid] = m.holds, true
			if g.context == m && m.open() {
				cell.Context(t, g.uuid, id, readable(ids, m.old), readable(ids, m.new))
			}
			if m.applied {
				p.lab.sql(t, "UPDATE nova_cell1.instance_extra SET pci_requests = REPLACE(pci_requests, ?, ?) WHERE instance_uuid = ?", RequestOf(g.uuid), m.request, g.uuid)
			}
		}
	}
	hosttest.NoError(t, p.lab.placement.Allocate(t.Context(), held, migrations))
	p.agreed = map[string]bool{}
	disagree := p.disagree()
	for _, g := range w.guests {
		p.agreed[g.uuid] = disagree[g.uuid] == ""
	}
	p.offered, p.before, p.requested = p.offers(), p.moved(), p.requests()
}

// readable returns the id of a function's row, if Nova's objects can read the row.
func readable(ids map[*function]int64, f *function) []int64 {
	if f.row == nil || f.row.status == "bogus" {
		return nil
	}
	return []int64{ids[f]}
}

// end is after all runs: what was late arrives, operators recover what is open, and everything is
// checked.
func (p *play) end() {
	ctx, before := context.WithoutCancel(p.t.Context()), p.rows()
	for _, o := range p.lab.operators {
		if len(o.entries) == 0 {
			continue
		}
		hosttest.NoError(p.t, p.prepare(o.name, nil))
		if err := o.recover(ctx); err != nil {
			p.note("%s recovers: %v", o.name, err)
		}
	}
	for _, o := range p.lab.operators {
		o.arrive(-1)
	}
	p.checkChanges(before)
	p.checkAllocations()
	p.checkRequests()
	p.checkStays()
	p.count()
	p.progress["deadlock"] += p.others.deadlocks
}

// String is the history with what came of it.
func (p *play) String() string {
	rows := p.rows()
	held, err := p.lab.placement.Allocated(p.t.Context())
	hosttest.NoError(p.t, err)
	for consumer, providers := range held {
		rows = append(rows, consumer+" holds "+strings.Join(providers, ", "))
	}
	return strings.Join(slices.Concat([]string{"history:"}, p.lines, []string{"runs:"}, p.notes, []string{"rows and allocations:"}, rows, []string{"wrong:"}, p.wrong), "\n\t")
}
