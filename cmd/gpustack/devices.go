package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/offers"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/operate/node"
)

// selectors returns the values of a flag that names functions or products.
func selectors(c *cli.Context, f *args.Faults, flag string) []pci.Selector {
	return args.Values(f, c, flag, func(value string) (pci.Selector, error) {
		s, err := pci.ParseSelector(value)
		return s, meaning(c, flag, value, err, true)
	})
}

// addresses returns the values of a flag that names functions.
func addresses(c *cli.Context, f *args.Faults, flag string) []pci.Address {
	return args.Values(f, c, flag, func(value string) (pci.Address, error) {
		return address(c, flag, value)
	})
}

// address returns one value of a flag that names functions.
func address(c *cli.Context, flag, value string) (pci.Address, error) {
	a, err := pci.ParseGiven(value)
	return a, meaning(c, flag, value, err, false)
}

// meaning adds to an error about a value, which names no function, the functions of the machine
// that match it, and the command line with those. products says that the flag accepts the ids of a
// product too.
func meaning(c *cli.Context, flag, value string, err error, products bool) error {
	if err == nil {
		return nil
	}
	if strings.ContainsAny(value, ",; ") {
		return host.WithHint(err, "repeat --"+flag+" for each device")
	}
	var matching pci.Devices
	if root, rootErr := host.NewRoot(c.String("root")); rootErr == nil {
		matching = offers.Functions(root, func(root host.Root) error { return node.Settled(c.Context, root, change.Machine(root).Observe()) }).Like(value)
	}
	if len(matching) == 0 {
		list := pci.ListFunctions()
		if flag == "hca" || strings.HasPrefix(c.Command.HelpName, "gpustack rdma ") {
			list = pci.ListAdapters()
		}
		return host.WithHint(err, list.Hint())
	}
	var names []string
	for i := range matching {
		d := &matching[i]
		names = append(names, strings.TrimSpace(fmt.Sprintf("%s (%s %s)", d.Address, views.IDs(d), views.Name(d))))
	}
	if len(names) > 4 {
		names = append(names[:3], fmt.Sprintf("%d more", len(names)-3))
	}
	if flag == "allow" && len(matching) > 1 { // each one lifts a refusal: the user names it
		return host.WithHint(err, host.Textf("it matches %s", strings.Join(names, ", ")))
	}
	values := chosen(matching, flag, products)
	if _, repeatable := args.FindFlag(c.Command.Flags, flag).(*cli.StringSliceFlag); !repeatable {
		values = values[:1]
	}
	return host.WithHint(err, host.Textf("it matches %s: write --%s %s", strings.Join(names, ", "), flag, strings.Join(values, " --"+flag+" ")))
}

// chosen returns the values for functions that match: the GPUs among them or, for adapters, the
// network controllers, by their ids if they are of one product of several.
func chosen(matching pci.Devices, flag string, products bool) (values []string) {
	preferred := func(d pci.Device) bool { return d.IsGPU() && !d.IsVF() }
	if flag == "hca" {
		preferred = func(d pci.Device) bool { return !d.IsGPU() && !d.IsVF() }
	}
	some := slices.DeleteFunc(slices.Clone(matching), func(d pci.Device) bool { return !preferred(d) })
	if len(some) == 0 {
		some = matching
	}
	for i := range some {
		word := some[i].Address.String()
		if products && len(some) > 1 && views.IDs(&some[i]) == views.IDs(&some[0]) {
			word = views.IDs(&some[0]) // one word for all of a product
		}
		values = append(values, word)
	}
	return slices.Compact(values)
}

// vendors returns the values of a flag that names vendors.
func vendors(c *cli.Context, f *args.Faults) []pci.ID {
	return args.Values(f, c, "vendor", func(value string) (pci.ID, error) {
		id, err := pci.ParseID(value)
		if err == nil {
			return id, nil
		}
		return id, host.WithHint(err, "10de is NVIDIA, 1002 AMD, 8086 Intel, 15b3 Mellanox")
	})
}

// classes returns the values of a flag that names classes.
func classes(c *cli.Context, f *args.Faults) []pci.ClassPrefix {
	return args.Values(f, c, "class", func(value string) (pci.ClassPrefix, error) {
		class, err := pci.ParseClassPrefix(value)
		if err != nil {
			err = host.WithHint(err, "03 is display controllers, 0302 3D controllers, 02 network controllers, 01 disks")
		}
		return class, err
	})
}
