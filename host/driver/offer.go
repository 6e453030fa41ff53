package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Offering is what containers of the machine are offered: the functions that container prepare has
// recorded, and the CDI specs that follow from the record and the machine as it is.
type Offering interface {
	// Recorded returns the functions that are recorded for containers.
	Recorded() ([]pci.Address, error)
	// Plan returns the changes of spec files after which containers are offered what is recorded and
	// has its host driver, without some functions.
	Plan(without []pci.Address) (edit.Changes, error)
	// Ready makes the device nodes of functions that have returned to the host, and returns an error
	// if containers cannot be offered one of them.
	Ready(ctx context.Context, functions []pci.Address) error
	// Verify returns an error unless the specs, read as container runtimes read them, offer functions.
	Verify(functions []pci.Address) error
}

// ErrOpened means that a process has opened a function since no container is offered it any more.
var ErrOpened = host.WithHint(errors.New("is in use again"), "end the process or stop its container, and run the command again")

// ofContainers returns those of functions that are recorded for containers.
func (b Binder) ofContainers(functions []pci.Address) ([]pci.Address, error) {
	if b.Offering == nil {
		return nil, nil
	}
	recorded, err := b.Offering.Recorded()
	return slices.DeleteFunc(slices.Clone(functions), func(a pci.Address) bool { return !slices.Contains(recorded, a) }), err
}

// withdrawn returns the functions that the change, or undoing it, may have taken from containers or
// returned to them. Undoing a release takes whatever containers were offered since.
func (r Record) withdrawn(undoing bool) []pci.Address {
	if !undoing || !r.Release {
		return r.Containers
	}
	return host.Union(slices.Clone(r.Containers), Addresses(r.Functions)...)
}

// withdraw returns the steps that come before any other of a plan to bind functions of containers:
// the specs lose them, so that no container can be started with them, and then no process may have
// one open except services that the plan stops. If one has, the specs are put back as they were.
func (b Binder) withdraw(p Plan) []change.Step {
	if len(p.Containers) == 0 || p.Release {
		return nil
	}
	stops := func(h guard.Holder) bool { return h.Service && slices.Contains(p.Services.Stop, h.Unit) }
	return []change.Step{
		b.specs(func(context.Context) (edit.Changes, error) { return b.Offering.Plan(p.Containers) }),
		{Apply: func(ctx context.Context) error {
			if err := b.idle(ctx, p.Containers, stops); err != nil {
				return fmt.Errorf("%w: %w", ErrOpened, err)
			}
			return nil
		}},
	}
}

// offer returns the steps that come after the drivers of a plan that returns functions to
// containers: their nodes are made, the specs have them again, and runtimes find them there.
func (b Binder) offer(p Plan) []change.Step {
	if len(p.Containers) == 0 || !p.Release {
		return nil
	}
	return []change.Step{
		b.specs(func(ctx context.Context) (edit.Changes, error) {
			if err := b.Offering.Ready(ctx, p.Containers); err != nil {
				return nil, err
			}
			return b.Offering.Plan(nil)
		}),
		{Apply: func(context.Context) error { return b.Offering.Verify(p.Containers) }},
	}
}

// specs returns the step that changes spec files as planned at its time. It is undone byte for
// byte.
func (b Binder) specs(planned func(context.Context) (edit.Changes, error)) change.Step {
	var made edit.Changes
	return change.Step{
		Apply: func(ctx context.Context) error {
			p, err := planned(ctx)
			if err != nil {
				return err
			}
			made = p.Pending()
			// The engine ends a step before it honours an interruption.
			if err = made.Apply(context.WithoutCancel(ctx), b.Root); err != nil && !errors.Is(err, edit.ErrTorn) {
				made = nil
			}
			return err
		},
		Undo: func(ctx context.Context) error {
			return edit.Changes(host.Map(host.Reversed(made), edit.Change.Inverse)).Apply(ctx, b.Root)
		},
	}
}

// reoffer brings the specs in line with the drivers that an interrupted run has left: functions
// that have their host drivers are offered, if they were or were to be. It returns what containers
// are not offered.
func (b Binder) reoffer(ctx context.Context, r Record, undoing bool) (left []string, err error) {
	functions, err := b.ofContainers(r.withdrawn(undoing))
	if err != nil || len(functions) == 0 {
		return nil, err
	}
	var with, without []pci.Address
	for _, a := range functions {
		now, err := Read(b.Root, a)
		switch {
		case errors.Is(err, ErrGone):
			without = append(without, a)
		case err != nil:
			return nil, err
		case now.Driver == "" || pci.LeavesAlone(string(now.Driver)):
			without = append(without, a)
		default:
			with = append(with, a)
		}
	}
	if len(with) > 0 {
		if err := b.Offering.Ready(ctx, with); err != nil {
			left = append(left, fmt.Sprintf("containers are not offered all that is recorded for them: %s", strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
	}
	p, err := b.Offering.Plan(without)
	if err == nil {
		err = p.Apply(ctx, b.Root)
	}
	return left, err
}
