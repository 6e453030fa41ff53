package main

import (
	"context"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/container/prepare"
	"gpustack/host/driver"
	"gpustack/host/startup"
)

// Code of host bind, host release and undo for functions that are recorded for containers.

// newOffering returns what containers of the machine below root are offered.
func newOffering(u *term.UI, root host.Root) startup.Offering {
	runner := newRunner(u, root)
	return startup.Offering{Root: root, Appear: settle, Program: func(ctx context.Context, argv []string) error {
		_, err := driver.Live{Runner: runner}.Run(ctx, argv)
		return err
	}}
}

// lendable returns an error if a plan binds functions of containers that cannot be bound.
func (c changing) lendable(plan bind.Plan) error {
	if len(plan.Containers) == 0 {
		return nil
	}
	m, err := prepare.Observe(c.root)
	if err != nil {
		return err
	}
	return prepare.Lendable(m, plan.Containers)
}

// returnable returns an error if a plan returns functions to containers that cannot be returned. A
// plan whose drivers and specs are as planned already returns none.
func (c changing) returnable(plan *bind.Plan) error {
	if len(plan.Containers) == 0 {
		return nil
	}
	m, err := prepare.Observe(c.root)
	if err != nil {
		return err
	}
	if err := prepare.Returnable(m, plan.Containers); err != nil || len(plan.Changes) > 0 {
		return err
	}
	offering := newOffering(c.u, c.root)
	pending, err := offering.Plan(nil)
	if err == nil && len(pending) == 0 && offering.Verify(plan.Containers) == nil {
		plan.Containers = nil
	}
	return err
}

// withdrawn returns the changes of spec files that come first when a plan binds functions of
// containers. Those of a plan that returns them follow from the drivers' own numbers.
func (c changing) withdrawn(plan driver.Plan) ([]views.FileChange, error) {
	if len(plan.Containers) == 0 || plan.Release {
		return []views.FileChange{}, nil
	}
	specs, err := newOffering(c.u, c.root).Plan(plan.Containers)
	return views.FileChanges(specs), err
}
