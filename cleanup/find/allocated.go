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

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/nova/cloud"
)

// Placement reads resource providers and allocations.
type Placement interface {
	PCIProviders(ctx context.Context) ([]cloud.Provider, error)
	HeldOn(ctx context.Context, provider string) (map[string]map[string]int, error)
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
	suspects, err := a.judge(ctx, held, false)
	if err == nil && len(suspects) > 0 {
		still, unreadAgain := a.held(ctx, placesOf(suspects))
		unread = errors.Join(unread, unreadAgain)
		still = slices.DeleteFunc(still, func(h holding) bool {
			return !slices.ContainsFunc(suspects, func(s suspect) bool {
				return s.Provider == h.Provider && s.Consumer == h.Consumer && maps.Equal(s.Resources, h.Resources)
			})
		})
		suspects, err = a.judge(ctx, still, true)
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

// heldOn returns what consumers hold on providers, as far as Placement answers, by provider and
// consumer. unread has the first failure, with the number of providers whose answer is missing.
func heldOn(ctx context.Context, p Placement, providers []string) (held map[string]map[string]map[string]int, unread error) {
	answers := make([]map[string]map[string]int, len(providers))
	unread = cloud.AskAll(ctx, len(providers), "resource providers", func(i int) error {
		answer, err := p.HeldOn(ctx, providers[i])
		if err == nil {
			answers[i] = answer
		}
		return err
	})
	held = map[string]map[string]map[string]int{}
	for i, answer := range answers {
		if answer != nil {
			held[providers[i]] = answer
		}
	}
	return held, unread
}

// held reads what consumers hold on providers.
func (a *allocator) held(ctx context.Context, places []holding) (all []holding, unread error) {
	var providers []string
	for _, h := range places {
		providers = append(providers, h.Provider)
	}
	held, unread := heldOn(ctx, a.placement, providers)
	for _, h := range places {
		for _, consumer := range slices.Sorted(maps.Keys(held[h.Provider])) {
			h.Consumer, h.Resources = consumer, held[h.Provider][consumer]
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

// placesOf returns the providers that suspects are about, each once.
func placesOf(suspects []suspect) (places []holding) {
	seen := map[string]bool{}
	for _, s := range suspects {
		if h := s.at; !seen[h.Provider] {
			seen[h.Provider], h.Consumer, h.Resources = true, "", nil
			places = append(places, h)
		}
	}
	return places
}

// chunk is how many consumers are looked up at a time.
const chunk = 1000

// judge judges allocations by new snapshots of the databases; again says that they were judged before,
// so that it is asked whether a guest uses their devices.
func (a *allocator) judge(ctx context.Context, held []holding, again bool) (suspects []suspect, err error) {
	byCell := map[string][]holding{}
	for _, h := range held {
		byCell[h.Cell] = append(byCell[h.Cell], h)
	}
	if len(byCell) == 0 {
		return nil, nil
	}
	err = a.within(ctx, func(v *view) error {
		for _, cell := range slices.Sorted(maps.Keys(byCell)) {
			for some := range slices.Chunk(byCell[cell], chunk) {
				found, err := a.judgeSome(ctx, v, some, again)
				if err != nil {
					return err
				}
				suspects = append(suspects, found...)
			}
		}
		return nil
	})
	return suspects, err
}

// judgeSome judges allocations on the nodes of one cell, or on nodes of none.
func (a *allocator) judgeSome(ctx context.Context, v *view, held []holding, again bool) (suspects []suspect, err error) {
	r := v.readers[max(0, slices.IndexFunc(v.readers, func(r *reader) bool { return r.cell.Name == held[0].Cell }))]
	moves, building, err := v.consumers(ctx, a.all.API, held)
	if err != nil {
		return nil, err
	}
	var devices []cleanup.Device
	for k, h := range held {
		instance := h.Consumer
		if list := moves[cleanup.KeyOf(h.Consumer)]; len(list) > 0 {
			instance = list[0].Instance
		}
		devices = append(devices, cleanup.Device{ID: -int64(k + 1), Node: h.node.ID, Address: h.address(), Type: cleanup.TypePCI,
			Status: cleanup.StatusAllocated, Instance: &instance})
	}
	e, err := r.read(ctx, devices)
	if err != nil {
		return nil, err
	}
	// A migration across cells depends on the other cell even if the instance is here.
	e.incomplete = cmp.Or(e.incomplete, v.incomplete)
	var deleted []any // here; in another cell they may exist
	for _, d := range devices {
		if i, there := e.instances[cleanup.KeyOf(*d.Instance)]; there && i.Deleted {
			deleted = append(deleted, *d.Instance)
		}
	}
	if len(deleted) > 0 {
		r.lookElsewhere(ctx, &e, deleted)
	}
	for k, h := range held {
		if building[cleanup.KeyOf(h.Consumer)] {
			a.report.Recent++
			continue
		}
		d, f, list := devices[k], r.facts(e, devices[k]), moves[cleanup.KeyOf(h.Consumer)]
		found, recent := cleanup.ClassifyAllocation(h.Allocation, d, f, list)
		if recent {
			a.report.Recent++
		}
		if found == nil {
			continue
		}
		one := suspect{AllocationFinding: *found, at: h}
		if again && h.Host != "" {
			// VFs are allocated on the provider of their PF
			// (nova/compute/pci_placement_translator.py).
			rows, err := r.devices(ctx, "compute_node_id = ? AND (address = ? OR parent_addr = ? AND instance_uuid = ?)",
				h.node.ID, d.Address, d.Address, found.Instance)
			if err != nil {
				return nil, err
			}
			judged, err := r.judge(ctx, rows)
			if err != nil {
				return nil, err
			}
			one.unproved = found.Unproved(judged, d, f, list)
		}
		suspects = append(suspects, one)
	}
	return suspects, nil
}

// address returns the address in the name of the provider.
func (h holding) address() string {
	return strings.ToLower(h.Name[strings.LastIndexByte(h.Name, '_')+1:])
}

// consumers returns the migrations with the uuids of consumers, of all cells, deleted ones too, and
// the instances that are in no cell yet. The keys are KeyOf the uuids.
func (v *view) consumers(ctx context.Context, api *sql.DB, held []holding) (moves map[string][]cleanup.ContextMigration, building map[string]bool, err error) {
	moves, building = map[string][]cleanup.ContextMigration{}, map[string]bool{}
	var uuids []any
	for _, h := range held {
		uuids = append(uuids, h.Consumer)
	}
	places := "(" + novadb.Places(len(uuids)) + ")"
	for _, r := range v.readers {
		list, err := r.migrations(ctx, r.column("migrations", "uuid", "NULL")+" IN "+places, uuids...)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range list {
			moves[cleanup.KeyOf(m.UUID)] = append(moves[cleanup.KeyOf(m.UUID)], m)
		}
	}
	if api == nil {
		return moves, building, nil
	}
	// A build request exists until the instance is in a cell (nova/conductor/manager.py,
	// schedule_and_build_instances).
	err = novadb.Query(ctx, api, "nova_api.build_requests", func(rows *sql.Rows) error {
		var uuid string
		err := rows.Scan(&uuid)
		building[cleanup.KeyOf(uuid)] = true
		return err
	}, "SELECT COALESCE(instance_uuid, '') FROM build_requests WHERE instance_uuid IN "+places, uuids...)
	return moves, building, err
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
