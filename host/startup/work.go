package startup

import (
	"context"
	"encoding/json"
	"time"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/gate"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// work is what a step of a kind does. A kind of step is a type with these methods, a case in
// workOf, and its steps in [steps.Of].
type work interface {
	// look returns the present state, which a revert restores, and whether the step has nothing to
	// do. It waits for its device until ctx ends.
	look(ctx context.Context, m machine) (before any, reached bool, err error)
	// carryOut reaches the step's goal and reads it back. It refuses to touch what is in use.
	carryOut(ctx context.Context, m machine) error
	// revert restores the state that look has returned earlier in this boot. It changes nothing if
	// that state is there already.
	revert(ctx context.Context, m machine, before json.RawMessage) error
	// goes returns the functions that a revert destroys or unbinds. They must not be in use.
	goes(m machine, before json.RawMessage) ([]pci.Address, error)
}

// remade is work whose goal the record can change, with what each run of this boot has made in what
// was before.
type remade interface {
	work
	// again returns what was before, as an earlier run has found it, with what this one makes.
	again(before json.RawMessage) (any, error)
	// differs reports whether the goal is another one than what this boot has made, and returns the
	// functions that reaching it destroys or unbinds.
	differs(m machine, before json.RawMessage) ([]pci.Address, bool, error)
}

// machine is what steps act on.
type machine struct {
	root    host.Root
	kernel  driver.Requester
	program func(ctx context.Context, argv []string) error // starts a program and waits for its end
	settle  time.Duration
	appear  time.Time // until when devices may still appear
	allowed gate.Allowed
	claim   gate.Claim
	// done means that the step has succeeded earlier in this boot, and that the steps it needs have
	// changed nothing since.
	done bool
	// fresh means that a step which this one needs has changed the machine in this run.
	fresh bool
}

// workOf returns the work of a step, or nil for a kind of a later release.
func workOf(s steps.Step) work {
	g := s.Goal
	switch s.Kind {
	case steps.KindNetns:
		return netns{}
	case steps.KindNodes:
		return nodes{s.Address}
	case steps.KindCDI:
		if file, ok := specFiles[s.ID]; ok {
			return spec{g.Containers, file}
		}
	case steps.KindVFs:
		return vfs{g.Adapter}
	case steps.KindIdentity:
		return identity{g.Adapter, g.VF, g.Identity}
	case steps.KindDriver:
		b := binding{adapter: g.Adapter, address: *s.Address, driver: g.Driver}
		switch {
		case g.Function != nil:
			b.is = new(g.Function.Identity())
		case g.Adapter.Address == *s.Address:
			b.is = new(g.Adapter.Identity())
		}
		return b
	}
	return nil
}

// pastWork returns the work that reverts a recorded step that no record wants any more, or nil for
// a kind of a later release.
func pastWork(s steps.StepResult) work {
	past := steps.Step{ID: s.ID, Kind: s.Kind, Address: s.Address}
	switch s.Kind {
	case steps.KindVFs, steps.KindIdentity, steps.KindDriver:
		if s.Address == nil {
			return nil
		}
		past.Goal = steps.Goal{Adapter: rdma.Prepared{Address: *s.Address}, VF: rdma.PreparedVF{Address: *s.Address}}
	}
	return workOf(past)
}
