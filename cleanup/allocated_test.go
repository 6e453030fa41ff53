package cleanup

import (
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

func TestClassifyAllocation(t *testing.T) {
	record := func(spec string, deleted bool) []ContextMigration {
		m := migration(spec)
		m.Changed = now.Add(-time.Hour)
		return []ContextMigration{{Migration: m, Found: true, Deleted: deleted}}
	}
	towards := func(spec string) []Migration {
		return []Migration{migration(spec)}
	}
	across := record("resize confirmed gpu1 gpu2", false)
	across[0].CrossCell = true
	recently := func(spec string, ago time.Duration) *Instance {
		i, at := instance(spec), now.Add(-ago)
		i.Changed = &at
		return i
	}
	for name, test := range map[string]struct {
		f     Facts
		moves []ContextMigration
		want  string // "" for a legitimate one
	}{
		// Never reported.
		"an instance here":                          {f: Facts{Instance: instance("active @gpu1")}},
		"an instance in a task":                     {f: Facts{Instance: instance("active migrating @gpu2")}},
		"an instance that is built":                 {f: Facts{Instance: instance("building")}},
		"a resized one":                             {f: Facts{Instance: instance("resized @gpu2")}},
		"an instance that migrates here":            {f: Facts{Instance: instance("active @gpu2"), Migrations: towards("migration migrating gpu2 gpu1")}},
		"in error (case B)":                         {f: Facts{Instance: instance("active @gpu2"), Migrations: towards("migration error gpu2 gpu1")}},
		"evacuated, until the host returns (11.11)": {f: Facts{Instance: instance("active @gpu2"), Migrations: towards("evacuation done gpu1 gpu2")}},
		"evacuated, and its guest is still here": {f: Facts{Instance: instance("active @gpu2"),
			Migrations: towards("evacuation done gpu1 gpu2"), Proof: reports{holder: u}}},
		"a migration that waits to be confirmed": {moves: record("migration finished gpu1 gpu2", false)},
		"a migration in error":                   {moves: record("migration error gpu1 gpu2", false)},
		"over in one of two cells": {moves: append(record("migration confirmed gpu1 gpu2", false),
			record("migration finished gpu1 gpu2", false)...)},
		"here, and a cell is not read": {f: Facts{Instance: instance("active @gpu1"), Incomplete: "cell2 does not answer"}},
		// Not judged yet.
		"deleted just now": {f: Facts{Instance: recently("deleted", time.Minute)}, want: "recent"},
		"moved just now":   {f: Facts{Instance: recently("active @gpu2", 0)}, want: "recent"},
		// P.
		"deleted": {f: Facts{Instance: recently("deleted", time.Hour)}, want: "P suspicious: the instance is deleted"},
		"elsewhere": {f: Facts{Instance: recently("active @gpu2", time.Hour)},
			want: "P suspicious: the instance is on gpu2, and no open migration of it is to or from gpu1"},
		"elsewhere, another moves": {f: Facts{Instance: recently("active @gpu2", time.Hour),
			Migrations: towards("migration migrating gpu2 gpu3")}, want: "P suspicious: the instance is on gpu2, and no open migration of it is to or from gpu1"},
		"shelved and offloaded": {f: Facts{Instance: recently("shelved_offloaded", time.Hour)},
			want: "P suspicious: the instance is on no host, and no open migration of it is to or from gpu1"},
		"elsewhere, and another guest uses the device": {f: Facts{Instance: recently("active @gpu2", time.Hour), Proof: reports{holder: "other"}},
			want: "P suspicious: the instance is on gpu2, and no open migration of it is to or from gpu1"},
		"a migration that is over": {moves: record("migration failed gpu1 gpu2", false),
			want: "P suspicious: migration 12 (migration) 'failed' gpu1->gpu2 is over, but still holds the allocation"},
		"a migration of a deleted instance": {moves: record("migration error gpu1 gpu2", true), f: Facts{Incomplete: "cell2 does not answer"},
			want: "P suspicious: migration 12 (migration) 'error' gpu1->gpu2 is deleted, but still holds the allocation"},
		"purged, by its mapping": {f: Facts{Purged: true}, want: "P suspicious: the instance is deleted, and its row is purged"},
		"over, across cells":     {moves: across, want: "P suspicious: migration 12 (resize) 'confirmed' gpu1->gpu2 is over, but still holds the allocation"},
		// Not of Nova, or not known.
		"over in this cell, the other is not read": {moves: across, f: Facts{Instance: instance("active @gpu2"), Incomplete: "cell2 does not answer"},
			want: " unknown: migration 12 (resize) 'confirmed' gpu1->gpu2 is over, but crosses cells, and cell2 does not answer"},
		"of another service": {want: " unknown: no cell has an instance or a migration with this uuid: its row is purged, or the consumer is not of Nova"},
		"a cell is not read": {f: Facts{Incomplete: "cell2 does not answer"},
			want: " unknown: the instance was not found, but cell2 does not answer"},
		"not read, and another guest uses it": {f: Facts{Incomplete: "cell2 does not answer", Proof: reports{holder: "other"}},
			want: " unknown: the instance was not found, but cell2 does not answer"},
		"deleted here, not elsewhere": {f: Facts{Instance: recently("deleted", time.Hour), OtherCell: "cell2"},
			want: " unknown: the instance is deleted in this cell, but it is in cell cell2"},
		"deleted, and a cell is not read": {f: Facts{Instance: recently("deleted", time.Hour), Incomplete: "cell2 does not answer"},
			want: " unknown: the instance is deleted in this cell, but cell2 does not answer"},
		"in another cell":            {f: Facts{OtherCell: "cell2"}, want: " unknown: the instance is in cell cell2"},
		"mapped, but no cell has it": {f: Facts{Mapped: true}, want: " unknown: the instance is mapped to a cell, but no cell has it"},
		"odd": {f: Facts{Instance: instance("active @gpu1"), Odd: []string{"its node is NULL"}},
			want: " unknown: its node is NULL"},
	} {
		t.Run(name, func(t *testing.T) {
			f := test.f
			f.Now, f.Down, f.Node, f.Service = now, time.Minute, &gpu1, service(gpu1, time.Second)
			place(&f)
			a := Allocation{Cell: "cell1", Host: "gpu1", Node: "gpu1", Provider: "gpu", Name: "gpu1_0000:84:00.0", Consumer: u, Resources: map[string]int{"CUSTOM_PCI_10DE_11B4": 1}}
			found, recent := ClassifyAllocation(a, device(gpu1, StatusAllocated, u), f, test.moves)
			got := ""
			switch {
			case recent:
				got = "recent"
			case found != nil:
				got = strings.Join([]string{string(found.Case), string(found.Verdict) + ":", found.Reason}, " ")
				if len(found.Steps) == 0 || !strings.Contains(found.Evidence, "consumer "+u+" holds CUSTOM_PCI_10DE_11B4=1 on gpu1_0000:84:00.0") {
					t.Errorf("%+v", found)
				}
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}
