package nova

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gpustack/host"
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

// planAliases plans the wanted aliases. The values in all files and under all names count. Existing
// ones stay; those with the name of a wanted alias are updated. A wanted alias in a file that not
// all of the programs that need it read is moved to one that they do.
func planAliases(read sources, o Options, wanted []Alias) (st step) {
	programs := host.Filter(o.Role.Programs(), func(p string) bool { return p == programAPI || p == programCompute })
	var items []*item
	for _, a := range wanted {
		object, err := conf.Object(a)
		text, textErr := conf.FormatJSON(a)
		if err := errors.Join(err, textErr); err != nil {
			return step{err: err}
		}
		items = append(items, &item{text: text, object: object})
	}
	names := o.Release.AliasNames()
	lines := Side{Files: read.of(programs...)}.Find(names...)
	for _, l := range lines {
		for _, it := range items {
			it.isThere = it.isThere || read.serves(l.File, programs) && slices.ContainsFunc(conf.ParseObjects(l.Value), it.equals)
		}
	}
	var errs []error
	values := map[string][]string{} // by file
	for _, l := range lines {
		planned, noted, err := planAlias(read, l, items, read.serves(l.File, programs), o.Remove)
		values[l.File], errs = append(values[l.File], planned...), append(errs, err)
		st.add(noted)
	}
	if err := errors.Join(errs...); err != nil {
		return step{err: err}
	}
	for _, it := range items {
		if target := read.target().Name; !it.isThere {
			values[target] = append(values[target], it.text)
		}
	}
	st.settings = read.setAll(names, values, programs...)
	return st
}

// planAlias returns what becomes of an existing line of the option alias, nil if the plan leaves it
// out. isCommon says that all programs that need aliases read the file.
func planAlias(read sources, l Placed, items []*item, isCommon bool, remove []string) (planned []string, noted notes, err error) {
	have, text := conf.ParseObjects(l.Value), onOneLine(l.Value)
	var of Named
	if len(have) == 1 {
		of, _ = newNamed(have[0], "")
	}
	named := slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return it.object["name"] != of.Name })
	free := slices.DeleteFunc(slices.Clone(named), func(it *item) bool { return it.isThere })
	switch {
	case isCommon && slices.ContainsFunc(items, func(it *item) bool { return slices.ContainsFunc(have, it.equals) }):
		return []string{text}, notes{}, nil
	case len(named) > 0 && !isCommon:
		return nil, notes{}, read.fixed(l.File, l.Line(), "the same alias", "exists in a file that only "+ReadBy(l.File, read.place.File)+" reads")
	case len(free) > 0: // a name may have several products
		i := slices.IndexFunc(free, func(it *item) bool {
			return have[0]["vendor_id"] == it.object["vendor_id"] && have[0]["product_id"] == it.object["product_id"]
		})
		it := free[max(i, 0)]
		it.isThere = true
		return []string{it.text}, notes{}, read.fixed(l.File, l.Line(), "the same alias", "exists with different values")
	}
	line := []string{fmt.Sprintf("%s:%d: %s", l.File, l.Line(), text)}
	if of.Name == "" || !slices.Contains(remove, of.Name) {
		return []string{text}, notes{Kept: line}, nil
	}
	return nil, notes{Removed: line}, read.fixed(l.File, l.Line(), "--remove-alias", "would remove the line")
}
