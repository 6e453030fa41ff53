package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"

	"gpustack/host"
)

// ErrUnknownName means that Placement has no resource class or no trait with a name.
var ErrUnknownName = errors.New("unknown to Placement")

// unknownName returns ErrUnknownName for Placement's answer to a query with a name that it does not
// have (placement/handlers/util.py; placement/lib.py: HTTP 400).
func unknownName(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusBadRequest && strings.Contains(e.Reason, "No such ") {
		e.Kind = ErrUnknownName
	}
	return err
}

// Serving returns the providers, of any place in a tree, that can serve an amount of a resource
// class by themselves and have the required traits. Errors: as for [Placement.Candidates].
func (p *Placement) Serving(ctx context.Context, class string, amount int, traits []string) ([]Provider, error) {
	options := resourceproviders.ListOpts{Resources: amounts(map[string]int{class: amount}), Required: strings.Join(traits, ",")}
	return p.providers(ctx, "resource providers with "+options.Resources, options)
}

func amounts(resources map[string]int) string {
	return strings.Join(host.Map(slices.Sorted(maps.Keys(resources)), func(class string) string {
		return fmt.Sprintf("%s:%d", class, resources[class])
	}), ",")
}

// Inventory is how much of a resource class a provider has.
type Inventory struct {
	Total, Reserved, Used int
	MaxUnit               int // the most that one guest gets
	Ratio                 float64
	Held                  map[string]int // amounts by consumer
}

// Free returns how much can still be allocated (placement/objects/allocation.py,
// _check_capacity_exceeded).
func (i Inventory) Free() int {
	return int(float64(i.Total-i.Reserved)*i.Ratio) - i.Used
}

// Inventories returns what a provider has, by resource class, with two requests.
func (p *Placement) Inventories(ctx context.Context, provider string) (map[string]Inventory, error) {
	all := map[string]Inventory{}
	err := p.cloud.ask(ctx, "inventories of resource provider "+provider, func(ctx context.Context) error {
		has, err := resourceproviders.GetInventories(ctx, p.client, provider).Extract()
		if err != nil {
			return err
		}
		held, err := resourceproviders.GetAllocations(ctx, p.client, provider).Extract()
		if err != nil {
			return err
		}
		for class, i := range has.Inventories {
			of := Inventory{Total: i.Total, Reserved: i.Reserved, MaxUnit: i.MaxUnit, Ratio: float64(i.AllocationRatio), Held: map[string]int{}}
			for consumer, a := range held.Allocations {
				if n := a.Resources[class]; n > 0 {
					of.Held[consumer], of.Used = n, of.Used+n
				}
			}
			all[class] = of
		}
		return nil
	})
	return all, err
}
