package bind

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// errNotOfContainers is the error of host release --to container for a function that is not
// recorded for containers.
var errNotOfContainers = host.WithHint(host.WithCode(errors.New("is not recorded for containers"), host.CodeRole, ""),
	host.Textf("%s returns it to the host; %s records it for containers then",
		host.NewCommand("host release").Flag("device", "ADDRESS"), host.NewCommand("container prepare").Flag("device", "ADDRESS")))

// errOfGuests is the error of host release --to container for a function that shares a card or an
// IOMMU group with one of containers, and is recorded for guests.
var errOfGuests = host.WithHint(host.WithCode(errors.New("is recorded for guests"), host.CodeRole, ""),
	host.Textf("take it from guests first: %s", host.NewCommand("host prepare").Flag("remove", "ADDRESS")))

// ofGuests returns an error that names the functions which are recorded for guests, if the others
// are to return to containers.
func ofGuests(record *machine.Contract, functions []pci.Address, to machine.Role) error {
	errs := host.Map(host.Filter(functions, func(a pci.Address) bool { return to == machine.OfContainer && record.At(a) != nil }),
		func(a pci.Address) error { return gate.Refuse(a, errOfGuests) })
	return errors.Join(errs...)
}

// lent returns the functions of containers that options name by address: those may be bound for
// guests until the next boot. One that is selected in another way is refused.
func (n node) lent(opts selection.Options) (lent []pci.Address) {
	for _, s := range slices.Concat(opts.Add, opts.Only) {
		if a, ok := s.Address(); ok && n.Containers.At(a) != nil && !slices.Contains(lent, a) {
			lent = append(lent, a)
		}
	}
	return lent
}

// stays returns the warning of a function that is bound while its role stays container.
func stays(a pci.Address, c *machine.Containers) string {
	now := fmt.Sprintf("%s stays recorded for containers: '%s' returns it to them",
		a, host.NewCommand("host release").Flag("to", "container").Flag("device", a.String()))
	if c.Options.Static { // no boot writes specs
		return fmt.Sprintf("%s; the next boot returns it to its driver, and '%s' to their spec then", now, host.NewCommand("container prepare"))
	}
	return now + ", and so does the next boot"
}

// toContainers returns the options that select functions of containers, all that are present
// unless options name some. Its error has every named function that is not the containers'.
func (n node) toContainers(opts selection.Options) (selection.Options, error) {
	if opts.Named() {
		var errs []error
		for i := range n.Devices {
			d := &n.Devices[i]
			named := slices.ContainsFunc(opts.Add, func(s pci.Selector) bool { return s.Matches(d) }) ||
				slices.ContainsFunc(opts.Vendors, d.IsVendor) && d.IsGPU()
			if named && n.Containers.At(d.Address) == nil {
				errs = append(errs, gate.Refuse(d.Address, errNotOfContainers))
			}
		}
		return opts, errors.Join(errs...)
	}
	present := host.Filter(n.Containers.Addresses(), func(a pci.Address) bool { return n.Containers.At(a).IsAt(n.Devices) })
	if len(present) == 0 {
		return opts, host.WithHint(errors.New("no function of this machine is recorded for containers"),
			host.Textf("%s records one", host.NewCommand("container prepare").Flag("device", "ADDRESS")))
	}
	return n.Only(opts, present), nil
}

// offer completes a plan to release functions: containers are offered those that are recorded for
// them, or a warning says that they are not.
func (l *Plan) offer(n node, to machine.Role) {
	for _, a := range l.Functions {
		f := n.Containers.At(a)
		if f == nil || !f.IsAt(n.Devices) {
			continue
		}
		if to == machine.OfContainer {
			l.Containers = append(l.Containers, a)
		} else if leaves(l.Plan, a) {
			l.Warnings = append(l.Warnings, fmt.Sprintf("%s is recorded for containers, which are not offered it until the next boot: use --to container", a))
		}
	}
}
