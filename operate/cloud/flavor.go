package cloud

import (
	"context"
	"errors"
	"strings"

	"gpustack/host"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
	"gpustack/nova/novacheck"
)

// OfferOptions name the documents that show what compute nodes offer to flavors.
type OfferOptions struct {
	Inventories document.Source
	Confs       []nova.SideFiles
	Release     nova.Release // that reads Confs; zero for the installed one
}

// Offers are the configuration and the hardware of compute nodes against which flavors are checked.
type Offers struct {
	Release  nova.Release
	Sides    []nova.Side // nil without configuration files
	Hosts    []nova.Host // nil without inventories
	Warnings []string
}

// ReadOffers reads documents. The machine below root shows the installed release. The error joins
// those of all documents.
func ReadOffers(root host.Root, o OfferOptions) (Offers, error) {
	var offers Offers
	var err, releaseErr, sidesErr error
	offers.Hosts, err = nova.ReadInventories(o.Inventories, nova.ScopeGPUs)
	if len(o.Confs) > 0 {
		offers.Release, offers.Warnings, releaseErr = o.Release.OrInstalledFor(root, o.Confs)
		offers.Sides, sidesErr = nova.ReadSides(root, o.Inventories, o.Confs)
	}
	return offers, errors.Join(err, releaseErr, sidesErr)
}

// ListedFlavor is a flavor that requests devices, and whether hosts offer them.
type ListedFlavor struct {
	flavor.State // Projects is nil for a public flavor, and if the user may not see them
	// the devices that a guest requests; null if the request is malformed
	Request nova.Request `json:"request" null:"zero"`
	novacheck.Answer
}

// ListFlavors returns the flavors of a cloud that request devices, with a warning for each whose
// projects the user may not see.
func ListFlavors(ctx context.Context, c *cloud.Compute, offers Offers) (list []ListedFlavor, warnings []string, err error) {
	all, err := c.FlavorsWithSpecs(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range flavor.WithRequest(all) {
		item := offers.answer(f)
		if !f.Public {
			item.Projects, err = c.Access(ctx, f)
		}
		switch {
		case errors.Is(err, cloud.ErrForbidden):
			warnings = append(warnings, err.Error())
			item.Projects, err = nil, nil
		case err != nil:
			return nil, nil, err
		}
		list = append(list, item)
	}
	return list, warnings, nil
}

// answer checks the request of a flavor. A malformed one cannot be met.
func (o Offers) answer(f cloud.Flavor) ListedFlavor {
	item := ListedFlavor{State: flavor.State{Flavor: f}}
	request, err := nova.ParseRequest(f.ExtraSpecs[nova.RequestKey])
	if err != nil {
		item.Answer = novacheck.Answer{Met: host.No, Reason: strings.ReplaceAll(err.Error(), "\n", ", ")}
		return item
	}
	item.Request, item.Answer = request, novacheck.Request(request, o.Release, o.Sides, o.Hosts)
	return item
}
