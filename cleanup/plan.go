package cleanup

import (
	"cmp"
	"slices"
	"strings"

	"gpustack/host"
)

// NewPlan makes units of the stale findings that gpustack can repair now. It leaves out findings
// with Needs.
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
		k := key{cell: f.Cell, repair: f.Repair, instance: host.Or(f.Device.Instance, f.Claims)}
		if k.instance == "" {
			k.device = f.Device.ID
		}
		groups[k] = append(groups[k], f)
	}
	list := []Unit{}
	for k, group := range groups {
		slices.SortFunc(group, func(a, b Finding) int { return cmp.Compare(a.Device.ID, b.Device.ID) })
		one := group[0] // what it says of the instance, all say
		u := Unit{Cell: k.cell, Repair: k.repair, Instance: k.instance, Closings: one.Closings, Applies: one.Applies, Confirms: one.Confirms,
			Devices: slices.Clone(one.Frees), Places: one.places, Findings: group, State: Planned, Rows: []Row{}, Reports: map[string]int64{}}
		for _, f := range group {
			if k.repair == Online {
				break
			}
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
		return cmp.Or(strings.Compare(a.Cell, b.Cell), cmp.Compare(a.first(), b.first()), cmp.Compare(a.Findings[0].Device.ID, b.Findings[0].Device.ID))
	})
	return list
}

// freedWith returns the rows that Nova writes beside those of the unit's devices when it frees
// them, in the order of their ids. A row that is free keeps its relatives, a deleted one loses
// none, and a claimed one blocks them.
func (u Unit) freedWith() []Device {
	var freed, known []Device
	for _, h := range u.Devices {
		of := func(f Finding) bool { return f.Device.ID == h.ID && (f.Case == CaseNode || f.Claims != "") }
		if !u.Keeps() && h.Status != StatusAvailable && !slices.ContainsFunc(u.Findings, of) {
			freed, known = append(freed, h.Device), append(known, h.Card...)
		}
	}
	return append([]Device{}, FreedWith(freed, known)...)
}

// first returns the first migration that a unit closes, 0 for an offline repair.
func (u Unit) first() int64 {
	if len(u.Closings) == 0 {
		return 0
	}
	return u.Closings[0].Migration
}
