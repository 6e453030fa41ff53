package nova

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// Errors of device_spec. Nova gives a device the tags of the first spec that matches it
// (nova/pci/whitelist.py, get_devspec), and ignores specs that follow.
var (
	// ErrSpecConflict says that no order of two specs keeps the effect of both.
	ErrSpecConflict = host.WithHint(host.WithCode(errors.New("conflicts with the planned device_spec"), host.CodeSpecConflict, ""),
		"change or remove that spec, or plan the same tags: --managed, --one-time-use, resource_class, traits and live_migratable of --alias")
	// ErrSpecOrder says that the files that hold specs are read in an order that depends
	// on how nova-compute is started.
	ErrSpecOrder = host.WithHint(host.WithCode(errors.New("the order in which Nova reads these files depends on how nova-compute is started"),
		host.CodeSpecConflict, ""), "move the specs that match the same devices into one file, and omit --drop-in")
	// ErrKept says that a device_spec offers a function that remains with the host.
	ErrKept = host.WithHint(host.WithCode(errors.New("the device remains with the host"), host.CodeRemains, ""),
		"in that device_spec, list the functions for guests by address, or remove it")
)

// value is one value of device_spec in the plan.
type value struct {
	line   devspec.Line
	specs  []*at
	ours   bool
	before []string // values that are inserted before it
}

// at is one spec of a value.
type at struct {
	*value
	devspec.Spec
	number   int  // its number among all specs, in the order in which Nova reads them
	replaced bool // gpustack wrote it, and the planned ones replace it
	dropped  bool // the plan leaves it out
}

func (v *value) group() string {
	return FileGroup(v.line.File)
}

// valuesOf returns all values of device_spec, in the order in which Nova reads them.
func valuesOf(lines []devspec.Line) (all []*value) {
	for _, line := range lines {
		v := &value{line: line}
		for i, spec := range line.Specs {
			v.specs = append(v.specs, &at{value: v, Spec: spec, number: line.First + i})
		}
		all = append(all, v)
	}
	return all
}

// onOneLine returns a value without line breaks and tabs, which are equivalent to blanks in JSON.
func onOneLine(value string) string {
	return strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(value)
}

// sameButBreaks reports whether an existing value is a wanted one, which is on one line.
func sameButBreaks(have, want string) bool { return onOneLine(have) == want }

// planSpecs plans device_spec. Existing values keep their order. gpustack's own values are updated,
// or inserted before the first value that would shadow them. Older names of the option are
// replaced: Nova reads their values before those of the current name. Errors are of all planned
// specs at once. aliased is the files with the planned aliases.
func planSpecs(read sources, o Options, aliased Side, wanted []Spec) step {
	if !o.Role.Computes() {
		return step{}
	}
	all := valuesOf(devspec.Lines(read.of(programCompute), o.Release.SpecNames()))
	var planned []wantedSpec
	for _, w := range wanted {
		want, err := newWantedSpec(o.keepLiveMigratable(all, o.keepTags(all, w)))
		if err != nil {
			return step{err: err}
		}
		planned = append(planned, want)
	}
	noted, err := removeSpecs(read, o, aliased, all)
	if err != nil {
		return step{err: err}
	}
	noted.Warnings = append(noted.Warnings, replaceSpecs(read, o, all, planned)...)
	hardware := o.hardware()
	var errs []error
	var last []string // after all others
	for _, want := range planned {
		end, warnings, err := placeSpec(read, hardware, all, want)
		noted.Warnings, errs = append(noted.Warnings, warnings...), append(errs, err)
		if end != "" {
			last = append(last, end)
		}
	}
	for _, s := range specsOf(all) {
		s.dropped = s.replaced
	}
	if err := errors.Join(errs...); err != nil {
		return step{err: err}
	}
	if err := keepsDevices(o, all, planned); err != nil {
		return step{err: err}
	}
	st := writeSpecs(read, o.Release, all, last)
	st.add(noted)
	return st
}

// keepTags gives a wanted spec the managed and one_time_use that no option names, and that a spec
// of gpustack has: of the same functions, or else of others of the product.
func (o Options) keepTags(all []*value, w Spec) Spec {
	own := host.Filter(specsOf(all), func(s *at) bool {
		return IsOwn(s.Spec) && s.Vendor == w.VendorID.String() && s.Product == w.ProductID.String()
	})
	if len(own) == 0 || w.PhysicalNetwork != nil {
		return w
	}
	same := slices.IndexFunc(own, func(s *at) bool {
		return w.Address == nil && s.Everywhere() || w.Address != nil && s.Single == w.Address.String()
	})
	have := own[max(same, 0)].Object
	managed, _ := have["managed"].(string)
	once, _ := have["one_time_use"].(string)
	if o.NotOnce {
		once = ""
	}
	w.Managed, w.OneTimeUse = cmp.Or(w.Managed, managed), cmp.Or(w.OneTimeUse, once)
	return w
}

// keepLiveMigratable gives a wanted spec the live_migratable that it lacks because the versions of
// the hypervisor are unknown, if a spec of the same devices has it. The error of a spec that cannot
// be parsed is left to newWantedSpec.
func (o Options) keepLiveMigratable(all []*value, w Spec) Spec {
	if w.unwritten == "" {
		return w
	}
	with := w
	with.LiveMigratable = w.unwritten
	planned, err := parsed(with)
	hardware := o.hardware()
	if err == nil && slices.ContainsFunc(specsOf(all), func(s *at) bool {
		return HasLiveMigratable(s.Spec, o.Release) && !slices.Contains(planned.Lost(s.Spec), "live_migratable") &&
			hardware.Contains(s.Spec, planned) && hardware.Contains(planned, s.Spec)
	}) {
		return with
	}
	return w
}

// writeSpecs sets device_spec in the files as it is planned, and notes the values that are not
// gpustack's. last are the values after all others.
func writeSpecs(read sources, r Release, all []*value, last []string) (st step) {
	values := map[string][]string{} // by file
	for _, v := range all {
		kept, err := v.kept()
		if err != nil {
			return step{err: fmt.Errorf("%s: %w", v.line.Where(), err)}
		}
		values[v.line.File] = slices.Concat(values[v.line.File], v.before, kept)
		if !v.ours && len(kept) > 0 {
			st.Kept = append(st.Kept, v.line.Where()+": "+onOneLine(v.line.Option.Value))
		}
	}
	target := read.target().Name
	values[target] = append(values[target], last...)
	st.settings = read.setAll(r.SpecNames(), values, programCompute)
	return st
}

// specsOf returns the specs of the values that are still in the plan.
func specsOf(all []*value) (specs []*at) {
	specs = host.FlatMap(all, func(v *value) []*at { return v.specs })
	return slices.DeleteFunc(specs, func(s *at) bool { return s.dropped })
}

// IsOwn reports whether gpustack could have written the spec: it has both ids, no pattern,
// and no tags but gpustack's.
func IsOwn(s devspec.Spec) bool {
	for tag := range s.Tags() {
		if !slices.Contains(ownTags, tag) {
			return false
		}
	}
	return !s.Faulty && !s.Devname && s.Vendor != devspec.Anything && s.Product != devspec.Anything && (s.Everywhere() || s.Single != "")
}

// parsed returns a spec as Nova reads it.
func parsed(s Spec) (devspec.Spec, error) {
	o, err := conf.Object(s)
	if err != nil {
		return devspec.Spec{}, err
	}
	spec, faults := devspec.Parse(o)
	return spec, errors.Join(faults...)
}

// replaceSpecs marks specs of gpustack in its other form: by ids if the planned specs are by
// address, and vice versa. They are replaced if they would offer functions that remain with the
// host, or give different tags to all functions of the product. Specs by the address of a function
// that a record has withdrawn from guests are marked too, and those that nova configure has written
// here for a function that is not on the machine, unless it is recorded for guests.
func replaceSpecs(read sources, o Options, all []*value, planned []wantedSpec) (warnings []string) {
	for _, s := range specsOf(all) {
		if o.isGone(s) && !read.isFixed(s.line.File) {
			s.replaced, s.ours = true, true
		}
	}
	for _, w := range planned {
		var functions, kept, withdrawn []pci.Address
		for _, h := range o.served() {
			d := h.Divide(w.vendor, w.product)
			functions, kept = slices.Concat(functions, d.Guests, d.kept()), append(kept, d.kept()...)
			withdrawn = append(withdrawn, d.withdrawn()...)
		}
		var named []*at
		for _, s := range specsOf(all) {
			if s.Vendor != w.Vendor || s.Product != w.Product || !IsOwn(s.Spec) || !updatable(s.Spec, w.Spec) || read.isFixed(s.line.File) {
				continue
			}
			switch {
			case w.Single != "" && s.Everywhere() && (len(kept) > 0 || len(s.Lost(w.Spec)) > 0):
				if !s.replaced {
					warnings = append(warnings, s.changes(w.Spec)...)
				}
				s.replaced, s.ours = true, true
			case w.Single != "" && slices.ContainsFunc(withdrawn, func(a pci.Address) bool { return a.String() == s.Single }):
				s.replaced, s.ours = true, true
			case w.Everywhere() && s.Single != "" && !sameTags(s.Spec, w.Spec):
				named = append(named, s)
			}
		}
		if slices.ContainsFunc(functions, func(a pci.Address) bool {
			return !slices.ContainsFunc(named, func(s *at) bool { return s.Single == a.String() })
		}) {
			continue
		}
		for _, s := range named {
			warnings = append(warnings, s.changes(w.Spec)...)
			s.replaced, s.ours = true, true
		}
	}
	return warnings
}

// isGone reports whether nova configure has written a spec here for a function that is neither on
// this machine nor recorded for guests. Where the plan is for other machines too, it may be theirs.
func (o Options) isGone(s *at) bool {
	served := o.served()
	return len(served) == 1 && served[0].isHere && len(o.Devices) > 0 && o.Wrote(s.line) &&
		o.hardware().Lacks(s.Spec) &&
		!o.Awaits(s.Spec) && !slices.ContainsFunc(o.Given, func(a pci.Address) bool { return a.String() == s.Single && !o.Has(a) })
}

// changes returns a warning for each tag whose value changes.
func (s *at) changes(planned devspec.Spec) (warnings []string) {
	for _, tag := range s.Lost(planned) {
		warnings = append(warnings, fmt.Sprintf("%s: %s changes from %s to %s", s.line.Where(), tag, conf.Written(s.Object[tag]),
			conf.Written(planned.Object[tag])))
	}
	return warnings
}

// keepsDevices returns an error for each function of a planned product that remains with a host
// or is for containers, and that a device_spec offers to guests. The planned specs match none of
// them.
func keepsDevices(o Options, all []*value, planned []wantedSpec) error {
	var errs []error
	for _, h := range o.served() {
		hardware := devspec.NewHardware(h.Devices, o.Interfaces)
		kept := host.FlatMap(planned, func(w wantedSpec) []pci.Address { return h.Divide(w.vendor, w.product).kept() })
		slices.SortFunc(kept, pci.Address.Compare)
		kept = slices.Compact(kept)
		for _, s := range specsOf(all) {
			wrong := h.WronglyOffered(hardware, s.Spec)
			where := s.line.Where()
			if !h.isHere {
				where = h.Call() + ": " + where
			}
			kept = slices.DeleteFunc(kept, func(a pci.Address) bool {
				isOffered := slices.Contains(wrong, a) || slices.Contains(h.Containers, a) && hardware.Matches(s.Spec, pci.Devices(h.Devices).At(a))
				if isOffered {
					errs = append(errs, fmt.Errorf("%s: %s offers %s to guests, but %w", where, conf.Written(s.Object), a, ErrKept))
				}
				return isOffered
			})
		}
	}
	return errors.Join(errs...)
}

// kept returns the value as it is planned, without the specs that are dropped.
func (v *value) kept() ([]string, error) {
	text := onOneLine(v.line.Option.Value) // where it moves to another place
	switch left := len(specsOf([]*value{v})); left {
	case len(v.specs):
		return []string{text}, nil
	case 0:
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	var kept []string
	for i, spec := range list {
		if !v.specs[i].dropped {
			kept = append(kept, string(spec))
		}
	}
	if len(kept) == 1 { // the form that gpustack can update in place
		return kept, nil
	}
	return []string{"[" + strings.Join(kept, ", ") + "]"}, nil
}

// removeSpecs drops the specs that only removed aliases use: those with exactly the ids of such an
// alias, whatever their address and tags. A spec that matches other devices too is not one alias's,
// and stays with a warning. Specs for ports of Neutron stay, and their devices remain offered.
// aliased is the files with the planned aliases.
func removeSpecs(read sources, o Options, aliased Side, all []*value) (noted notes, err error) {
	hardware := devspec.NewHardware(o.Devices, o.Interfaces)
	var seen []string
	for _, removed := range host.Filter(o.InUse, func(n Named) bool { return slices.Contains(o.Remove, n.Name) }) {
		vendor, product := removed.VendorID.String(), removed.ProductID.String()
		ids := vendor + ":" + product
		if !removed.HasIDs {
			noted.Warnings = append(noted.Warnings, fmt.Sprintf("%s: alias %s has no ids: the device specs that it uses stay", removed.Where, removed.Name))
			continue
		}
		if slices.Contains(seen, ids) || aliased.Wants(vendor, product) {
			continue
		}
		seen = append(seen, ids)
		dropped, ofPorts := false, false
		for _, s := range specsOf(all) {
			isOfProduct := !s.Faulty && s.Vendor == vendor && s.Product == product
			ofPorts = ofPorts || isOfProduct && s.IsOfPorts()
			if !isOfProduct || s.IsOfPorts() {
				continue
			}
			if err := read.fixed(s.line.File, s.line.Option.Line(), "--remove-alias", "would remove the line"); err != nil {
				return noted, err
			}
			dropped, s.dropped = true, true
			noted.Removed = append(noted.Removed, s.line.Where()+": "+conf.Written(s.Object))
		}
		for _, s := range specsOf(all) {
			noted.Warnings = append(noted.Warnings, s.stillOffers(hardware, removed)...)
		}
		if dropped && !ofPorts {
			noted.Warnings = append(noted.Warnings, o.withdrawing(removed))
		}
	}
	return noted, nil
}

// stillOffers returns a warning if a spec that stays, and is not for ports, offers devices of a
// removed alias.
func (s *at) stillOffers(hardware devspec.Hardware, removed Named) (warnings []string) {
	var offered []string
	if s.IsOfPorts() {
		return nil
	}
	for i := range hardware.Devices {
		if d := &hardware.Devices[i]; d.IsVendor(removed.VendorID) && d.ProductID != nil && *d.ProductID == removed.ProductID && hardware.Matches(s.Spec, d) {
			offered = append(offered, d.Address.String())
		}
	}
	if len(offered) > 0 {
		warnings = append(warnings, fmt.Sprintf("%s: %s matches other devices too and stays: it still offers %s, which no alias requests",
			s.line.Where(), conf.Written(s.Object), strings.Join(offered, ", ")))
	}
	return warnings
}

// withdrawing returns a warning of devices that a guest may use while they are no longer offered
// (nova/pci/manager.py, PciDevTracker._set_hvdevs: since Stein the record of such a device stays;
// nova/compute/pci_placement_translator.py, process_dev: it is skipped).
func (o Options) withdrawing(removed Named) string {
	text := fmt.Sprintf("alias %s: its devices, %s:%s, are no longer offered: nova-compute deletes the records of free devices when it starts, ",
		removed.Name, removed.VendorID, removed.ProductID)
	if o.Release < Stein {
		text += "and in " + o.Release.String() + " also those of devices that guests use, " +
			"which another guest could then be given: first delete or migrate the guests with such a device"
	} else {
		text += "keeps those of devices that guests use, and logs a warning about each of these until the guest is deleted or migrated"
	}
	var used []string
	for i := range o.Devices {
		d := &o.Devices[i]
		if guest := o.Guests[d.Address]; guest != "" && d.IsVendor(removed.VendorID) && d.ProductID != nil && *d.ProductID == removed.ProductID {
			used = append(used, d.Address.String()+" is in use by "+guest)
		}
	}
	if len(used) > 0 {
		text += ": " + strings.Join(used, ", ")
	}
	return text
}

// planRemoval warns of flavors that request an alias that this machine has no more. aliased is the
// files with the planned aliases.
func planRemoval(o Options, aliased Side) (st step) {
	has := func(aliases []Named, name string) bool {
		return slices.ContainsFunc(aliases, func(n Named) bool { return n.Name == name })
	}
	for _, name := range o.Remove {
		if left, _ := aliased.named(Newest); has(o.InUse, name) && !has(left, name) {
			st.Warnings = append(st.Warnings, fmt.Sprintf(
				"without alias %s Nova rejects builds, resizes and migrations of guests whose flavor requests it: %s shows the flavors",
				name, host.NewCommand("flavor list")))
		}
	}
	return st
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
