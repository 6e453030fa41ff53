package cleanup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NewPlan makes units of the stale findings that gpustack can repair now. It leaves out findings
// with Needs. Of several migrations of one instance only the first is closed: what the others
// need is known only after that.
func NewPlan(findings []Finding) []Unit {
	type key struct {
		cell      string
		repair    Repair
		instance  string
		migration int64
		device    int64 // of a row without an owner
	}
	units := map[key]*Unit{}
	for _, f := range findings {
		if f.Verdict != Stale || f.Needs != "" || f.Repair != Online && f.Repair != Offline {
			continue
		}
		instance := f.Claims
		if f.Device.Instance != nil {
			instance = *f.Device.Instance
		}
		k := key{cell: f.Cell, repair: f.Repair, instance: instance}
		switch {
		case f.Repair == Online:
			k.migration = *f.Migration
		case instance == "":
			k.device = f.Device.ID
		}
		u := units[k]
		if u == nil {
			u = &Unit{Cell: f.Cell, Repair: f.Repair, Instance: instance, Migration: k.migration, Closes: f.Closes, State: Planned,
				Rows: []Row{}, Reports: map[string]int64{}}
			units[k] = u
		}
		u.Findings = append(u.Findings, f)
		if f.Repair == Online {
			u.Devices = slices.Clone(f.Frees) // the same for each row that the migration keeps
		} else {
			u.Devices = append(u.Devices, Held{Device: f.Device, Host: f.Host, NodeName: f.Node})
		}
	}
	var list []Unit
	for _, u := range units {
		slices.SortFunc(u.Devices, func(a, b Held) int { return cmp.Compare(a.ID, b.ID) })
		slices.SortFunc(u.Findings, func(a, b Finding) int { return cmp.Compare(a.Device.ID, b.Device.ID) })
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b Unit) int {
		return cmp.Or(strings.Compare(a.Cell, b.Cell), cmp.Compare(a.Migration, b.Migration), cmp.Compare(a.Devices[0].ID, b.Devices[0].ID))
	})
	closed := map[string]int64{}
	for i := range list {
		u := &list[i]
		if u.Repair != Online {
			continue
		}
		if first, ok := closed[u.Cell+" "+u.Instance]; ok {
			u.State, u.Note = Skipped, fmt.Sprintf("migration %d of the same instance is closed first: run the command again afterwards", first)
			continue
		}
		closed[u.Cell+" "+u.Instance] = u.Migration
	}
	return list
}
