// Package offers has what a shell is offered to complete the values of flags and arguments:
// devices of the machine, aliases, entries of journals. [Values] answers by their names.
//
// It reads, connects to nothing and prints nothing.
package offers

import (
	"context"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/operate/node"
)

// completer completes the values of flags and arguments.
type completer struct {
	*args.Completion
	functions func() pci.Devices // that are offered
}

// Values returns the completions of values by the names that the help gives them, such as ADDRESS.
func Values(ctx context.Context, c *args.Completion) args.Offers {
	v := &completer{c, func() pci.Devices { return Functions(ctx, c.Dir()) }}
	words := func(of func() []string) func() []args.Offer {
		return func() []args.Offer { return args.WordOffers(of()...) }
	}
	return args.Offers{
		"ADDRESS":      v.addresses,
		"ALIAS":        v.newAliases,
		"ALIAS:COUNT":  v.aliasCounts,
		"CLOUD":        words(cloud.Names),
		"DEVICE":       v.devices,
		"ENTRY":        v.entries,
		"GOAL":         words(func() []string { return []string{"ready", "kernel=", "gpustack="} }),
		"RELEASE":      words(nova.ReleaseNames),
		"remove-alias": words(v.aliases), // a flag whose value is a NAME
	}
}

// Functions returns the PCI functions of the machine below a folder, without bridges. It returns
// none while a read could be blocked in the kernel.
func Functions(ctx context.Context, dir string) pci.Devices {
	root, err := host.NewRoot(dir)
	if err != nil || node.Settled(ctx, root, change.Machine(root).Observe()) != nil {
		return nil
	}
	all, _, err := pci.Scan(root, pci.Options{Needs: func([]pci.Device) func(*pci.Device) bool { return func(*pci.Device) bool { return false } }})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(d pci.Device) bool { return d.IsBridge() && !d.IsNVSwitch() })
}

// addresses offers the addresses of functions, without the domain 0000 if it is typed so.
func (v *completer) addresses() []args.Offer {
	return host.Map(v.functions(), func(d pci.Device) args.Offer {
		word := d.Address.String()
		if short, ok := strings.CutPrefix(word, "0000:"); ok && v.Next != "" && !strings.HasPrefix(word, v.Next) {
			word = short
		}
		return args.Offer{Word: word, Text: strings.TrimSpace(views.IDs(&d) + " " + views.Name(&d))}
	})
}

// devices offers addresses, and the products of GPUs.
func (v *completer) devices() []args.Offer {
	gpus := host.Filter(v.functions(), func(d pci.Device) bool { return d.IsGPU() && d.VendorID != nil && d.ProductID != nil })
	return append(v.addresses(), host.Map(gpus, func(d pci.Device) args.Offer {
		return args.Offer{Word: views.IDs(&d), Text: "all " + views.Name(&d)}
	})...)
}

// newAliases offers an alias for each product of GPUs of the machine.
func (v *completer) newAliases() []args.Offer {
	return host.Map(host.Filter(v.functions(), func(d pci.Device) bool { return d.AliasHint != nil }), func(d pci.Device) args.Offer {
		return args.Offer{Word: string(*d.AliasHint) + "=" + views.IDs(&d), Text: views.Name(&d)}
	})
}

// aliases returns the aliases in the machine's nova.conf, sorted.
func (v *completer) aliases() []string {
	root, err := host.NewRoot(v.Dir())
	if err != nil {
		return nil
	}
	defined, _ := nova.OfferedAliases(root) // what cannot be read has no completions
	return slices.Sorted(slices.Values(host.Map(defined, func(n nova.Named) string { return n.Name })))
}

// aliasCounts offers aliases with numbers of devices, also after others.
func (v *completer) aliasCounts() (offers []args.Offer) {
	before := v.Next[:strings.LastIndex(v.Next, ",")+1]
	for _, name := range v.aliases() {
		for _, count := range []string{"1", "2", "4", "8"} {
			offers = append(offers, args.Offer{Word: before + name + ":" + count})
		}
	}
	return offers
}

// entries offers the entries of the journal that the command accepts, the latest first.
func (v *completer) entries() (offers []args.Offer) {
	all, _ := change.Stores(v.Dir()) // what cannot be read has no completions
	for _, store := range all {
		entries, _ := store.List()
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
