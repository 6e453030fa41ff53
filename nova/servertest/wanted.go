package servertest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/devspec"
	"gpustack/nova/probe"
)

// Errors of what a flavor requests.
var (
	// ErrNoDevices says that a flavor requests no devices.
	ErrNoDevices = host.WithHint(errors.New("the flavor does not request devices"), host.Textf("'%s' shows the flavors that do", host.NewCommand("flavor list")))
	// ErrNoIDs says that the ids of requested devices are unknown.
	ErrNoIDs = host.WithHint(errors.New("the ids of its devices are unknown"),
		"give the nova.conf that defines it, of a controller or of the compute node: --conf FILE")
	// ErrManyIDs says that a request may be met by devices of several products.
	ErrManyIDs = host.WithHint(errors.New("stands for several products, of which a guest gets any"), "test a flavor that requests one product")
)

// Wanted is what a guest of a flavor should have.
type Wanted struct {
	IDs     probe.Wanted   // number of devices by product
	Classes map[string]int // number of devices by resource class, if they are reported to Placement
	From    []string       // where the ids come from, a sentence for each alias or resource class
	// OneTimeUse names the device_spec that says that devices of a product stay reserved after their
	// first guest; nil if no file that was read says so.
	OneTimeUse []string
}

// NewWanted returns what a guest of a flavor should have. The first source that defines an alias or
// a resource class counts; what none defines is looked up in the table of products. The error joins
// all errors.
//
// Errors: ErrNoDevices, ErrNoIDs, ErrManyIDs.
func NewWanted(f cloud.Flavor, sources []nova.Defined) (Wanted, error) {
	w := Wanted{IDs: probe.Wanted{}, Classes: map[string]int{}}
	var errs []error
	add := func(what string, count int, got identified, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("flavor %s: %s: %w", f.Name, what, err))
			return
		}
		w.IDs[got.id] += count
		w.Classes[got.class] += count
		w.From = append(w.From, fmt.Sprintf("%s is %s %s", what, got.id, got.from))
	}
	value, requests := f.ExtraSpecs[nova.RequestKey]
	if requests {
		request, err := nova.ParseRequest(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("flavor %s: %s: %w", f.Name, nova.RequestKey, err))
		}
		for _, r := range request {
			got, err := alias(r.Alias, sources)
			add("alias "+r.Alias, r.Count, got, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.ExtraSpecs)) {
		class, ok := resourceKey(key)
		if !ok {
			continue
		}
		requests = true
		count, err := strconv.Atoi(f.ExtraSpecs[key])
		if err != nil || count < 1 {
			errs = append(errs, fmt.Errorf("flavor %s: %s: not a number of devices: %q", f.Name, key, f.ExtraSpecs[key]))
			continue
		}
		got, err := ofClass(class, sources)
		add("resource class "+class, count, got, err)
	}
	if !requests {
		return w, fmt.Errorf("flavor %s: %w", f.Name, ErrNoDevices)
	}
	for _, s := range sources {
		for _, c := range s.Classes {
			if _, wanted := w.IDs[probe.ID{Vendor: c.VendorID, Product: c.ProductID}]; wanted && c.OneTimeUse {
				w.OneTimeUse = append(w.OneTimeUse, c.Where)
			}
		}
	}
	return w, errors.Join(errs...)
}

// resourceKey returns the custom resource class of an extra spec such as resources:CUSTOM_A100 or
// resources1:CUSTOM_A100 (Nova, doc/source/user/flavors.rst, "Custom resource classes and standard
// resource classes to override"; nova/scheduler/utils.py, ResourceRequest.XS_KEYPAT). Standard
// classes are no PCI devices.
func resourceKey(key string) (class string, ok bool) {
	before, class, found := strings.Cut(key, ":")
	return class, found && strings.HasPrefix(before, "resources") && strings.HasPrefix(class, "CUSTOM_")
}

// identified is a product and where it was found.
type identified struct {
	id    probe.ID
	class string
	from  string // such as "by /etc/nova/nova.conf:12"
}

// alias returns the product of an alias.
func alias(name string, sources []nova.Defined) (identified, error) {
	for _, s := range sources {
		var found []identified
		for _, n := range s.Aliases {
			if n.Name != name {
				continue
			}
			if !n.HasIDs && n.ResourceClass != "" {
				got, err := ofClass(devspec.ResourceClass(n.ResourceClass, 0, 0), []nova.Defined{s})
				if err != nil {
					return identified{}, err
				}
				found = append(found, got)
				continue
			}
			if !n.HasIDs {
				return identified{}, fmt.Errorf("%s: %w", n.Where, ErrNoIDs)
			}
			found = append(found, identified{probe.ID{Vendor: n.VendorID, Product: n.ProductID}, devspec.ResourceClass(n.ResourceClass, n.VendorID,
				n.ProductID), "by " + n.Where})
		}
		if len(found) > 0 {
			return only(found)
		}
	}
	var found []identified
	for _, product := range pci.ProductsNamed(name) {
		found = append(found, identified{probe.ID{Vendor: pci.NVIDIA, Product: product}, devspec.ResourceClass("", pci.NVIDIA, product),
			"by the name that nova configure gives the product"})
	}
	return only(found)
}

// ofClass returns the product of a resource class.
func ofClass(class string, sources []nova.Defined) (identified, error) {
	for _, s := range sources {
		found := host.Map(host.Filter(s.Classes, func(c nova.Class) bool { return c.Name == class }),
			func(c nova.Class) identified {
				return identified{probe.ID{Vendor: c.VendorID, Product: c.ProductID}, class, "by " + c.Where}
			})
		if len(found) > 0 {
			return only(found)
		}
	}
	vendor, product, ok := devspec.IDsOf(class)
	if !ok {
		return identified{}, ErrNoIDs
	}
	return identified{probe.ID{Vendor: vendor, Product: product}, class, "by its name"}, nil
}

// only returns the product that all of a list are.
func only(found []identified) (identified, error) {
	if len(found) == 0 {
		return identified{}, ErrNoIDs
	}
	var ids []string
	for _, f := range found {
		if id := f.id.String(); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 1 {
		return identified{}, fmt.Errorf("%w: %s", ErrManyIDs, strings.Join(ids, ", "))
	}
	return found[0], nil
}
