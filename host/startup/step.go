package startup

import (
	"context"
	"encoding/json"
	"time"

	"gpustack/host"
	"gpustack/host/container/prepare"
	"gpustack/host/driver"
	"gpustack/host/gate"
	observed "gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Step is one step of every boot.
type Step struct {
	ID       string
	Kind     string
	Address  *pci.Address
	Needs    []string      // ids of steps that must have succeeded
	Deadline time.Duration // for the step and for each of its requests to the kernel
	work     work
}

// work is what a step of a kind does. A kind of step is a type with these methods, an entry in
// kinds, and its steps in [Steps].
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
	// done means that the step has succeeded earlier in this boot, and that the steps it needs have
	// changed nothing since.
	done bool
	// fresh means that a step which this one needs has changed the machine in this run.
	fresh bool
}

// Kinds of steps.
const (
	kindNetns    = "netns"
	kindVFs      = "vfs"
	kindIdentity = "identity"
	kindDriver   = "driver"
)

// Deadlines of steps. Creating VFs takes up to a second for each, and after a change of the
// eswitch's mode the driver replaces its network interfaces.
const (
	quick = 30 * time.Second
	long  = 2 * time.Minute
	// Total is the time for all steps. The unit's TimeoutStartSec is longer.
	Total = 10 * time.Minute
)

// Steps returns the steps for what is recorded, in their order: how RDMA devices belong to network
// namespaces first, then for each adapter its VFs, and for each VF its identity and then its
// driver, which reads the identity when it binds the VF. What containers are given comes last.
func Steps(record *rdma.Record, containers *observed.Containers) []Step {
	adapters := adapterSteps(record)
	return append(adapters, containerSteps(containers, adapters)...)
}

func adapterSteps(record *rdma.Record) []Step {
	if record == nil {
		return nil
	}
	var steps []Step
	namespaces := record.Netns == rdma.NetnsExclusive
	if namespaces {
		steps = append(steps, Step{ID: kindNetns, Kind: kindNetns, Deadline: quick, work: netns{}})
	}
	for _, a := range record.Adapters {
		vfs := Step{ID: kindVFs + " " + a.Address.String(), Kind: kindVFs, Address: &a.Address, Needs: []string{}, Deadline: long, work: vfs{a}}
		if !a.Whole {
			steps = append(steps, vfs)
		}
		// In shared mode every container would see the device (docs/rdma.md).
		var guard []string
		if namespaces && a.Use == rdma.ForContainers {
			guard = []string{kindNetns}
		}
		if a.Whole {
			if a.Use == rdma.ForGuests {
				steps = append(steps, driverStep(a, a.Address, vfioPCI, guard))
			}
			continue
		}
		for _, vf := range a.VFs {
			needs := append([]string{vfs.ID}, guard...)
			if want := identityOf(a, vf); want != (driver.VFOptions{}) {
				id := Step{
					ID: kindIdentity + " " + vf.Address.String(), Kind: kindIdentity, Address: &vf.Address, Needs: []string{vfs.ID},
					Deadline: quick, work: identity{a, vf, want},
				}
				steps = append(steps, id)
				needs = append(needs, id.ID)
			}
			if vf.Driver != "" {
				steps = append(steps, driverStep(a, vf.Address, vf.Driver, needs))
			}
		}
	}
	for i := range steps {
		if steps[i].Needs == nil {
			steps[i].Needs = []string{}
		}
	}
	return steps
}

func driverStep(a rdma.Prepared, at pci.Address, name string, needs []string) Step {
	return Step{ID: kindDriver + " " + at.String(), Kind: kindDriver, Address: &at, Needs: needs, Deadline: long, work: binding{a, at, name}}
}

// vfioPCI is the driver of functions that are assigned to guests.
const vfioPCI = "vfio-pci"

// identityOf returns the identity that is recorded for a VF. A VF on InfiniBand needs a policy too:
// at first it is Down (mlx5; Linux, commit cc8e27cc98).
func identityOf(a rdma.Prepared, vf rdma.PreparedVF) driver.VFOptions {
	var o driver.VFOptions
	switch a.LinkLayer {
	case rdma.LinkInfiniBand:
		if vf.NodeGUID != nil {
			o.NodeGUID = vf.NodeGUID.String()
		}
		if vf.PortGUID != nil {
			o.PortGUID = vf.PortGUID.String()
		}
		if o != (driver.VFOptions{}) {
			o.State = "auto"
		}
	case rdma.LinkEthernet:
		o.MAC = vf.MAC
	}
	return o
}

// workOf returns the work that reverts a recorded step that no record wants any more, or nil for a
// kind of a later release.
func workOf(s StepResult) work {
	switch {
	case s.Kind == kindNetns:
		return netns{}
	case s.Kind == kindNodes:
		return nodes{}
	case s.ID == kindCDI+" gpu":
		return spec{file: prepare.GPUFile}
	case s.ID == kindCDI+" hca":
		return spec{file: prepare.HCAFile}
	case s.Address == nil:
	case s.Kind == kindVFs:
		return vfs{rdma.Prepared{Address: *s.Address}}
	case s.Kind == kindIdentity:
		return identity{vf: rdma.PreparedVF{Address: *s.Address}}
	case s.Kind == kindDriver:
		return binding{address: *s.Address}
	}
	return nil
}
