package find

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/nova/cloud"
)

// Placement reads resource providers and allocations.
type Placement interface {
	PCIProviders(ctx context.Context) ([]cloud.Provider, error)
	HeldOn(ctx context.Context, provider string) (map[string]map[string]int, error)
	Allocations(ctx context.Context, consumer string) (cloud.Allocations, error)
}

// holding is an allocation with the row of the provider's compute node.
type holding struct {
	cleanup.Allocation
	node cleanup.Node
}

// Allocations judges what consumers hold on the resource providers of PCI devices. It changes
// nothing.
//
// Nova makes an allocation after the records that explain it (the build request of a new
// instance, the record of a migration), and removes it before these records end or just after. So
// Placement is read first and the databases afterwards: an allocation that they do not explain
// then is not one that they will explain later. It may have been removed meanwhile. Suspect
// allocations are therefore read a second time, from Placement and then from the databases.
// They are reported if they still exist and are judged the same, and if no record of their consumer
// has changed for the quiet time of allocations.
//
// Errors: those of the databases. unread is what Placement has not answered; the report says so
// too, and has the findings about the other allocations.
func Allocations(ctx context.Context, d *novadb.Databases, o Options, p Placement) (report cleanup.AllocationReport, unread, err error) {
	report.Findings = []cleanup.AllocationFinding{}
	providers, unread := p.PCIProviders(ctx)
	if unread != nil || len(providers) == 0 {
		report.Why = "no compute node reports PCI devices to Placement (report_in_placement)"
		if unread != nil {
			report.Why = unread.Error()
		}
		return report, unread, nil
	}
	a := &allocator{all: d, options: o, placement: p, report: &report}
	var places []holding
	if err := a.within(ctx, func(v *view) (err error) { places, err = v.places(ctx, a, providers); return err }); err != nil {
		return report, nil, err
	}
	held, unread := a.held(ctx, places)
	suspects, err := a.judge(ctx, held, nil)
	if err == nil && len(suspects) > 0 {
		var again []holding
		var unreadAgain error
		whole := map[string]*cloud.Allocations{}
		again, unreadAgain = a.still(ctx, suspects, whole)
		unread = errors.Join(unread, unreadAgain)
		suspects, err = a.judge(ctx, again, whole)
		a.prove(suspects)
	}
	for _, s := range suspects {
		if wanted := cleanup.KeyOf(o.Instance); wanted == "" || wanted == cleanup.KeyOf(s.Instance) || wanted == cleanup.KeyOf(s.Consumer) {
			report.Findings = append(report.Findings, s.AllocationFinding)
		}
	}
	report.Sort()
	if unread != nil {
		if report.Why != "" {
			report.Why += ", "
		}
		report.Why += strings.ReplaceAll(unread.Error(), "\n", ", ")
	}
	report.Judged = report.Why == ""
	return report, unread, err
}

// allocator judges the allocations on PCI providers.
type allocator struct {
	all       *novadb.Databases
	options   Options
	placement Placement
	report    *cleanup.AllocationReport
}

// view are snapshots of all cells.
type view struct {
	readers    []*reader
	incomplete string // why not all cells or the API database are read
}

// within opens a consistent read-only snapshot of each cell and calls act.
func (a *allocator) within(ctx context.Context, act func(*view) error) error {
	v := &view{}
	if a.all.API == nil {
		v.incomplete = "the API database is not configured, so other cells could not be read"
	} else if err := a.all.Unread(); err != nil {
		v.incomplete = strings.ReplaceAll(err.Error(), "\n", ", ")
	}
	for _, c := range a.all.All() {
		tx, err := c.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			return novadb.Explain("cell "+c.Name, err)
		}
		defer tx.Rollback() //nolint:errcheck // nothing was written
		r, err := newReader(ctx, tx, a.all, c, a.options)
		if err != nil {
			return fmt.Errorf("cell %s: %w", c.Name, err)
		}
		v.readers = append(v.readers, r)
	}
	return act(v)
}

// places returns the selected providers with their compute nodes, without consumers. A provider's
// root is that of its compute node, which has the uuid of the row in compute_nodes.
func (v *view) places(ctx context.Context, a *allocator, providers []cloud.Provider) (places []holding, err error) {
	type place struct {
		cell     string
		node     cleanup.Node
		selected bool
	}
	at := map[string]place{}
	for i, r := range v.readers {
		judged := i < len(a.all.Cells) // the others are only read
		hosts, err := r.hostNodes(ctx)
		if err != nil {
			return nil, err
		}
		err = r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
			var id int64
			var uuid string
			err := rows.Scan(&id, &uuid)
			n, _ := r.nodes.get(id)
			if known, ok := at[uuid]; !ok || known.node.Deleted {
				at[uuid] = place{r.cell.Name, n, judged && a.options.selects(r.cell) && (hosts == nil || slices.Contains(hosts, any(id)))}
			}
			return err
		}, "SELECT id, "+r.column("compute_nodes", "uuid", "''")+" FROM compute_nodes WHERE "+r.column("compute_nodes", "uuid", "NULL")+" IS NOT NULL")
		if err != nil {
			return nil, err
		}
	}
	whole := v.incomplete == "" && a.options.Host == "" && a.options.Cell == "" && len(v.readers) == len(a.all.Cells)
	nowhere := 0
	for _, p := range providers {
		where, known := at[p.Root]
		if !known {
			nowhere++
		}
		address := a.options.Address == "" || strings.HasSuffix(p.Name, "_"+strings.ToUpper(a.options.Address))
		if known && where.selected && address || !known && whole && address {
			places = append(places, holding{cleanup.Allocation{Cell: where.cell, Host: where.node.Host, Node: where.node.Name, Provider: p.UUID, Name: p.Name},
				where.node})
		}
	}
	a.report.Providers = len(places)
	if err := a.all.Unread(); err != nil && nowhere > 0 {
		a.report.Why = fmt.Sprintf("%d of %d resource providers belong to no compute node of the cells that were read: %s", nowhere, len(providers), v.incomplete)
	}
	return places, nil
}

// askAll calls ask for each index below n, several at the same time. It stops after several
// failures: a Placement that does not answer would otherwise be waited for once for each of
// thousands. The error has the first failure, with the number of things whose answer is missing.
func askAll(ctx context.Context, n int, things string, ask func(i int) error) error {
	const beside = 8 // requests at the same time, and failures until the end
	failures := make(chan error, n)
	var wait sync.WaitGroup
	free := make(chan struct{}, beside)
	answered := make([]bool, n)
	for i := range n {
		free <- struct{}{}
		if ctx.Err() != nil || len(failures) >= beside {
			break
		}
		wait.Go(func() {
			defer func() { <-free }()
			err := ask(i)
			if answered[i] = err == nil; err != nil {
				failures <- err
			}
		})
	}
	wait.Wait()
	missing := 0
	for _, ok := range answered {
		if !ok {
			missing++
		}
	}
	if missing == 0 {
		return nil
	}
	err := context.Cause(ctx)
	if len(failures) > 0 {
		err = <-failures
	}
	return fmt.Errorf("%d of %d %s could not be read: %w", missing, n, things, err)
}

// held reads what consumers hold on providers.
func (a *allocator) held(ctx context.Context, places []holding) (all []holding, unread error) {
	answers := make([]map[string]map[string]int, len(places))
	unread = askAll(ctx, len(places), "resource providers", func(i int) (err error) {
		answers[i], err = a.placement.HeldOn(ctx, places[i].Provider)
		return err
	})
	for i, answer := range answers {
		for _, consumer := range slices.Sorted(maps.Keys(answer)) {
			h := places[i]
			h.Consumer, h.Resources = consumer, answer[consumer]
			all = append(all, h)
		}
	}
	return all, unread
}

// suspect is a finding that may have been made while Nova was changing something.
type suspect struct {
	cleanup.AllocationFinding
	at       holding
	unproved string // why the device may be in use, where that was asked; "" if it is not
}

// still reads all allocations of the suspects' consumers into whole, and returns the allocations
// that still exist.
func (a *allocator) still(ctx context.Context, suspects []suspect, whole map[string]*cloud.Allocations) (again []holding, unread error) {
	var consumers []string
	for _, s := range suspects {
		consumers = append(consumers, s.Consumer)
	}
	slices.Sort(consumers)
	consumers = slices.Compact(consumers)
	answers := make([]*cloud.Allocations, len(consumers))
	unread = askAll(ctx, len(consumers), "consumers", func(i int) error {
		held, err := a.placement.Allocations(ctx, consumers[i])
		if err == nil {
			answers[i] = &held
		}
		return err
	})
	for i, consumer := range consumers {
		if answers[i] != nil {
			whole[consumer] = answers[i]
		}
	}
	for _, s := range suspects {
		if now := whole[s.Consumer]; now != nil && maps.Equal(now.Providers[s.Provider], s.Resources) {
			again = append(again, s.at)
		}
	}
	return again, unread
}

// chunk is how many consumers are looked up at a time.
const chunk = 1000

// judge judges allocations by new snapshots of the databases. whole has all allocations of the
// consumers, as far as they were read, when suspects are judged again.
func (a *allocator) judge(ctx context.Context, held []holding, whole map[string]*cloud.Allocations) (suspects []suspect, err error) {
	if len(held) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(held, func(x, y holding) int { return strings.Compare(x.Consumer, y.Consumer) })
	err = a.within(ctx, func(v *view) error {
		for some := range slices.Chunk(held, chunk) {
			known, err := v.consumers(ctx, a.all.API, some)
			if err != nil {
				return err
			}
			for _, h := range some {
				facts := known[cleanup.KeyOf(h.Consumer)].relativeTo(h)
				facts.Whole = whole[h.Consumer]
				found, recent := cleanup.ClassifyAllocation(h.Allocation, facts)
				if recent {
					a.report.Recent++
				}
				if found == nil {
					continue
				}
				one := suspect{AllocationFinding: *found, at: h}
				if i := slices.IndexFunc(v.readers, func(r *reader) bool { return r.cell.Name == h.Cell }); whole != nil && i >= 0 && h.Host != "" {
					if one.unproved, err = v.readers[i].unproved(ctx, one, facts.Changed); err != nil {
						return err
					}
				}
				suspects = append(suspects, one)
			}
		}
		return nil
	})
	return suspects, err
}

// known is what the databases know of a consumer.
type known struct {
	cleanup.Consumer
	instances []*reader // of the cell of each instance
	moves     []move    // of these instances, that are not over, or are evacuations that are done
}

// move is a migration with the reader of its cell.
type move struct {
	cleanup.Migration
	reader *reader
}

// noteChange keeps the age of a record, if it is the one that changed last.
func (k *known) noteChange(r *reader, at time.Time) {
	if k.Changed.IsZero() || r.now.Sub(at) < k.Now.Sub(k.Changed) {
		k.Changed, k.Now = at, r.now
	}
}

// relativeTo returns the facts about a consumer relative to the compute node of an allocation.
func (k *known) relativeTo(h holding) cleanup.Consumer {
	c := k.Consumer
	for n, i := range c.Instances {
		r := k.instances[n]
		if i.Deleted {
			continue
		}
		r.checkInstance(&i.Instance)
		c.Odd = cmp.Or(c.Odd, i.Odd)
		switch {
		case r.cell.Name != h.Cell:
		case i.On(h.node.Host, h.node.Name):
			c.Here = true
		case i.Host != nil && *i.Host == h.node.Host && !r.lives(i.Instance, h.node.Host):
			c.Lost = lostText(i.Instance)
		}
	}
	for _, m := range k.moves {
		m.reader.checkDestination(&m.Migration)
		if m.reader.cell.Name == h.Cell {
			c.Odd = cmp.Or(c.Odd, m.Doubtful(h.node))
		}
		c.Open = append(c.Open, m.Migration)
	}
	return c
}

// consumers reads what the databases know of the consumers of allocations. The keys are KeyOf their
// uuids.
func (v *view) consumers(ctx context.Context, api *sql.DB, held []holding) (map[string]*known, error) {
	all := map[string]*known{}
	var uuids []any
	for _, h := range held {
		if key := cleanup.KeyOf(h.Consumer); all[key] == nil {
			all[key] = &known{Consumer: cleanup.Consumer{Incomplete: v.incomplete}}
			uuids = append(uuids, h.Consumer)
		}
	}
	places := "(" + novadb.Places(len(uuids)) + ")"
	for _, r := range v.readers {
		if err := r.placed(ctx, all, places, uuids); err != nil {
			return nil, err
		}
		if err := r.moved(ctx, all, places, uuids); err != nil {
			return nil, err
		}
	}
	if api == nil {
		return all, nil
	}
	err := novadb.Query(ctx, api, "nova_api.instance_mappings", func(rows *sql.Rows) error {
		var uuid string
		var queued bool
		err := rows.Scan(&uuid, &queued)
		if c := all[cleanup.KeyOf(uuid)]; c != nil {
			c.Mapped, c.Queued = true, queued
		}
		return err
	}, "SELECT instance_uuid, COALESCE(queued_for_delete, 0) <> 0 FROM instance_mappings WHERE instance_uuid IN "+places, uuids...)
	if err != nil {
		return nil, err
	}
	// A build request exists until the instance is in a cell (nova/conductor/manager.py,
	// schedule_and_build_instances).
	return all, novadb.Query(ctx, api, "nova_api.build_requests", func(rows *sql.Rows) error {
		var uuid string
		err := rows.Scan(&uuid)
		if c := all[cleanup.KeyOf(uuid)]; c != nil {
			c.Requested = true
		}
		return err
	}, "SELECT COALESCE(instance_uuid, '') FROM build_requests WHERE instance_uuid IN "+places, uuids...)
}

// placed reads the instances among consumers.
func (r *reader) placed(ctx context.Context, all map[string]*known, places string, uuids []any) error {
	return r.query(ctx, "instances", func(rows *sql.Rows) error {
		var i cleanup.PlacedInstance
		var changed, deleted sql.NullTime
		err := rows.Scan(&i.UUID, &i.Host, &i.Node, &i.Compute, &i.VMState, &i.Task, &i.Deleted, &changed, &deleted)
		i.Cell, i.Changed = r.cell.Name, latest(changed, deleted)
		if c := all[cleanup.KeyOf(i.UUID)]; c != nil {
			c.Instances, c.instances = append(c.Instances, i), append(c.instances, r)
			c.noteChange(r, i.Changed)
		}
		return err
	}, "SELECT uuid, "+hostOf("i.host")+", "+nodeOf("i.host", "i.node")+", "+r.column("instances", "compute_id", "NULL")+
		", vm_state, task_state, COALESCE(deleted, 0) <> 0, COALESCE(updated_at, created_at), deleted_at FROM instances i WHERE uuid IN "+places, uuids...)
}

// moved reads the migrations among consumers, and the migrations of instances among them.
func (r *reader) moved(ctx context.Context, all map[string]*known, places string, uuids []any) error {
	own, err := r.migrations(ctx, r.column("migrations", "uuid", "NULL")+" IN "+places, uuids...)
	if err != nil {
		return err
	}
	for _, m := range own {
		if c := all[cleanup.KeyOf(m.UUID)]; c != nil {
			c.Migrations = append(c.Migrations, m)
			c.noteChange(r, m.Changed)
		}
	}
	of, err := r.migrations(ctx, "deleted = 0 AND instance_uuid IN "+places, uuids...)
	for _, m := range of {
		c := all[cleanup.KeyOf(m.Instance)]
		if c == nil {
			continue
		}
		c.noteChange(r, m.Changed)
		// nova-compute reads the record of an evacuation that is done when it starts, and then
		// removes the instance's allocations on its host (nova/compute/manager.py,
		// _destroy_evacuated_instances).
		if !m.Over() || m.Type == "evacuation" && m.Status == "done" {
			c.moves = append(c.moves, move{m.Migration, r})
		}
	}
	return err
}

// prove leaves the steps of findings only where guest reports prove that no guest uses the device, as
// of a row that is to be freed. The steps for an instance change all its allocations, so that each of
// them must be proved.
func (a *allocator) prove(suspects []suspect) {
	why, hosts := map[string]string{}, map[string][]string{}
	key := func(s suspect) string { return cleanup.KeyOf(cmp.Or(s.Instance, s.Consumer)) }
	for _, s := range suspects {
		why[key(s)] = cmp.Or(why[key(s)], s.unproved)
		if s.unproved != "" && !slices.Contains(hosts[key(s)], s.Host) {
			hosts[key(s)] = append(hosts[key(s)], s.Host)
		}
	}
	for i := range suspects {
		s := &suspects[i]
		if reason := why[key(*s)]; reason != "" && s.Verdict == cleanup.Suspicious {
			s.Reason += "; that no guest uses the device is not proved: " + reason
			s.Reports = hosts[key(*s)]
			s.Steps = cleanup.ReportSteps(a.options.Token, s.Reports...)
		}
	}
}

// unproved judges the rows of the device that an allocation is on, and returns why the device must
// not be released: the row of the device itself, and those of the VFs of the consumer, for VFs are
// allocated on the provider of their PF (nova/compute/pci_placement_translator.py).
func (r *reader) unproved(ctx context.Context, s suspect, since time.Time) (string, error) {
	address := strings.ToLower(s.Name[strings.LastIndexByte(s.Name, '_')+1:])
	devices, err := r.devices(ctx, "compute_node_id = ? AND (address = ? OR parent_addr = ? AND instance_uuid = ?)", s.at.node.ID, address, address, s.Instance)
	if err != nil {
		return "", err
	}
	rows, err := r.judge(ctx, devices)
	return s.Unproved(rows, cleanup.Facts{Now: r.now, Proof: r.proof}, since), err
}
