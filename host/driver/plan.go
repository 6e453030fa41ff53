package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
)

// Goal is the driver that a function should have.
type Goal struct {
	Address pci.Address
	State
	Any bool // see Change
}

// Plan is an ordered list of changes of drivers.
type Plan struct {
	Release bool     // return to the host, not bind for guests
	Load    []string // drivers whose modules must be loaded first
	Changes []Change
	Groups  []int // IOMMU groups that must be viable for a guest afterwards
	// Services change before and after the drivers.
	Services Services
	// Containers are functions that are recorded for containers. Before any other change, a plan that
	// binds them takes them from the CDI specs; one that releases them adds them after the drivers.
	Containers []pci.Address
}

// errUnread means that a scan could not read the driver of a function.
var errUnread = host.WithHint(errors.New("its driver cannot be read"), host.Textf("'%s' warns why", host.NewCommand("host scan").Flag("all")))

// New plans the changes that reach the goals. devices are all functions of the machine.
func New(root host.Root, devices []pci.Device, goals []Goal, release bool) (Plan, error) {
	p := Plan{Release: release, Load: []string{}, Changes: []Change{}, Groups: []int{}}
	var errs []error
	for _, g := range goals {
		i := slices.IndexFunc(devices, func(d pci.Device) bool { return d.Address == g.Address })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s: %w", g.Address, ErrGone))
			continue
		}
		d := &devices[i]
		if d.DriverUnread() {
			err := errUnread
			if errors.Is(d.DriverErr(), fs.ErrPermission) {
				err = host.WithHint(err, host.AsRoot())
			}
			errs = append(errs, fmt.Errorf("%s: %w", g.Address, err))
			continue
		}
		c := Change{Address: g.Address, Group: d.IOMMUGroup, Before: stateOf(d), After: g.State, Any: g.Any}
		if !c.reached(c.Before) {
			p.Changes = append(p.Changes, c)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	return p, p.follow(root)
}

// follow adds the modules that the changes need, and the groups that must be viable afterwards.
func (p *Plan) follow(root host.Root) error {
	for _, c := range p.Changes {
		if g := c.Group; g != nil && !p.Release && !slices.Contains(p.Groups, *g) {
			p.Groups = append(p.Groups, *g)
		}
		name := string(c.After.Driver)
		if name == "" || slices.Contains(p.Load, name) {
			continue
		}
		file := path.Join(driversDir, name)
		ok, err := root.Exists(file)
		if err != nil {
			return err
		}
		if !ok {
			p.Load = append(p.Load, name)
		}
	}
	slices.Sort(p.Groups)
	return nil
}
