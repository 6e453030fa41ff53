// Package steps lists what must happen at every boot for what gpustack has recorded, as data: the
// steps in one order ([Of]), the unit gpustack-boot.service that carries them out ([UnitFiles]),
// and their result ([Observe]).
//
// It carries none out: package startup does. Checks and prepares read them here.
package steps

import (
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/gate"
	observed "gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Step is one step of every boot, as data: package startup carries it out.
type Step struct {
	ID       string // "vfs 0000:0c:00.0", unique
	Kind     string
	Address  *pci.Address
	Needs    []string      // ids of steps that must have succeeded
	Deadline time.Duration // for the step and for each of its requests to the kernel
	Goal     Goal
}

// Goal is what a step reaches. Which fields are set depends on the kind of the step: of netns and
// nodes none is.
type Goal struct {
	Adapter    rdma.Prepared        // the adapter of vfs, identity and driver
	Function   *observed.Function   // for guests, that driver binds; nil for that of an adapter
	VF         rdma.PreparedVF      // of identity
	Identity   driver.VFOptions     // that identity gives the VF
	Driver     string               // to which driver binds the function
	Containers *observed.Containers // for which cdi writes a spec
}

// Kinds of steps.
const (
	KindNetns    = "netns"
	KindVFs      = "vfs"
	KindIdentity = "identity"
	KindDriver   = "driver"
	KindNodes    = "nodes"
	KindCDI      = "cdi"
)

// Ids of the steps that write the specs of GPUs and of adapters.
const (
	SpecOfGPUs = KindCDI + " gpu"
	SpecOfHCAs = KindCDI + " hca"
)

// Deadlines of steps. Creating VFs takes up to a second for each, and after a change of the
// eswitch's mode the driver replaces its network interfaces.
const (
	Quick = 30 * time.Second
	Long  = 2 * time.Minute
	// Total is the time for all steps. The unit's TimeoutStartSec is longer.
	Total = 10 * time.Minute
)

// Of returns the steps for what is recorded, in their order: functions for guests that the initramfs
// does not bind first, then how RDMA devices belong to network namespaces, then for each adapter its
// VFs, and for each VF its identity and then its driver, which reads the identity when it binds the
// VF. What containers are given comes last.
func Of(r gate.Records) []Step {
	adapters := OfAdapters(r.RDMA)
	return slices.Concat(guestSteps(r.Guests), adapters, containerSteps(r.Containers, adapters))
}

// guestSteps returns the steps that bind functions for guests that are neither GPUs nor parts of
// their cards: what they are used for may have changed since they were recorded, so the gate is
// asked again.
func guestSteps(c *observed.Contract) (steps []Step) {
	for _, f := range c.All() {
		if f.By == observed.ByService {
			s := driverStep(rdma.Prepared{}, f.Address, f.Driver, []string{})
			s.Goal.Function = &f
			steps = append(steps, s)
		}
	}
	return steps
}

// OfAdapters returns the steps for a record of adapters, nil for none.
func OfAdapters(record *rdma.Record) []Step {
	if record == nil {
		return nil
	}
	var steps []Step
	namespaces := record.Netns == rdma.NetnsExclusive
	if namespaces {
		steps = append(steps, Step{ID: KindNetns, Kind: KindNetns, Deadline: Quick})
	}
	for _, a := range record.Adapters {
		vfs := Step{ID: KindVFs + " " + a.Address.String(), Kind: KindVFs, Address: &a.Address, Needs: []string{}, Deadline: Long, Goal: Goal{Adapter: a}}
		if !a.Whole {
			steps = append(steps, vfs)
		}
		// In shared mode every container would see the device (docs/rdma.md).
		var guard []string
		if namespaces && a.Use == rdma.ForContainers {
			guard = []string{KindNetns}
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
					ID: KindIdentity + " " + vf.Address.String(), Kind: KindIdentity, Address: &vf.Address, Needs: []string{vfs.ID},
					Deadline: Quick, Goal: Goal{Adapter: a, VF: vf, Identity: want},
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
	return Step{
		ID: KindDriver + " " + at.String(), Kind: KindDriver, Address: &at, Needs: needs, Deadline: Long, Goal: Goal{Adapter: a, Driver: name},
	}
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

// containerSteps returns the steps for what is recorded for containers, after those of adapters:
// the nodes of the GPUs, and unless they are static, the specs. A spec of adapters has to wait for
// the drivers of VFs, which give the uverbs nodes their numbers of this boot. The spec of GPUs does
// not need the node of each: a GPU that has failed must not keep the others from containers. It
// needs the nodes that all have, because a runtime injects a stale one without an error.
func containerSteps(c *observed.Containers, adapters []Step) (steps []Step) {
	addSpec := func(id string, needs []string) {
		if !c.Options.Static {
			steps = append(steps, Step{ID: id, Kind: KindCDI, Needs: needs, Deadline: Long, Goal: Goal{Containers: c}})
		}
	}
	gpus := host.Filter(c.All(), func(f observed.ContainerFunction) bool { return !f.HCA })
	if gpus != nil {
		steps = append(steps, Step{ID: KindNodes, Kind: KindNodes, Needs: []string{}, Deadline: Long})
		for _, f := range gpus {
			steps = append(steps, Step{ID: KindNodes + " " + f.Address.String(), Kind: KindNodes, Address: &f.Address, Needs: []string{}, Deadline: Long})
		}
		addSpec(SpecOfGPUs, []string{KindNodes})
	}
	if len(c.All()) > len(gpus) {
		needs := []string{}
		needs = append(needs, host.Map(host.Filter(adapters, func(s Step) bool { return s.Kind == KindDriver && c.At(*s.Address) != nil }),
			func(s Step) string { return s.ID })...)
		addSpec(SpecOfHCAs, needs)
	}
	return steps
}
