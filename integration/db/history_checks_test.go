package db

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
)

// offers are the functions that Nova can assign to a guest, as "gpu1 0000:84:00.0".
type offers struct {
	rows    map[string]bool // by their rows
	tracked map[string]bool // in the pools of the tracker, after it has loaded the rows and done an audit
	refused map[string]bool // hosts whose rows the tracker cannot load
	blocked map[string]bool // functions whose rows are blocked, although no row of their card is taken
}

func (p *play) offers() offers {
	o := offers{map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for i, h := range p.w.hosts {
		if h.deleted {
			continue
		}
		status := map[string]string{}
		for _, row := range database.find(p.t, "SELECT address, status FROM nova_cell1.pci_devices WHERE deleted = 0 AND compute_node_id = ?", p.w.nodes[i]) {
			status[row[0]] = row[1]
			o.rows[h.name+" "+row[0]] = row[1] == "available"
		}
		for _, f := range h.functions {
			o.blocked[h.name+" "+f.address] = status[f.address] == "unavailable" && !slices.ContainsFunc(h.family(f), func(x *function) bool { return blocks(f, status[x.address]) })
		}
		tracked := database.Track(p.t, database.Cell1, p.w.nodes[i], h.devices())
		o.refused[h.name] = tracked.Error != ""
		for _, address := range tracked.Free {
			o.tracked[h.name+" "+address] = true
		}
	}
	return o
}

// blocks returns whether a relative of a status may leave a function blocked: Nova frees a PF only
// if all its VFs are available, and a VF if its PF is not taken. A status that is not one of Nova's
// is to be corrected first.
func blocks(f *function, relative string) bool {
	switch relative {
	case "", "available":
		return false
	case "unavailable", "unclaimable":
		return f.kind == "type-PF"
	}
	return true
}

// devices is what the hypervisor of a host reports.
func (h *realHost) devices() (list []Device) {
	for _, f := range h.functions {
		d := Device{Address: f.address, VendorID: "10de", ProductID: "11b4", Type: f.kind, Parent: f.parent, DevID: devID(f.address), Label: "label_10de_11b4"}
		if f.kind != "type-PCI" {
			d.VendorID, d.ProductID, d.Label = "8086", "56c0", "label_8086_56c0"
		}
		list = append(list, d)
	}
	return list
}

// checkOffered: no function is offered after a run that was not before it, and that a guest uses,
// or its PF, or a VF of it.
func (p *play) checkOffered(before, after offers) {
	for _, h := range p.w.hosts {
		for _, f := range h.functions {
			name, why := h.name+" "+f.address, p.w.inGuest(h, f)
			if after.blocked[name] && !before.blocked[name] {
				p.fail("5: %s is left blocked, and nothing blocks it", name)
			}
			if why == "" {
				continue
			}
			switch {
			case after.rows[name] && !before.rows[name] && !before.tracked[name]:
				p.fail("1: %s was freed: %s", name, why)
			case after.tracked[name] && !before.tracked[name] && !before.refused[h.name]:
				p.fail("1: Nova's tracker frees %s: %s", name, why)
			}
		}
	}
}

// judge: no verdict of a run leads to a write or to a restart that frees a function in a guest.
func (p *play) judge(o *operator) {
	for _, found := range o.findings {
		h, err := p.w.host(found.Host)
		if err != nil {
			continue
		}
		f, err := h.function(found.Device.Address)
		if err != nil || found.Verdict != cleanup.Stale || found.Needs != "" || found.Case == cleanup.CaseContext {
			continue
		}
		if why := p.w.afterRestart(h, f); why != "" && found.Repair == cleanup.ByNova && strings.Contains(found.Steps.String(), "restart") {
			p.fail("1: case %s of %s %s is stale, with the advice to restart nova-compute: %s", found.Case, found.Host, f.address, why)
		}
	}
}

func (p *play) fail(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(p.wrong, text) {
		p.wrong = append(p.wrong, text)
	}
}

// disagree returns, by instance, how rows and allocations disagree.
func (p *play) disagree() map[string]string {
	held, err := p.lab.placement.Allocated(p.t.Context())
	hosttest.NoError(p.t, err)
	all := map[string]string{}
	for _, g := range p.w.guests {
		instance := database.find(p.t, "SELECT COALESCE(host, ''), deleted FROM nova_cell1.instances WHERE uuid = ?", g.uuid)
		if len(instance) != 1 || instance[0][1] != "0" {
			continue
		}
		host := instance[0][0]
		allowed, holdsHere := map[string]bool{host: true}, slices.Contains(held[g.uuid], host)
		for _, m := range database.find(p.t, "SELECT uuid, migration_type, status, source_compute, dest_compute FROM nova_cell1.migrations WHERE deleted = 0 AND instance_uuid = ?", g.uuid) {
			open := (&realMove{status: m[2]}).open()
			if evacuated := m[1] == "evacuation" && m[2] == "done"; open || evacuated {
				allowed[m[3]] = true
				allowed[m[4]] = allowed[m[4]] || open
			}
			if !open && len(held[m[0]]) > 0 {
				all[g.uuid] = fmt.Sprintf("migration %s is %s and holds %s", m[0][:8], m[2], held[m[0]])
			}
			holdsHere = holdsHere || slices.Contains(held[m[0]], host)
		}
		for _, provider := range held[g.uuid] {
			if !allowed[provider] {
				all[g.uuid] = fmt.Sprintf("instance %s is on %s, no migration is open there, and it holds %s", g.uuid[:8], host, held[g.uuid])
			}
		}
		if !holdsHere {
			all[g.uuid] = fmt.Sprintf("instance %s is on %s, and neither it nor a migration holds anything there", g.uuid[:8], host)
		}
	}
	return all
}

// checkAllocations: rows and allocations of an instance agree if they did before, and the ones have
// changed only with the others, or an open entry says that the outcome is unknown.
func (p *play) checkAllocations() {
	disagree := p.disagree()
	for _, uuid := range slices.Sorted(maps.Keys(disagree)) {
		if p.agreed[uuid] && !p.open(uuid) {
			p.fail("2: %s, and no entry is open", disagree[uuid])
		}
	}
	now := p.moved()
	for uuid, was := range p.before {
		if is := now[uuid]; is.statuses == was.statuses && is.held != was.held && !p.open(uuid) {
			p.fail("2: no migration of instance %s was closed, but instead of %s they hold %s, and no entry is open", uuid[:8], was.held, is.held)
		}
	}
}

// moved has the statuses of an instance's migrations, and what it and they hold.
type moved struct{ statuses, held string }

func (p *play) moved() map[string]moved {
	held, err := p.lab.placement.Allocated(p.t.Context())
	hosttest.NoError(p.t, err)
	all := map[string]moved{}
	for _, g := range p.w.guests {
		of := moved{held: fmt.Sprint(held[g.uuid])}
		for _, m := range database.find(p.t, "SELECT uuid, status FROM nova_cell1.migrations WHERE deleted = 0 AND instance_uuid = ? ORDER BY id", g.uuid) {
			of.statuses += " " + m[1]
			of.held += fmt.Sprint(" ", held[m[0]])
		}
		all[g.uuid] = of
	}
	return all
}

// open returns whether an entry of an operator says that a repair of an instance is unknown.
func (p *play) open(uuid string) bool {
	return slices.ContainsFunc(p.units(), func(u cleanup.Unit) bool { return u.Instance == uuid && u.Open() })
}

// units are those of all journals.
func (p *play) units() (all []cleanup.Unit) {
	for _, o := range p.lab.operators {
		for _, e := range o.entries {
			all = append(all, e.units...)
		}
	}
	return all
}

// requests returns the rows of instances on their own nodes whose request is among those of the
// instance or of its migration_context. For another one Nova raises KeyError at each hard reboot.
func (p *play) requests() map[string]bool {
	all := map[string]bool{}
	for _, row := range database.find(p.t, `SELECT d.id FROM nova_cell1.pci_devices d JOIN nova_cell1.compute_nodes n ON n.id = d.compute_node_id JOIN nova_cell1.instances i ON i.uuid = d.instance_uuid
		JOIN nova_cell1.instance_extra e ON e.instance_uuid = i.uuid WHERE d.deleted = 0 AND i.deleted = 0 AND i.host = n.host
		AND (INSTR(e.pci_requests, d.request_id) > 0 OR INSTR(e.migration_context, d.request_id) > 0)`) {
		all[row[0]] = true
	}
	return all
}

// checkRequests: no row that an instance still has on its node has lost its request.
func (p *play) checkRequests() {
	now := p.requests()
	for _, id := range slices.Sorted(maps.Keys(p.requested)) {
		if now[id] {
			continue
		}
		still := database.find(p.t, `SELECT d.instance_uuid FROM nova_cell1.pci_devices d JOIN nova_cell1.compute_nodes n ON n.id = d.compute_node_id JOIN nova_cell1.instances i ON i.uuid = d.instance_uuid
			WHERE d.id = ? AND d.deleted = 0 AND i.deleted = 0 AND i.host = n.host`, id)
		if len(still) > 0 {
			p.fail("6: the request of row %s is none of instance %s any more", id, still[0][0])
		}
	}
}

// checkStays: what an operator's journal calls written is so, and nobody has reverted it.
func (p *play) checkStays() {
	for _, o := range p.lab.operators {
		for _, e := range o.entries {
			for _, u := range e.units {
				if u.Written() {
					p.checkUnit(o, u)
				}
			}
		}
	}
}

func (p *play) checkUnit(o *operator, u cleanup.Unit) {
	for _, row := range u.Rows {
		for column, after := range row.After {
			if column == "updated_at" || column == "deleted_at" {
				continue
			}
			want := "NULL"
			if after != nil {
				want = *after
			}
			now := database.find(p.t, fmt.Sprintf("SELECT CAST(%s AS CHAR) FROM nova_cell1.%s WHERE id = %s", column, row.Table, row.Key))
			if len(now) != 1 || now[0][0] != want {
				p.fail("3: %s of %s was written by %s, and %s of row %s of %s is %q", u.Name(), u.Instance, o.name, column, row.Key, row.Table, now)
			}
		}
	}
	if u.Placement == nil {
		return
	}
	held, err := p.lab.placement.Allocated(p.t.Context())
	hosttest.NoError(p.t, err)
	for consumer, before := range u.Placement.Before.Migrations {
		if len(before.Providers) > 0 && len(held[consumer]) > 0 {
			p.fail("3: %s of %s was written by %s, and migration %s holds %s again", u.Name(), u.Instance, o.name, consumer[:8], held[consumer])
		}
	}
}

// count notes the repairs that must stay possible.
func (p *play) count() {
	for _, o := range p.lab.operators {
		for _, e := range o.entries {
			if closed := e.ended && !slices.ContainsFunc(e.units, cleanup.Unit.Open); closed && e.lost {
				p.progress["recovered after a lost COMMIT"]++
			} else if closed && e.killed {
				p.progress["recovered after a kill"]++
			}
			for _, u := range e.units {
				if !u.Written() {
					continue
				}
				p.progress["repaired "+string(u.Repair)]++
				if u.Applies {
					p.progress["a context applied"]++
				}
				if u.Repair == cleanup.Online && len(p.off) > 0 {
					p.progress["online with a host declared off"]++
				}
				if u.Confirms {
					p.progress["confirmed in place of a host that is off"]++
				}
				if u.Repair == cleanup.Online && len(p.reports) == 2 {
					p.progress["online with both reports"]++
				}
				for _, d := range u.Devices {
					if d.Type == cleanup.TypePF && p.absent(d.Host, d.Address) {
						p.progress["a PF whose family is absent"]++
					}
					if d.Status == "bogus" {
						p.progress["a status that is not Nova's"]++
					}
					if u.Repair == cleanup.Offline && slices.Contains(p.off, d.Host) {
						p.progress["offline on a host declared off"]++
					}
				}
			}
		}
	}
}

// absent returns whether no guest uses a function or one of its family.
func (p *play) absent(host, address string) bool {
	h, err := p.w.host(host)
	if err != nil {
		return false
	}
	f, err := h.function(address)
	return err == nil && p.w.inGuest(h, f) == ""
}
