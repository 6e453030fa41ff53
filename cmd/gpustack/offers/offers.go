// Package offers has what a shell is offered to complete the values of flags and arguments:
// devices of the machine, aliases, entries of journals. [Completer] answers for one flag.
//
// It reads, connects to nothing and prints nothing.
package offers

import (
	"maps"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Completer completes the values of flags and arguments. What they are is in the help: the name of
// the value, such as ADDRESS.
type Completer struct {
	*args.Completion
	// Settled returns an error if reading the machine below root could be blocked in the kernel.
	Settled func(root host.Root) error
}

// named are the completions of values by the name that the help gives them.
var named = map[string]func(*Completer) []args.Offer{
	"ADDRESS":      (*Completer).addresses,
	"ALIAS":        (*Completer).newAliases,
	"ALIAS:COUNT":  (*Completer).aliasCounts,
	"CLOUD":        func(*Completer) []args.Offer { return args.WordOffers(cloud.Names()...) },
	"DEVICE":       (*Completer).devices,
	"ENTRY":        (*Completer).entries,
	"GOAL":         func(*Completer) []args.Offer { return args.WordOffers("ready", "kernel=", "gpustack=") },
	"RELEASE":      func(*Completer) []args.Offer { return args.WordOffers(nova.ReleaseNames()...) },
	"remove-alias": (*Completer).aliases, // a flag whose value is a NAME
}

// Names returns the names of values that have completions.
func Names() []string { return slices.Sorted(maps.Keys(named)) }

// functions returns the functions that are offered.
func (v *Completer) functions() pci.Devices {
	root, ok := v.Root()
	if !ok {
		return nil
	}
	return Functions(root, v.Settled)
}

// Functions returns the PCI functions of the machine, without bridges. It returns none while a
// read could be blocked in the kernel, as settled reports.
func Functions(root host.Root, settled func(root host.Root) error) pci.Devices {
	if settled(root) != nil {
		return nil
	}
	all, _, err := pci.Scan(root, pci.Options{Needs: func([]pci.Device) func(*pci.Device) bool { return func(*pci.Device) bool { return false } }})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(d pci.Device) bool { return d.IsBridge() && !d.IsNVSwitch() })
}

// addresses offers the addresses of functions, without the domain 0000 if it is typed so.
func (v *Completer) addresses() []args.Offer {
	return host.Map(v.functions(), func(d pci.Device) args.Offer {
		word := d.Address.String()
		if short, ok := strings.CutPrefix(word, "0000:"); ok && v.Next != "" && !strings.HasPrefix(word, v.Next) {
			word = short
		}
		return args.Offer{Word: word, Text: strings.TrimSpace(views.IDs(&d) + " " + views.Name(&d))}
	})
}

// devices offers addresses, and the products of GPUs.
func (v *Completer) devices() []args.Offer {
	gpus := v.products(func(d pci.Device) bool { return d.IsGPU() && d.VendorID != nil && d.ProductID != nil })
	return append(v.addresses(), host.Map(gpus, func(d pci.Device) args.Offer {
		return args.Offer{Word: views.IDs(&d), Text: "all " + views.Name(&d)}
	})...)
}

// products returns the first function of each product that has such functions.
func (v *Completer) products(is func(pci.Device) bool) pci.Devices {
	seen := map[string]bool{}
	return host.Filter(v.functions(), func(d pci.Device) bool {
		known := seen[views.IDs(&d)]
		seen[views.IDs(&d)] = known || is(d)
		return !known && is(d)
	})
}

// newAliases offers an alias for each product of GPUs of the machine.
func (v *Completer) newAliases() []args.Offer {
	return host.Map(v.products(func(d pci.Device) bool { return d.AliasHint != nil }), func(d pci.Device) args.Offer {
		return args.Offer{Word: string(*d.AliasHint) + "=" + views.IDs(&d), Text: views.Name(&d)}
	})
}

// aliasNames returns the aliases in the machine's nova.conf, sorted.
func (v *Completer) aliasNames() []string {
	root, ok := v.Root()
	if !ok {
		return nil
	}
	defined, _ := nova.OfferedAliases(root) // what cannot be read has no completions
	names := host.Map(defined, func(n nova.Named) string { return n.Name })
	slices.Sort(names)
	return slices.Compact(names)
}

func (v *Completer) aliases() []args.Offer { return args.WordOffers(v.aliasNames()...) }

// aliasCounts offers aliases with numbers of devices, also after others.
func (v *Completer) aliasCounts() (offers []args.Offer) {
	before := v.Next[:strings.LastIndex(v.Next, ",")+1]
	for _, name := range v.aliasNames() {
		for _, count := range []string{"1", "2", "4", "8"} {
			offers = append(offers, args.Offer{Word: before + name + ":" + count})
		}
	}
	return offers
}

// entries offers the entries of the journal that the command accepts, the latest first.
func (v *Completer) entries() (offers []args.Offer) {
	all, err := change.Stores(v.Dir())
	if err != nil {
		return nil
	}
	for _, store := range all {
		entries, err := store.List()
		if err != nil {
			continue
		}
		for _, e := range slices.Backward(entries) {
			accepts := true
			switch v.Line.Command.Name {
			case "undo":
				accepts = e.Status != change.Undone
			case "repair-migration":
				accepts = e.Changes == change.KindRows && e.IsOpen()
			}
			if accepts {
				offers = append(offers, args.Offer{Word: views.Text(&e.ID), Text: string(e.Status) + " " + e.Started.Format("2006-01-02") + ": " + e.Command})
			}
		}
	}
	return offers
}

// Values returns the completions of a value by its name, and false for a name without completions.
func (v *Completer) Values(name string) ([]args.Offer, bool) {
	offers := named[name]
	if offers == nil {
		return nil, false
	}
	return offers(v), true
}
