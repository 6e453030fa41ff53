package cleanup

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"gpustack/nova/cloud"
)

// holds are allocations as "provider class amount, ...".
func holds(spec string) cloud.Allocations {
	a := cloud.Allocations{Providers: map[string]map[string]int{}}
	for part := range strings.SplitSeq(spec, ", ") {
		var provider, class string
		var amount int
		if n, _ := fmt.Sscan(part, &provider, &class, &amount); n != 3 {
			continue
		}
		if a.Providers[provider] == nil {
			a.Providers[provider] = map[string]int{}
		}
		a.Providers[provider][class] = amount
	}
	return a
}

func written(a cloud.Allocations) string {
	var parts []string
	for _, provider := range slices.Sorted(maps.Keys(a.Providers)) {
		for _, class := range slices.Sorted(maps.Keys(a.Providers[provider])) {
			parts = append(parts, fmt.Sprintf("%s %s %d", provider, class, a.Providers[provider][class]))
		}
	}
	return strings.Join(parts, ", ")
}

// TestSettle: what instance and migration hold is judged by whose provider it is. The
// instance is on here; card is a provider below here, far one below there.
func TestSettle(t *testing.T) {
	here, there := []string{"here", "card"}, []string{"there", "far"}
	for name, test := range map[string]struct {
		instance, migration string
		other               string // what a second migration that is closed too holds
		moving              bool   // a migration that is not closed holds here
		want                string // of the instance; its migrations hold nothing then
		unchanged           bool
		err                 string
	}{
		"nothing to do":           {instance: "here VCPU 1", want: "here VCPU 1", unchanged: true},
		"with a sharing provider": {instance: "here VCPU 1, share DISK_GB 80", want: "here VCPU 1, share DISK_GB 80", unchanged: true},
		"still where it was":      {instance: "there VCPU 1", migration: "here VCPU 1", want: "here VCPU 1"},
		"with its card":           {instance: "there VCPU 1, far PCI 1", migration: "here VCPU 1, card PCI 1", want: "card PCI 1, here VCPU 1"},
		"where it was going":      {instance: "here VCPU 1", migration: "there VCPU 1", want: "here VCPU 1"},
		"still where it was, shared disks": {instance: "there VCPU 4, share DISK_GB 160",
			migration: "here VCPU 1, share DISK_GB 80", want: "here VCPU 1, share DISK_GB 80"},
		"where it was going, shared disks": {instance: "here VCPU 4, share DISK_GB 160",
			migration: "there VCPU 1, share DISK_GB 80", want: "here VCPU 4, share DISK_GB 160"},
		"a shared address beside": {instance: "there VCPU 1, segment IPV4_ADDRESS 1", migration: "here VCPU 1",
			want: "here VCPU 1, segment IPV4_ADDRESS 1"},
		"still where it was, other shared disks": {instance: "there VCPU 1, share2 DISK_GB 20",
			migration: "here VCPU 1, share1 DISK_GB 10", want: "here VCPU 1, share1 DISK_GB 10"},
		"where it was going, other shared disks": {instance: "here VCPU 1, share2 DISK_GB 20",
			migration: "there VCPU 1, share1 DISK_GB 10", want: "here VCPU 1, share2 DISK_GB 20"},
		"own disks where it was, shared disks": {instance: "there VCPU 1, share2 DISK_GB 20",
			migration: "here VCPU 1, here DISK_GB 10", want: "here DISK_GB 10, here VCPU 1"},
		"other shared disks and an address beside": {instance: "there VCPU 1, share2 DISK_GB 20, share2 IPV4_ADDRESS 1", migration: "here VCPU 1, share1 DISK_GB 10", want: "here VCPU 1, share1 DISK_GB 10, share2 IPV4_ADDRESS 1"},
		"the same provider, an address beside":     {instance: "there VCPU 1, share DISK_GB 20, share IPV4_ADDRESS 1", migration: "here VCPU 1, share DISK_GB 10", want: "here VCPU 1, share DISK_GB 10, share IPV4_ADDRESS 1"},
		"an evacuation in error":                   {instance: "here VCPU 1, card PCI 1, there VCPU 1, far PCI 1", want: "card PCI 1, here VCPU 1"},
		"an evacuation, shared disks":              {instance: "here VCPU 1, there VCPU 1, share DISK_GB 80", want: "here VCPU 1, share DISK_GB 80"},
		"both hold here":                           {instance: "here VCPU 1", migration: "here VCPU 1", err: "both have"},
		"neither holds here":                       {instance: "there VCPU 1", err: "neither has"},
		"nothing at all":                           {err: "neither has"},
		"only shared disks":                        {instance: "share DISK_GB 80", err: "neither has"},
		"a third node":                             {instance: "here VCPU 1, third VCPU 1", err: "a third compute node"},
		"a third node's card":                      {instance: "here VCPU 1, third CUSTOM_PCI_10DE_11B4 1, share DISK_GB 80", err: "a third compute node"},
		"the migration holds a third node":         {instance: "here VCPU 1", migration: "third VCPU 1", err: "a third compute node"},
		"both hosts, and a migration":              {instance: "here VCPU 1, there VCPU 1", migration: "far PCI 1", err: "allocations on both hosts"},
		// Several migrations are closed.
		"two, still where it was":    {instance: "there VCPU 1", migration: "here VCPU 1", other: "far PCI 1", want: "here VCPU 1"},
		"two, the other one has it":  {instance: "far PCI 1", migration: "there VCPU 1", other: "here VCPU 1, card PCI 1", want: "card PCI 1, here VCPU 1"},
		"two, where it was going":    {instance: "here VCPU 1", migration: "there VCPU 1", other: "far PCI 1", want: "here VCPU 1"},
		"two, both hold here":        {instance: "there VCPU 1", migration: "here VCPU 1", other: "card PCI 1", err: "several migrations have"},
		"two, one on a third node":   {instance: "here VCPU 1", migration: "there VCPU 1", other: "third VCPU 1", err: "a third compute node"},
		"two, evacuations and a try": {instance: "there VCPU 1", migration: "here VCPU 1, far PCI 1", other: "", want: "here VCPU 1"},
		// A migration is left open.
		"what the open one needs":              {instance: "here VCPU 1, open VCPU 1", want: "here VCPU 1, open VCPU 1", unchanged: true},
		"and what it does not need":            {instance: "here VCPU 1, open VCPU 1, there VCPU 1", want: "here VCPU 1, open VCPU 1"},
		"the open one holds here":              {instance: "open VCPU 1", moving: true, want: "open VCPU 1", unchanged: true},
		"the open one holds here, and another": {instance: "open VCPU 1, there VCPU 1", moving: true, want: "open VCPU 1"},
		"the closed one and the open one":      {instance: "open VCPU 1", migration: "here VCPU 1", moving: true, err: "several migrations have"},
		"the closed one holds here":            {instance: "open VCPU 1", migration: "here VCPU 1", want: "here VCPU 1, open VCPU 1"},
		"the closed one holds what is needed":  {instance: "there VCPU 1", migration: "here VCPU 1, open PCI 1", want: "here VCPU 1, open PCI 1"},
	} {
		t.Run(name, func(t *testing.T) {
			sites := Sites{Here: here, There: there, Kept: []string{"open"}, Moving: test.moving}
			b := Allocations{holds(test.instance), map[string]cloud.Allocations{"m1": holds(test.migration), "m2": holds(test.other)}}
			after, err := b.Settle(sites)
			changed := !after.Same(b)
			if test.err != "" {
				if !errors.Is(err, errAllocations) || !strings.Contains(err.Error(), test.err) || changed {
					t.Errorf("%v, changed %v", err, changed)
				}
				return
			}
			if got := written(after.Instance); err != nil || got != test.want || changed == test.unchanged ||
				len(after.Migrations["m1"].Providers)+len(after.Migrations["m2"].Providers) > 0 {
				t.Errorf("%q, %s, changed %v, %v", got, after.Text(), changed, err)
			}
			if written(b.Instance) != written(holds(test.instance)) || written(b.Migrations["m1"]) != written(holds(test.migration)) {
				t.Error("what was before has changed")
			}
			again, err := after.Settle(sites)
			if err != nil || !again.Same(after) || written(again.Instance) != test.want {
				t.Errorf("again: %q, %v", written(again.Instance), err)
			}
		})
	}
	// An instance on no node holds nothing on any.
	for _, test := range []struct{ instance, migration, want string }{
		{"", "", ""}, {"there VCPU 1, open VCPU 1", "far PCI 1", "open VCPU 1"}, {"third VCPU 1", "", "a third compute node"},
	} {
		b := Allocations{holds(test.instance), map[string]cloud.Allocations{"m1": holds(test.migration)}}
		after, err := b.Settle(Sites{Nowhere: true, There: there, Kept: []string{"open"}})
		if err != nil && strings.Contains(err.Error(), test.want) && test.want != "" {
			continue
		}
		if got := written(after.Instance); err != nil || got != test.want || len(after.Migrations["m1"].Providers) > 0 {
			t.Errorf("%+v: %s, %v", test, after.Text(), err)
		}
	}
	if _, err := (Allocations{Instance: holds("there VCPU 1")}).Settle(Sites{There: there}); !errors.Is(err, errAllocations) {
		t.Errorf("no provider of the instance's node: %v", err)
	}
}
