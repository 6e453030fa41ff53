package nova

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// removeSpecs drops the specs that only removed aliases use: those with exactly the ids of such an
// alias, whatever their address and tags. A spec that matches other devices too is not one alias's,
// and stays with a warning. It requires that the aliases are planned.
func (p *planner) removeSpecs(all []*value) error {
	hardware := devspec.NewHardware(p.options.Devices, p.options.Interfaces)
	var seen []string
	for _, removed := range p.options.InUse {
		vendor, product := removed.VendorID.String(), removed.ProductID.String()
		ids := vendor + ":" + product
		if slices.Contains(p.options.Remove, removed.Name) && !removed.HasIDs {
			p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("%s: alias %s has no ids: the device specs that it uses stay", removed.Where, removed.Name))
		}
		if !slices.Contains(p.options.Remove, removed.Name) || !removed.HasIDs || slices.Contains(seen, ids) || p.side().Wants(vendor, product) {
			continue
		}
		seen = append(seen, ids)
		dropped := false
		for _, s := range specsOf(all) {
			if s.Faulty || s.Vendor != vendor || s.Product != product {
				continue
			}
			if p.isFixed(s.source) {
				return p.fixed(s.source, s.line.Option.Line(), "--remove-alias", "would remove the line")
			}
			dropped, s.dropped = true, true
			p.plan.Removed = append(p.plan.Removed, s.line.Where()+": "+conf.Written(s.Object))
		}
		for _, s := range specsOf(all) {
			p.warnOfOffered(hardware, s, removed)
		}
		if dropped {
			p.warnOfGuests(removed)
		}
	}
	return nil
}

// warnOfOffered warns of a spec that stays and still offers devices of a removed alias.
func (p *planner) warnOfOffered(hardware devspec.Hardware, s *at, removed Named) {
	var offered []string
	for i := range hardware.Devices {
		if d := &hardware.Devices[i]; d.IsVendor(removed.VendorID) && d.ProductID != nil && *d.ProductID == removed.ProductID && hardware.Matches(s.Spec, d) {
			offered = append(offered, d.Address.String())
		}
	}
	if len(offered) > 0 {
		p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("%s: %s matches other devices too and stays: it still offers %s, which no alias requests",
			s.line.Where(), conf.Written(s.Object), strings.Join(offered, ", ")))
	}
}

// warnOfGuests warns of devices that a guest may use while they are no longer offered
// (nova/pci/manager.py, PciDevTracker._set_hvdevs: since Stein the record of such a device stays;
// nova/compute/pci_placement_translator.py, process_dev: it is skipped).
func (p *planner) warnOfGuests(removed Named) {
	text := fmt.Sprintf("alias %s: its devices, %s:%s, are no longer offered: nova-compute deletes the records of free devices when it starts, ",
		removed.Name, removed.VendorID, removed.ProductID)
	if p.options.Release < Stein {
		text += "and in " + p.options.Release.String() + " also those of devices that guests use, " +
			"which another guest could then be given: first delete or migrate the guests with such a device"
	} else {
		text += "keeps those of devices that guests use, and logs a warning about each of these until the guest is deleted or migrated"
	}
	var used []string
	for i := range p.options.Devices {
		d := &p.options.Devices[i]
		if guest := p.options.Guests[d.Address]; guest != "" && d.IsVendor(removed.VendorID) && d.ProductID != nil && *d.ProductID == removed.ProductID {
			used = append(used, d.Address.String()+" is in use by "+guest)
		}
	}
	if len(used) > 0 {
		text += ": " + strings.Join(used, ", ")
	}
	p.plan.Warnings = append(p.plan.Warnings, text)
}

// warnOfRemoval warns of flavors that request an alias that this machine has no more.
func (p *planner) warnOfRemoval() {
	for _, name := range p.options.Remove {
		if !slices.ContainsFunc(p.options.InUse, func(n Named) bool { return n.Name == name }) {
			continue // it did not exist before
		}
		if left, _ := p.side().named(Newest); slices.ContainsFunc(left, func(n Named) bool { return n.Name == name }) {
			continue
		}
		p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(
			"without alias %s Nova rejects builds, resizes and migrations of guests whose flavor requests it: %s shows the flavors",
			name, host.NewCommand("flavor list")))
	}
}

// Wants reports whether an alias of the files, under any name of the option, may select devices of a
// product.
func (s Side) Wants(vendor, product string) bool {
	return slices.ContainsFunc(s.Find(Newest.AliasNames()...), func(o Placed) bool {
		return slices.ContainsFunc(conf.ParseObjects(o.Value), func(alias map[string]any) bool {
			return CanMatch(map[string]any{"vendor_id": vendor, "product_id": product}, alias)
		})
	})
}
