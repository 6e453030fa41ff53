package nova

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gpustack/nova/conf"
)

// item is a wanted alias.
type item struct {
	text    string
	object  map[string]any
	isThere bool // a value of the plan is the alias
}

// equals reports whether an object is the alias.
func (i *item) equals(object map[string]any) bool {
	have := maps.Clone(object)
	if name, ok := have["name"].(string); ok {
		have["name"] = strings.TrimSpace(name)
	}
	return reflect.DeepEqual(have, i.object)
}

// aliases sets the wanted aliases. The values in all files and under all names count. Existing ones
// stay; those with the name of a wanted alias are updated. A wanted alias in a file that not all of
// the programs that need it read is moved to one that they do.
func (p *planner) aliases(wanted []Alias) error {
	var programs []string
	if p.options.Role.Computes() {
		programs = append(programs, programCompute)
	}
	if p.options.Role.Controls() {
		programs = append(programs, programAPI)
	}
	var items []*item
	for _, a := range wanted {
		object, err := conf.Object(a)
		text, textErr := conf.FormatJSON(a)
		if err := errors.Join(err, textErr); err != nil {
			return err
		}
		items = append(items, &item{text: text, object: object})
	}
	names, sources := p.options.Release.AliasNames(), p.of(programs...)
	for _, s := range sources {
		for _, o := range s.file.Find(names...) {
			for _, it := range items {
				it.isThere = it.isThere || p.serves(s, programs) && slices.ContainsFunc(conf.ParseObjects(o.Value), it.equals)
			}
		}
	}
	var errs []error
	values := map[*source][]string{}
	for _, s := range sources {
		for _, o := range s.file.Find(names...) {
			planned, err := p.alias(s, o, items, p.serves(s, programs))
			values[s], errs = append(values[s], planned...), append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, it := range items {
		if !it.isThere {
			values[p.target()] = append(values[p.target()], it.text)
		}
	}
	for _, s := range sources {
		if p.isFixed(s) {
			continue
		}
		setting := conf.Setting{Names: names, Values: values[s], Multi: true, Same: sameButBreaks}
		if err := p.set(s, setting, programs...); err != nil {
			return err
		}
	}
	return nil
}

// alias returns what becomes of an existing value of the option alias, nil if the plan leaves it out.
// isCommon says that all programs that need aliases read the file.
func (p *planner) alias(s *source, o conf.Option, items []*item, isCommon bool) (planned []string, err error) {
	have := conf.ParseObjects(o.Value)
	var of Named
	if len(have) == 1 {
		of, _ = newNamed(have[0], "")
	}
	named := slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return it.object["name"] != of.Name })
	free := slices.DeleteFunc(slices.Clone(named), func(it *item) bool { return it.isThere })
	switch {
	case isCommon && slices.ContainsFunc(items, func(it *item) bool { return slices.ContainsFunc(have, it.equals) }):
		return []string{onOneLine(o.Value)}, nil
	case len(named) > 0 && !isCommon:
		return nil, p.fixed(s, o.Line(), "the same alias", "exists in a file that only "+ReadBy(s.name, p.where.File)+" reads")
	case len(free) > 0: // a name may have several products
		i := slices.IndexFunc(free, func(it *item) bool {
			return have[0]["vendor_id"] == it.object["vendor_id"] && have[0]["product_id"] == it.object["product_id"]
		})
		it := free[max(i, 0)]
		it.isThere = true
		return []string{it.text}, p.fixed(s, o.Line(), "the same alias", "exists with different values")
	}
	line := fmt.Sprintf("%s:%d: %s", s.name, o.Line(), onOneLine(o.Value))
	if of.Name == "" || !slices.Contains(p.options.Remove, of.Name) {
		p.plan.Kept = append(p.plan.Kept, line)
		return []string{onOneLine(o.Value)}, nil
	}
	p.plan.Removed = append(p.plan.Removed, line)
	return nil, p.fixed(s, o.Line(), "--remove-alias", "would remove the line")
}
