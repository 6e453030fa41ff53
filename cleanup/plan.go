package cleanup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NewPlan makes units of the stale findings that gpustack can repair now. It leaves out findings
// with Needs. Migrations of one instance are closed together as far as that is proved to be safe;
// the unit of others is skipped.
func NewPlan(findings []Finding) []Unit {
	type key struct {
		cell     string
		repair   Repair
		instance string
		device   int64 // of a row without an owner
	}
	groups := map[key][]Finding{}
	for _, f := range findings {
		if f.Verdict != Stale || f.Needs != "" || f.Repair == NoRepair || f.Repair == ByNova {
			continue
		}
		k := key{cell: f.Cell, repair: f.Repair, instance: f.Claims}
		if f.Device.Instance != nil {
			k.instance = *f.Device.Instance
		}
		if k.instance == "" {
			k.device = f.Device.ID
		}
		groups[k] = append(groups[k], f)
	}
	list := []Unit{}
	for k, group := range groups {
		slices.SortFunc(group, func(a, b Finding) int { return cmp.Compare(a.Device.ID, b.Device.ID) })
		u := Unit{Cell: k.cell, Repair: k.repair, Instance: k.instance, Closings: []Closing{}, State: Planned, Rows: []Row{}, Reports: map[string]int64{}}
		if k.repair == Online {
			list = append(list, u.closeTogether(group)...)
			continue
		}
		u.Findings, u.Applies = group, group[0].Applies
		if k.repair == Reopen {
			u.Closings = group[0].Closings
		}
		for _, f := range group {
			u.Devices = append(u.Devices, Held{Device: f.Device, Host: f.Host, NodeName: f.Node, Card: f.card})
		}
		list = append(list, u)
	}
	for i := range list {
		u := &list[i]
		slices.SortFunc(u.Devices, func(a, b Held) int { return cmp.Compare(a.ID, b.ID) })
		u.FreedWith = u.freedWith()
	}
	slices.SortFunc(list, func(a, b Unit) int {
		return cmp.Or(strings.Compare(a.Cell, b.Cell), cmp.Compare(a.first(), b.first()), cmp.Compare(a.Devices[0].ID, b.Devices[0].ID))
	})
	return list
}

// freedWith returns the rows that Nova writes beside those of the unit's devices when it frees
// them, in the order of their ids. A row that is free keeps its relatives, a deleted one loses
// none, and a claimed one blocks them.
func (u Unit) freedWith() []Device {
	with := []Device{}
	if u.Keeps() {
		return with
	}
	var freed []Held
	for _, h := range u.Devices {
		of := func(f Finding) bool { return f.Device.ID == h.ID && (f.Case == CaseNode || f.Claims != "") }
		if h.Status != StatusAvailable && !slices.ContainsFunc(u.Findings, of) {
			freed = append(freed, h)
		}
	}
	for _, h := range freed {
		with = append(with, h.freedWith(freed)...)
	}
	slices.SortFunc(with, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(with, func(a, b Device) bool { return a.ID == b.ID })
}

// first returns the first migration that a unit closes, 0 for an offline repair.
func (u Unit) first() int64 {
	if len(u.Closings) == 0 {
		return 0
	}
	return u.Closings[0].Migration
}

// closeTogether returns a unit that closes the migrations of as many of an instance's findings as
// possible, and skipped units for the others. What is proved of two sets of migrations need not be
// proved of both: closing both can free a device that either set alone leaves to the other.
func (u Unit) closeTogether(findings []Finding) []Unit {
	all := []Unit{u}
	for _, f := range findings {
		ids := migrationsOf(f.Closings)
		together := &all[0]
		joined := f.closer.close(slices.Concat(migrationsOf(together.Closings), ids))
		if joined.unproved == "" {
			together.Closings, together.Applies, together.Devices, together.Vacated = joined.closings, joined.applies, joined.frees, joined.vacated
			together.Findings, together.Confirms = append(together.Findings, f), together.Confirms || f.Confirms
			continue
		}
		alone := u
		alone.Closings, alone.Devices, alone.Findings = f.Closings, slices.Clone(f.Frees), []Finding{f}
		alone.State = Skipped
		alone.Note = fmt.Sprintf("%s is closed first, because closing it together with %s is not proved to be safe: %s; run gpustack repair-migration again afterwards",
			together.Name(), alone.Name(), joined.unproved)
		all = append(all, alone)
	}
	return all
}

func migrationsOf(closings []Closing) (ids []int64) {
	for _, c := range closings {
		ids = append(ids, c.Migration)
	}
	return ids
}
