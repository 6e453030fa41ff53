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
	// ErrNotStartable says that nova-compute would refuse to start with report_in_placement.
	ErrNotStartable = host.WithHint(host.WithCode(errors.New("nova-compute would not start with report_in_placement"), host.CodeNotStartable, ""),
		"use address, not devname. The address of a PF also matches its VFs: write 0 to its sriov_numvfs, or offer its VFs by an address pattern, all with the same resource class and traits")
	// ErrTag says that nova-compute would refuse to start with a tag of a device_spec.
	ErrTag = host.WithHint(host.WithCode(errors.New("nova-compute would not start"), host.CodeNotStartable, ""),
		"remove that tag or that device_spec; one_time_use requires --placement")
)

// value is one value of device_spec in the plan.
type value struct {
	source   *source
	line     devspec.Line
	text     string
	ours     bool
	dropped  map[int]bool // specs of the line that the plan leaves out
	replaced map[int]bool // specs that gpustack wrote and that the planned ones replace
	before   []string     // values that are inserted before it
}

// at is the place of one spec.
type at struct {
	*value
	item   int // its index in the value, if that is a list
	number int // its number among all specs, in the order in which Nova reads them
}

func (a at) spec() devspec.Spec {
	return a.line.Specs[a.item]
}

func (v *value) where() string {
	if v.line.Option.Key == "" {
		return v.source.name
	}
	return v.line.Where()
}

func (s *source) group() string {
	return FileGroup(s.name)
}

// inOrder returns the sources that nova-compute reads, in the order in which it reads their specs:
// the files, then those of the folders.
func (p *planner) inOrder() []*source {
	sources := p.of(programCompute)
	slices.SortStableFunc(sources, func(a, b *source) int {
		return cmp.Or(cmp.Compare(a.group(), b.group()), cmp.Compare(a.number, b.number))
	})
	return sources
}

// values returns all values of device_spec in sources, in the order in which Nova reads them, with
// their lines in the files on disk. It is called before device_spec is planned.
func (p *planner) values(sources []*source) []*value {
	var all []*value
	for _, s := range sources {
		for _, line := range devspec.Lines([]conf.Source{{Name: s.name, File: s.before}}, p.options.Release.SpecNames()) {
			// A value that moves to another place is written on one line.
			all = append(all, &value{source: s, line: line, text: onOneLine(line.Option.Value), dropped: map[int]bool{}, replaced: map[int]bool{}})
		}
	}
	return all
}

// onOneLine returns a value without line breaks and tabs, which are equivalent to blanks in JSON.
func onOneLine(value string) string {
	return strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(value)
}

// specs sets device_spec. Existing values keep their order. gpustack's own values are updated, or
// inserted before the first value that would shadow them. Older names of the option are replaced:
// Nova reads their values before those of the current name.
func (p *planner) specs(wanted []Spec) error {
	all := p.values(p.inOrder())
	var errs []error
	hardware := devspec.NewHardware(p.options.Devices, p.options.Interfaces)
	last := map[*source][]string{} // values that are appended
	var planned []devspec.Spec
	for _, w := range wanted {
		spec, err := parsed(w)
		if err != nil {
			return err
		}
		planned = append(planned, spec)
	}
	if err := p.removeSpecs(all); err != nil {
		return err
	}
	p.replace(all, planned)
	for _, w := range wanted {
		end, err := p.place(hardware, all, w)
		errs = append(errs, err)
		if end != "" {
			last[p.target()] = append(last[p.target()], end)
		}
	}
	for _, v := range all {
		for item := range v.replaced {
			v.dropped[item] = true
		}
	}
	errs = append(errs, p.rejected(all)...)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := p.keepsDevices(hardware, all, planned); err != nil {
		return err
	}
	for _, s := range p.inOrder() {
		var values []string
		for _, v := range all {
			if v.source != s {
				continue
			}
			kept, err := v.kept()
			if err != nil {
				return fmt.Errorf("%s: %w", v.where(), err)
			}
			values = append(append(values, v.before...), kept...)
			if !v.ours && len(kept) > 0 {
				p.plan.Kept = append(p.plan.Kept, v.where()+": "+onOneLine(v.line.Option.Value))
			}
		}
		if p.isFixed(s) {
			continue // nothing of it changes
		}
		file, err := s.file.Set(conf.Setting{
			Names: p.options.Release.SpecNames(), Values: append(values, last[s]...), Multi: true, Ordered: true,
			Same: func(have, want string) bool { return onOneLine(have) == want },
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if file != s.file {
			p.services("nova-compute")
		}
		s.file = file
	}
	return nil
}

// place finds the place of one spec among the values. It returns the text of the spec if the place
// is after all others.
func (p *planner) place(h devspec.Hardware, all []*value, want Spec) (end string, err error) {
	planned, err := parsed(want)
	if err != nil {
		return "", err
	}
	written, err := conf.FormatJSON(want)
	if err != nil {
		return "", err
	}
	var errs []error
	var moved []error        // errors if the spec moves from one group of files to another
	var exacts, same []at    // specs of the same devices, and of more devices with the same tags
	var needs, replaced []at // specs that the planned one must precede, and that it replaces
	specs := specsOf(all)
	for _, s := range specs {
		if s.replaced[s.item] && devspec.SameIDs(s.spec(), planned) {
			replaced = append(replaced, s)
		}
	}
	for _, s := range specs {
		// From here on, devices of the planned spec get no tags of this group's specs.
		covered := inGroup(exacts, s) || inGroup(replaced, s) && !slices.ContainsFunc(replaced, func(r at) bool { return r.number > s.number })
		if s.spec().Faulty || !devspec.SameIDs(s.spec(), planned) {
			continue
		}
		broader, narrower := h.Contains(s.spec(), planned), h.Contains(planned, s.spec())
		lost, gained := s.spec().Lost(planned), planned.Lost(s.spec())
		switch {
		case s.replaced[s.item]:
		case broader && narrower && updatable(s.spec(), planned) && (len(exacts) == 0 || len(lost)+len(gained) == 0):
			exacts = append(exacts, s)
		case !broader && !narrower && !s.spec().Opaque() && !h.Share(s.spec(), planned):
			if len(lost)+len(gained) > 0 && h.MayMatch(s.spec(), planned) {
				p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("%s: cannot determine which function devname %q names: if the planned device_spec %s matches it too, "+
					"the first of the two gives it its tags", s.where(), s.spec().Object["devname"], written))
			}
		case len(lost)+len(gained) == 0:
			if broader && !narrower {
				same = append(same, s)
			}
		case len(lost) > 0, s.spec().Opaque(), narrower && !broader:
			if err := conflict(s, written, lost, gained); covered {
				moved = append(moved, err)
			} else {
				errs = append(errs, err)
			}
		default:
			needs = append(needs, s)
		}
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	if i := slices.IndexFunc(needs, func(s at) bool { return s.source.group() != needs[0].source.group() }); i > 0 {
		return "", fmt.Errorf("%s and %s: both match devices of the planned device_spec %s, but %w", needs[0].where(), needs[i].where(), written, ErrSpecOrder)
	}
	// The spec goes before the first one that it must precede, or that it should: like.
	var exact, first *at
	if len(needs) > 0 {
		first = &needs[0]
	}
	if like := firstOf(same, func(s at) bool {
		return first == nil || s.source.group() == first.source.group() && s.number < first.number
	}); like != nil {
		first = like
	}
	inPlace := func(s at) bool {
		return first == nil || s.number < first.number && (len(needs) == 0 || s.source.group() == needs[0].source.group())
	}
	if exact = firstOf(exacts, inPlace); exact == nil && len(exacts) > 0 {
		exact = &exacts[0]
	}
	fixed := func(s *at) bool { return p.isFixed(s.source) }
	if exact != nil && inPlace(*exact) {
		have, isList := exact.spec(), len(exact.line.Specs) > 1
		switch {
		case len(planned.Lost(have))+len(have.Lost(planned)) == 0:
			exact.ours = true
			return "", nil
		case fixed(exact):
			return "", fmt.Errorf("%s: the same device_spec exists with different tags: omit --drop-in to update the line", exact.where())
		case !isList:
			p.warnOfChange(*exact, planned)
			exact.ours, exact.text = true, written
			return "", nil
		}
		first = exact
	} else if exact == nil && len(replaced) > 0 && inPlace(replaced[0]) {
		first = &replaced[0]
	}
	switch {
	case len(needs) > 0 && (fixed(first) || exact != nil && fixed(exact)):
		return "", fmt.Errorf("%s: shadows the planned device_spec %s: %w", first.where(), written, ErrSpecOrder)
	case first != nil && fixed(first) && exact != nil:
		return "", nil // the tags are the same either way
	case first != nil && fixed(first):
		return written, nil
	}
	for _, s := range append(slices.Clone(exacts), replaced...) {
		if first == nil || first.source.group() != s.source.group() {
			if len(moved) > 0 {
				return "", errors.Join(moved...)
			}
		}
	}
	if exact != nil {
		p.warnOfChange(*exact, planned)
		exact.ours, exact.dropped[exact.item] = true, true
	}
	if first == nil {
		return written, nil
	}
	first.before = append(first.before, written)
	return "", nil
}

// specsOf returns the specs of the values that are still in the plan.
func specsOf(all []*value) (specs []at) {
	number := 0
	for _, v := range all {
		for i := range v.line.Specs {
			number++
			if !v.dropped[i] {
				specs = append(specs, at{v, i, number})
			}
		}
	}
	return specs
}

func inGroup(specs []at, s at) bool {
	return slices.ContainsFunc(specs, func(other at) bool { return other.source.group() == s.source.group() })
}

func firstOf(specs []at, is func(at) bool) *at {
	if i := slices.IndexFunc(specs, is); i >= 0 {
		return &specs[i]
	}
	return nil
}

// ownTags are the tags that gpustack writes.
var ownTags = []string{"resource_class", "traits", "managed", "live_migratable", "one_time_use"}

// updatable reports whether a spec becomes the planned one without losing a tag: tags that
// gpustack writes may change their values.
func updatable(s, planned devspec.Spec) bool {
	tags := planned.Tags()
	return !slices.ContainsFunc(s.Lost(planned), func(tag string) bool { return tags[tag] == nil || !slices.Contains(ownTags, tag) })
}

// isOwn reports whether gpustack could have written the spec: it has both ids, no pattern,
// and no tags but gpustack's.
func isOwn(s devspec.Spec) bool {
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

// functions returns the functions of this machine that have the ids of a spec, without VFs.
func (p *planner) functions(s devspec.Spec) (found []pci.Address) {
	for i := range p.options.Devices {
		if d := &p.options.Devices[i]; d.SRIOV.PF == nil && d.VendorID != nil && d.ProductID != nil && s.MatchesIDs(d.VendorID.String(), d.ProductID.String()) {
			found = append(found, d.Address)
		}
	}
	return found
}

// kept returns those functions that remain with the host or are for containers.
func (p *planner) kept(functions []pci.Address) []pci.Address {
	return slices.DeleteFunc(slices.Clone(functions), p.options.offers)
}

// replace marks specs of gpustack in its other form: by ids if the planned specs are by address,
// and vice versa. They are replaced if they would offer functions that remain with the host, or
// give different tags to all functions of the product.
func (p *planner) replace(all []*value, planned []devspec.Spec) {
	for _, w := range planned {
		functions := p.functions(w)
		var named []at
		for _, s := range specsOf(all) {
			have := s.spec()
			if have.Vendor != w.Vendor || have.Product != w.Product || !isOwn(have) || !updatable(have, w) || p.isFixed(s.source) {
				continue
			}
			differ := len(have.Lost(w))+len(w.Lost(have)) > 0
			switch {
			case w.Single != "" && have.Everywhere() && (len(p.kept(functions)) > 0 || len(have.Lost(w)) > 0):
				if !s.replaced[s.item] {
					p.warnOfChange(s, w)
				}
				s.replaced[s.item], s.ours = true, true
			case w.Everywhere() && have.Single != "" && differ:
				named = append(named, s)
			}
		}
		if slices.ContainsFunc(functions, func(a pci.Address) bool {
			return !slices.ContainsFunc(named, func(s at) bool { return s.spec().Single == a.String() })
		}) {
			continue
		}
		for _, s := range named {
			p.warnOfChange(s, w)
			s.replaced[s.item], s.ours = true, true
		}
	}
}

// warnOfChange adds a warning for each tag whose value changes.
func (p *planner) warnOfChange(s at, planned devspec.Spec) {
	for _, tag := range s.spec().Lost(planned) {
		p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("%s: %s changes from %s to %s", s.where(), tag, conf.Written(s.spec().Object[tag]),
			conf.Written(planned.Object[tag])))
	}
}

// keepsDevices returns an error for each function of a planned product that remains with
// the host and that a device_spec offers to guests. The planned specs match none of them.
func (p *planner) keepsDevices(h devspec.Hardware, all []*value, planned []devspec.Spec) error {
	var errs []error
	var seen []pci.Address
	for _, w := range planned {
		for _, address := range p.kept(p.functions(w)) {
			if slices.Contains(seen, address) {
				continue
			}
			seen = append(seen, address)
			i := slices.IndexFunc(h.Devices, func(d pci.Device) bool { return d.Address == address })
			if s := firstOf(specsOf(all), func(s at) bool { return h.Matches(s.spec(), &h.Devices[i]) }); s != nil {
				errs = append(errs, fmt.Errorf("%s: %s offers %s to guests, but %w", s.where(), conf.Written(s.spec().Object), address, ErrKept))
			}
		}
	}
	return errors.Join(errs...)
}

// kept returns the value as it is planned, without the specs that are dropped.
func (v *value) kept() ([]string, error) {
	switch left := len(v.line.Specs) - len(v.dropped); {
	case len(v.dropped) == 0:
		return []string{v.text}, nil
	case left == 0:
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(v.text), &list); err != nil {
		return nil, err
	}
	var kept []string
	for i, spec := range list {
		if !v.dropped[i] {
			kept = append(kept, string(spec))
		}
	}
	if len(kept) == 1 { // the form that gpustack can update in place
		return kept, nil
	}
	return []string{"[" + strings.Join(kept, ", ") + "]"}, nil
}

// conflict returns the error that explains why no order of two specs keeps the effect of both.
func conflict(s at, planned string, lost, gained []string) error {
	var why string
	switch {
	case s.spec().Opaque():
		why = "its address cannot be evaluated, and the tags differ"
	case len(lost) > 0:
		why = "devices that both specs match would lose its " + strings.Join(lost, ", ")
	default:
		why = "devices that it matches would not get " + strings.Join(gained, ", ")
	}
	return fmt.Errorf("%s: %s %w %s: %s", s.where(), conf.Written(s.spec().Object), ErrSpecConflict, planned, why)
}
