package startup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/edit"
	observed "gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Offering is what containers of the machine are offered by the steps of a boot. While functions
// are bound for guests, and when they return, it makes the same nodes and specs as these steps.
type Offering struct {
	Root host.Root
	// Program starts a program of the machine and waits for its end.
	Program func(ctx context.Context, argv []string) error
	// Appear is the maximum time until a driver shows a function that has returned to it.
	Appear time.Duration
}

// Recorded returns the functions that are recorded for containers.
func (o Offering) Recorded() ([]pci.Address, error) {
	c, err := observed.ReadContainers(o.Root)
	return c.Addresses(), err
}

// specs returns the specs of a record as the machine is now.
func (o Offering) specs(c *observed.Containers) (container.Specs, nvidia.Driver, error) {
	devices, _, err := pci.Scan(o.Root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return container.Specs{}, nvidia.Driver{}, err
	}
	driver, err := nvidia.Read(o.Root, devices)
	if err != nil {
		return container.Specs{}, nvidia.Driver{}, err
	}
	stack, err := rdma.Read(o.Root, devices, rdma.Options{})
	return container.SpecOf(c, driver, stack, devices), driver, err
}

// Plan returns the changes of spec files after which containers are offered what is recorded and
// has its host driver, without some functions. A spec without a device is removed.
func (o Offering) Plan(without []pci.Address) (edit.Changes, error) {
	c, err := observed.ReadContainers(o.Root)
	if err != nil || c == nil {
		return nil, err
	}
	rest := c.Less(without)
	specs, driver, err := o.specs(rest)
	if err != nil {
		return nil, err
	}
	files := edit.Observe(o.Root, container.BootFiles()...)
	gpus, err := container.PutSpec(files, c.Options, container.GPUFile, specs.GPU)
	if err != nil {
		return nil, err
	}
	hcas, err := container.PutSpec(files, c.Options, container.HCAFile, specs.HCA)
	if err != nil {
		return nil, err
	}
	has, err := container.HasRefreshList(files)
	if err != nil {
		return nil, err
	}
	list, err := container.RefreshList(files, rest, driver, has)
	return slices.Concat(gpus, hcas, edit.Changes{list}).Pending(), err
}

// Ready makes the nodes of functions that have returned to their host drivers, and waits until the
// drivers show them. Its error names each function that containers cannot be offered.
func (o Offering) Ready(ctx context.Context, functions []pci.Address) error {
	c, err := observed.ReadContainers(o.Root)
	if err != nil {
		return err
	}
	if c == nil {
		return fmt.Errorf("%v: %w", functions, container.ErrNotRecorded)
	}
	of := *c
	of.Functions = slices.DeleteFunc(slices.Clone(c.Functions), func(f observed.ContainerFunction) bool { return !slices.Contains(functions, f.Address) })
	m := machine{root: o.Root, program: o.Program, appear: time.Now().Add(o.Appear)}
	err = wait(ctx, m, func() error {
		specs, _, err := o.specs(&of)
		if err != nil {
			return err
		}
		var missing []error
		for _, x := range specs.Missing {
			if x.Address != nil {
				missing = append(missing, fmt.Errorf("%w %s: %s", errNotOffered, x.Address, x.Reason))
			} else {
				missing = append(missing, errors.New(x.Reason))
			}
		}
		return errors.Join(missing...)
	})
	gpus := host.Filter(of.Addresses(), func(a pci.Address) bool { return !of.At(a).HCA })
	if err != nil || len(gpus) == 0 {
		return err
	}
	for _, n := range append([]nodes{{}}, host.Map(gpus, func(a pci.Address) nodes { return nodes{&a} })...) {
		_, reached, err := n.look(ctx, m)
		if err == nil && !reached {
			err = n.carryOut(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Verify returns an error unless container runtimes find functions in the specs.
func (o Offering) Verify(functions []pci.Address) error {
	c, err := observed.ReadContainers(o.Root)
	if err != nil || c == nil {
		return err
	}
	named := host.Filter(c.Functions, func(f observed.ContainerFunction) bool { return slices.Contains(functions, f.Address) })
	return container.Verify(o.Root, host.Map(named, container.NameOf))
}
