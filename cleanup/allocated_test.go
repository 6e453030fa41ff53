package cleanup

import (
	"strings"
	"testing"
	"time"

	"gpustack/nova/cloud"
)

func TestClassifyAllocation(t *testing.T) {
	long := now.Add(-time.Hour)
	at := func(spec string) []PlacedInstance {
		return []PlacedInstance{{Instance: *instance(spec), Cell: "cell1"}}
	}
	record := func(spec string, deleted bool) []ContextMigration {
		return []ContextMigration{{Migration: migration(spec), Found: true, Deleted: deleted}}
	}
	towards := func(spec string) []Migration {
		return []Migration{migration(spec)}
	}
	crossing := migration("migration finished gpu3 gpu4")
	crossing.CrossCell = true
	cpus := &cloud.Allocations{Providers: map[string]map[string]int{"root": {"VCPU": 8}, "gpu": {"CUSTOM_PCI_10DE_11B4": 1}}}
	alone := &cloud.Allocations{Providers: map[string]map[string]int{"gpu": {"CUSTOM_PCI_10DE_11B4": 1}}}
	for name, test := range map[string]struct {
		c    Consumer
		want string // "" for a legitimate one
	}{
		// Never reported.
		"an instance here":                          {c: Consumer{Instances: at("active @gpu1"), Here: true}},
		"an instance in a task":                     {c: Consumer{Instances: at("active migrating @gpu2")}},
		"an instance that is built":                 {c: Consumer{Instances: at("building")}},
		"a resized one":                             {c: Consumer{Instances: at("resized @gpu2")}},
		"an instance that migrates here":            {c: Consumer{Instances: at("active @gpu2"), Open: towards("migration migrating gpu2 gpu1")}},
		"in error (case B)":                         {c: Consumer{Instances: at("active @gpu2"), Open: towards("migration error gpu2 gpu1")}},
		"across cells":                              {c: Consumer{Instances: at("active @gpu2"), Open: []Migration{crossing}}},
		"evacuated, until the host returns (11.11)": {c: Consumer{Instances: at("active @gpu2"), Open: towards("evacuation done gpu1 gpu2")}},
		"a migration that waits to be confirmed":    {c: Consumer{Migrations: record("migration finished gpu1 gpu2", false)}},
		"a migration in error":                      {c: Consumer{Migrations: record("migration error gpu1 gpu2", false)}},
		"deleted in the source cell":                {c: Consumer{Instances: append(at("deleted"), at("active @gpu1")...), Here: true}},
		"over in one of two cells":                  {c: Consumer{Migrations: append(record("migration confirmed gpu1 gpu2", false), record("migration finished gpu1 gpu2", false)...)}},
		// Not judged yet.
		"deleted just now":          {c: Consumer{Instances: at("deleted"), Changed: now.Add(-time.Minute)}, want: "recent"},
		"moved just now":            {c: Consumer{Instances: at("active @gpu2"), Changed: now}, want: "recent"},
		"confirmed just now":        {c: Consumer{Migrations: record("migration confirmed gpu1 gpu2", false), Changed: now.Add(-4 * time.Minute)}, want: "recent"},
		"in no cell yet":            {c: Consumer{Requested: true, Mapped: true}, want: "recent"},
		"in no cell yet, no record": {c: Consumer{Requested: true}, want: "recent"},
		// P.
		"deleted":                  {c: Consumer{Instances: at("deleted")}, want: "P suspicious: the instance is deleted"},
		"elsewhere":                {c: Consumer{Instances: at("active @gpu2")}, want: "P suspicious: the instance is on gpu2, and no open migration of it is to or from gpu1"},
		"elsewhere, another moves": {c: Consumer{Instances: at("active @gpu2"), Open: []Migration{migration("migration migrating gpu2 gpu3")}}, want: "P suspicious: the instance is on gpu2, and no open migration of it is to or from gpu1"},
		"shelved and offloaded":    {c: Consumer{Instances: at("shelved_offloaded")}, want: "P suspicious: the instance is on no host, and no open migration of it is to or from gpu1"},
		"a migration that is over": {c: Consumer{Migrations: record("migration failed gpu1 gpu2", false)}, want: "P suspicious: migration 12 (migration) 'failed' gpu1->gpu2 is over, but still holds the allocation"},
		"a migration of a deleted instance": {c: Consumer{Migrations: record("migration error gpu1 gpu2", true), Incomplete: "cell2 does not answer"},
			want: "P suspicious: migration 12 (migration) 'error' gpu1->gpu2 is deleted, but still holds the allocation"},
		"purged, by its mapping":   {c: Consumer{Mapped: true, Queued: true}, want: "P suspicious: the instance is deleted, and its row is purged"},
		"purged, by what it holds": {c: Consumer{Whole: cpus}, want: "P suspicious: no cell has an instance or a migration with this uuid, but it holds CPUs or memory, as these do: its row is purged"},
		// Not of Nova, or not known.
		"of another service":          {c: Consumer{Whole: alone}, want: " unknown: no cell has an instance or a migration with this uuid: its row is purged, or the consumer is not of Nova"},
		"a cell is not read":          {c: Consumer{Incomplete: "cell2 does not answer"}, want: " unknown: the consumer was not found, or is deleted in one cell, but cell2 does not answer"},
		"deleted, a cell is not read": {c: Consumer{Instances: at("deleted"), Incomplete: "cell2 does not answer"}, want: " unknown: the consumer was not found, or is deleted in one cell, but cell2 does not answer"},
		"over in one cell, and the other is not read": {c: Consumer{Migrations: []ContextMigration{{Migration: func() Migration { m := migration("resize confirmed gpu1 gpu2"); m.CrossCell = true; return m }()}}, Incomplete: "cell2 does not answer"},
			want: " unknown: migration 12 (resize) 'confirmed' gpu1->gpu2 is over, but crosses cells, and cell2 does not answer"},
		"mapped, but no cell has it":   {c: Consumer{Mapped: true}, want: " unknown: the consumer is an instance that is mapped to a cell, but no cell has it"},
		"here, and a cell is not read": {c: Consumer{Instances: at("active @gpu1"), Here: true, Incomplete: "cell2 does not answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			test.c.Now = now
			if test.c.Changed.IsZero() && len(test.c.Instances)+len(test.c.Migrations) > 0 {
				test.c.Changed = long
			}
			a := Allocation{Cell: "cell1", Host: "gpu1", Node: "gpu1", Provider: "gpu", Name: "gpu1_0000:84:00.0", Consumer: u, Resources: map[string]int{"CUSTOM_PCI_10DE_11B4": 1}}
			f, recent := ClassifyAllocation(a, test.c)
			got := ""
			switch {
			case recent:
				got = "recent"
			case f != nil:
				got = strings.Join([]string{string(f.Case), string(f.Verdict) + ":", f.Reason}, " ")
				if f.Steps == "" || !strings.Contains(f.Evidence, "consumer "+u+" holds CUSTOM_PCI_10DE_11B4=1 on gpu1_0000:84:00.0") {
					t.Errorf("%+v", f)
				}
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
