package nova

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/nova/conf"
)

// Place is where the configuration lies.
type Place struct {
	File   string // nova.conf
	DropIn bool   // new options go to a file of their own, in nova.conf.d
}

// dropInName sorts after what others put there.
const dropInName = "zz-gpustack.conf"

// dropInDir is where oslo.config looks for further files of Nova.
const dropInDir = "nova.conf.d"

// Errors of configuration files.
var (
	ErrOwned = errors.New("is made by a deployment tool, which would write over a change")
	ErrUnset = errors.New("no such file")
	// ErrDropIn says that an option in a file of its own might not count: which of
	// two files wins depends on how the service is started.
	ErrDropIn = errors.New("sets the same option, and which of the two counts depends on how Nova is started")
)

// OwnedError tells of a file that a deployment tool makes.
type OwnedError struct {
	File, Owner, Where string
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("%s: %v (%s)", e.File, ErrOwned, e.Owner)
}

func (e *OwnedError) Unwrap() error {
	return ErrOwned
}

// Plan is the change of a machine's configuration.
type Plan struct {
	Files    edit.Plan
	Kept     []string // others' aliases and specs that stay
	Dropped  []string // filters that the release no longer has
	Restart  []Service
	Warnings []string

	// AsksPlacement says that the plan turns pci_in_placement on. nova-scheduler then gives
	// guests only devices that Placement has.
	AsksPlacement bool
	aliases       []map[string]any
}

// Wants reports whether some alias of the planned files asks for devices of a product.
func (p Plan) Wants(vendor, product string) bool {
	return slices.ContainsFunc(p.aliases, func(alias map[string]any) bool {
		for key, id := range map[string]string{"vendor_id": vendor, "product_id": product} {
			if want, _ := alias[key].(string); want != "" && !strings.EqualFold(want, id) {
				return false
			}
		}
		return true
	})
}

// Service is one to be restarted, and what that interrupts.
type Service struct {
	Name       string `json:"name"`
	Interrupts string `json:"interrupts"`
}

// source is one configuration file.
type source struct {
	name   string
	file   *conf.File
	before *conf.File
	isOurs bool // the file in nova.conf.d
}

type planner struct {
	root    host.Root
	options Options
	where   Place
	sources []*source
	plan    Plan
	changed map[string]bool // services
}

// NewPlan plans the change that makes a machine's files say what is wanted.
func NewPlan(root host.Root, o Options, w Want, place Place) (Plan, error) {
	p := &planner{root: root, options: o, where: place, changed: map[string]bool{}}
	if err := p.read(); err != nil {
		return Plan{}, err
	}
	var errs []error
	errs = append(errs, p.aliases(w.Aliases))
	if o.Role.Computes() {
		errs = append(errs, p.specs(w.Specs))
	}
	if o.Role.Controls() {
		errs = append(errs, p.filters(slices.ContainsFunc(w.Aliases, func(a Alias) bool { return a.NUMAPolicy != "" })))
	}
	if o.Placement {
		if o.Role.Computes() {
			errs = append(errs, p.single([]conf.Name{ReportInPlacement}, "true", sameBool, "nova-compute"))
		}
		if o.Role.Controls() && o.Release >= Antelope {
			before := p.planned()
			errs = append(errs, p.single([]conf.Name{PCIInPlacement}, "true", sameBool, "nova-conductor", "nova-scheduler", "nova-api"))
			p.plan.AsksPlacement = !slices.Equal(before, p.planned())
		}
	}
	if o.Role.Computes() && o.Release >= Zed && slices.ContainsFunc(p.planned(), reports) {
		errs = append(errs, p.startable()...)
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	for _, s := range p.sources {
		if s.file != s.before {
			if err := conf.Verify(s.before, s.file, o.Release.names()...); err != nil {
				return Plan{}, fmt.Errorf("%s: %w", s.name, err)
			}
		}
		c, err := edit.Put(root, s.name, s.file.Bytes(), 0o640, false)
		if err != nil {
			return Plan{}, err
		}
		c.Shown = conf.Masked
		p.plan.Files = append(p.plan.Files, c)
	}
	p.plan.Restart = p.restart()
	for _, s := range p.sources {
		for _, alias := range s.file.Find(o.Release.AliasNames()...) {
			p.plan.aliases = append(p.plan.aliases, conf.ParseObjects(alias.Value)...)
		}
	}
	return p.plan, nil
}

// planned returns the files as they are planned so far.
func (p *planner) planned() (files []*conf.File) {
	for _, s := range p.sources {
		files = append(files, s.file)
	}
	return files
}

// Files returns the files that a machine's services read beside nova.conf, which
// comes first: for a compute node the one that Debian's packages read after it, and
// those of nova.conf.d.
func Files(root host.Root, main string, role Role) ([]string, error) {
	dir := path.Dir(main)
	names := []string{main}
	if role.Computes() {
		compute := path.Join(dir, "nova-compute.conf")
		ok, err := root.Exists(compute)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", compute, host.Cause(err))
		}
		if ok {
			names = append(names, compute)
		}
	}
	dropIns := path.Join(dir, dropInDir)
	entries, err := root.ReadDir(dropIns)
	if err != nil && !host.IsAbsent(err) {
		return nil, fmt.Errorf("%s: %w", dropIns, host.Cause(err))
	}
	for _, e := range entries {
		if path.Ext(e) == ".conf" && e[0] != '.' {
			names = append(names, path.Join(dropIns, e))
		}
	}
	return names, nil
}

// read reads every file that the services read; ours comes last.
func (p *planner) read() error {
	names, err := Files(p.root, p.where.File, p.options.Role)
	if err != nil {
		return err
	}
	ours := path.Join(path.Dir(p.where.File), dropInDir, dropInName)
	if i := slices.Index(names, ours); i >= 0 || p.where.DropIn {
		names = append(slices.DeleteFunc(names, func(n string) bool { return n == ours }), ours)
	}
	var errs []error
	for i, name := range names {
		f, err := edit.Read(p.root, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if f == nil {
			if i == 0 {
				errs = append(errs, fmt.Errorf("%s: %w", name, ErrUnset))
			}
			if name != ours {
				continue
			}
			f = &edit.File{Content: []byte(ownHeader)}
		}
		if owner, where := conf.Owner(name, f.Content); owner != "" {
			errs = append(errs, &OwnedError{name, owner, where})
			continue
		}
		file, err := conf.Parse(f.Content)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			continue
		}
		p.sources = append(p.sources, &source{name: name, file: file, before: file, isOurs: name == ours})
	}
	return errors.Join(errs...)
}

// target is the file that new options go to.
func (p *planner) target() *source {
	if p.where.DropIn {
		return p.sources[len(p.sources)-1]
	}
	return p.sources[0]
}

func (p *planner) services(names ...string) {
	for _, n := range names {
		p.changed[n] = true
	}
}

// item is one value of an option that takes several.
type item struct {
	text  string
	same  map[string]any            // as an object
	about func(map[string]any) bool // tells whether an object is about the same thing
}

func newItem(value any, about func(map[string]any) bool) (item, error) {
	same, err := conf.Object(value)
	if err != nil {
		return item{}, err
	}
	written, err := conf.FormatJSON(value)
	return item{written, same, about}, err
}

// multi sets an option whose values add up over names and files: the values of others
// stay, and those about the same thing as a wanted one are updated.
func (p *planner) multi(what string, names []conf.Name, items []item, services ...string) error {
	satisfied := make([]bool, len(items))
	values := map[*source][]string{}
	for _, s := range p.sources {
		for _, o := range s.file.Find(names...) {
			for i, it := range items {
				if slices.ContainsFunc(conf.ParseObjects(o.Value), func(have map[string]any) bool { return reflect.DeepEqual(have, it.same) }) {
					satisfied[i] = true
				}
			}
		}
	}
	for _, s := range p.sources {
		for _, o := range s.file.Find(names...) {
			value := o.Value
			have := conf.ParseObjects(value)
			if have == nil {
				p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("%s:%d: the value of %s is no JSON object: Nova refuses every %s of this machine", s.name, o.Line(), o.Key, what))
			}
			ours := false
			for i, it := range items {
				if slices.ContainsFunc(have, func(h map[string]any) bool { return reflect.DeepEqual(h, it.same) }) {
					ours = true
				} else if len(have) == 1 && !satisfied[i] && it.about(have[0]) {
					if p.where.DropIn && !s.isOurs {
						return fmt.Errorf("%s:%d: defines the same %s with other values: without --drop-in, gpustack updates the line", s.name, o.Line(), what)
					}
					value, satisfied[i], ours = it.text, true, true
				}
			}
			if !ours {
				p.plan.Kept = append(p.plan.Kept, fmt.Sprintf("%s:%d: %s", s.name, o.Line(), strings.ReplaceAll(o.Value, "\n", " ")))
			}
			values[s] = append(values[s], value)
		}
	}
	target := p.target()
	for i, it := range items {
		if !satisfied[i] {
			values[target] = append(values[target], it.text)
		}
	}
	for _, s := range p.sources {
		if p.where.DropIn && !s.isOurs {
			continue // nothing of it changes
		}
		file, err := s.file.Set(conf.Setting{Names: names, Values: values[s], Multi: true})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if file != s.file {
			p.services(services...)
		}
		s.file = file
	}
	return nil
}

func (p *planner) aliases(aliases []Alias) error {
	var items []item
	for _, a := range aliases {
		it, err := newItem(a, func(o map[string]any) bool {
			name, _ := o["name"].(string)
			return strings.TrimSpace(name) == a.Name
		})
		if err != nil {
			return err
		}
		items = append(items, it)
	}
	var services []string
	if p.options.Role.Computes() {
		services = append(services, "nova-compute")
	}
	if p.options.Role.Controls() {
		services = append(services, "nova-api")
	}
	return p.multi("alias", p.options.Release.AliasNames(), items, services...)
}

// single sets an option of which one value counts, in every file that sets it, so
// that it does not matter which wins; in none it goes to the target.
func (p *planner) single(names []conf.Name, value string, same func(have, want string) bool, services ...string) error {
	return p.each(names, func(string, bool) string { return value }, same, services...)
}

func (p *planner) each(names []conf.Name, want func(have string, set bool) string, same func(have, want string) bool, services ...string) error {
	set := func(s *source, value string) error {
		file, err := s.file.Set(conf.Setting{Names: names, Values: []string{value}, Same: same})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if file != s.file {
			p.services(services...)
		}
		s.file = file
		return nil
	}
	found := false
	for _, s := range p.sources {
		// The first name that is set counts, and of that the last line.
		for _, n := range names {
			options := s.file.Find(n)
			if len(options) == 0 {
				continue
			}
			found = true
			have := options[len(options)-1]
			value := want(have.Value, true)
			if p.where.DropIn && !s.isOurs && (n != names[0] || !same(have.Value, value)) {
				return fmt.Errorf("%s:%d: %w: %s", s.name, have.Line(), ErrDropIn, have.Key)
			}
			if err := set(s, value); err != nil {
				return err
			}
			break
		}
	}
	if found {
		return nil
	}
	return set(p.target(), want("", false))
}

// sameBool compares two values of a boolean option.
func sameBool(have, want string) bool {
	return have == want || conf.IsTrue(have) && conf.IsTrue(want)
}

// filters enables PciPassthroughFilter, and for aliases with a NUMA policy
// NUMATopologyFilter, and drops those that the release no longer has.
func (p *planner) filters(numa bool) error {
	r := p.options.Release
	need := []string{"PciPassthroughFilter"}
	if numa {
		need = append(need, "NUMATopologyFilter")
	}
	list := func(have string, set bool) string {
		words := r.DefaultFilters()
		separator := ","
		if set {
			words = conf.ParseList(have)
			if strings.Contains(have, ", ") {
				separator = ", "
			}
		}
		var kept []string
		for _, w := range words {
			if !r.HasFilter(w) {
				if !slices.Contains(p.plan.Dropped, w) {
					p.plan.Dropped = append(p.plan.Dropped, w)
				}
				continue
			}
			kept = append(kept, w)
		}
		for _, n := range need {
			if !slices.Contains(kept, n) {
				kept = append(kept, n)
			}
		}
		return strings.Join(kept, separator)
	}
	same := func(have, want string) bool { return slices.Equal(conf.ParseList(have), conf.ParseList(want)) }
	if err := p.each(r.FilterNames(), list, same, "nova-scheduler"); err != nil {
		return err
	}
	return p.available(need)
}

// available makes the filters available where somebody has narrowed that down: by
// default every one is (nova.scheduler.filters.all_filters).
func (p *planner) available(need []string) error {
	var have []string
	for _, s := range p.sources {
		for _, o := range s.file.Find(p.options.Release.availableNames()...) {
			have = append(have, o.Value)
		}
	}
	if len(have) == 0 || slices.Contains(have, "nova.scheduler.filters.all_filters") {
		return nil
	}
	modules := map[string]string{"PciPassthroughFilter": "pci_passthrough_filter", "NUMATopologyFilter": "numa_topology_filter"}
	for _, n := range need {
		full := "nova.scheduler.filters." + modules[n] + "." + n
		if slices.Contains(have, full) {
			continue
		}
		target := p.target()
		var values []string
		for _, o := range target.file.Find(p.options.Release.availableNames()...) {
			values = append(values, o.Value)
		}
		file, err := target.file.Set(conf.Setting{Names: p.options.Release.availableNames(), Values: append(values, full), Multi: true})
		if err != nil {
			return fmt.Errorf("%s: %w", target.name, err)
		}
		target.file = file
		p.services("nova-scheduler")
	}
	return nil
}

// restart lists what is to be restarted, in the order in which no service asks
// another for what it does not know yet.
func (p *planner) restart() []Service {
	var services []Service
	for _, s := range []Service{
		{"nova-compute", "builds, resizes and the watch over live migrations on this host; guests run on"},
		{"nova-conductor", "builds and migrations that it leads"},
		{"nova-scheduler", "requests that wait for a host"},
		{"nova-api", "requests in flight"},
	} {
		if p.changed[s.Name] {
			services = append(services, s)
		}
	}
	return services
}

// Render writes what is wanted as a file of its own, for a deployment tool to merge.
func Render(o Options, w Want) (string, error) {
	file, err := conf.Parse(nil)
	if err != nil {
		return "", err
	}
	set := func(names []conf.Name, multi bool, values ...string) {
		if err == nil && len(values) > 0 {
			file, err = file.Set(conf.Setting{Names: names[:1], Values: values, Multi: multi})
		}
	}
	var aliases, specs []string
	for _, a := range w.Aliases {
		value, textErr := conf.FormatJSON(a)
		err = errors.Join(err, textErr)
		aliases = append(aliases, value)
	}
	for _, s := range w.Specs {
		value, textErr := conf.FormatJSON(s)
		err = errors.Join(err, textErr)
		specs = append(specs, value)
	}
	set(o.Release.AliasNames(), true, aliases...)
	if o.Role.Computes() {
		set(o.Release.SpecNames(), true, specs...)
		if o.Placement {
			set([]conf.Name{ReportInPlacement}, false, "true")
		}
	}
	if o.Role.Controls() {
		set(o.Release.FilterNames(), false, strings.Join(append(o.Release.DefaultFilters(), "PciPassthroughFilter"), ","))
		if o.Placement && o.Release >= Antelope {
			set([]conf.Name{PCIInPlacement}, false, "true")
		}
	}
	if err != nil {
		return "", err
	}
	return string(file.Bytes()), nil
}
