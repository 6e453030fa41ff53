package node

import (
	"context"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container/containercheck"
	"gpustack/host/container/containerprepare"
	"gpustack/host/guard"
	"gpustack/host/hardware"
	"gpustack/host/machine"
	"gpustack/host/prepare"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmacheck"
	"gpustack/host/rdma/rdmaprepare"
	"gpustack/host/selection"
	"gpustack/nova/conf"
)

// ReadAll reads what host check, host prepare, rdma scan, rdma check, container check and container
// prepare read, by doing what they do. Refusals and failed checks are what the snapshot shows
// later, so they are no errors here.
func ReadAll(ctx context.Context, n Node) {
	root := n.Root
	journal := change.Machine(root).Observe()
	m := machine.Observe(root, machine.Check, machine.Options{Journal: &journal})
	m.VirtType = ReadVirtType(root)
	m.Nova = JudgeOffers(root, m)
	n.RefusedByPrepare(ctx, m, journal) // as host check asks it
	hardware.Read(root)                 // as host scan --machine does

	rdmacheck.Observe(root, m.Devices.Value, journal, machine.Look[guard.Running]{}) // reads what rdma scan reads, too
	containercheck.Observe(root, m.Devices, OfferedGPUs(root, m.Devices.Value))
	containerprepare.Observe(root, m) //nolint:errcheck // read, not shown

	readAdapters(root, m)

	m = machine.Observe(root, machine.Boot|machine.Needs, machine.Options{})
	prepare.Observe(root, m, selection.Options{None: true})
}

// readAdapters reads what rdma prepare reads, by the options that together concern everything. seen
// is the machine.
func readAdapters(root host.Root, seen machine.Machine) {
	observe := func(o rdmaprepare.Options) (rdmaprepare.Machine, error) {
		m, err := rdmaprepare.Observe(root, seen, guard.Running{}, o)
		if m.Images != nil && m.MayConfigure(o) {
			m.Images() //nolint:errcheck // read, not shown
		}
		return m, err
	}
	m, err := observe(rdmaprepare.Options{})
	if err != nil {
		return // as rdma prepare fails on the machine
	}
	all := rdmaprepare.Options{Netns: rdma.NetnsExclusive}
	for _, a := range m.Stack.Adapters {
		if a.Address != nil && !a.IsVF() {
			all.Add = append(all.Add, *a.Address)
		}
	}
	if all.Add == nil {
		return
	}
	for _, all.Use = range []rdma.Use{rdma.ForGuests, rdma.ForContainers} {
		observe(all) //nolint:errcheck // read, not shown
	}
}

// MaskNova hides the passwords of Nova's files.
func MaskNova(name string, data []byte) []byte {
	if strings.Contains(name, "nova") && strings.HasSuffix(name, ".conf") {
		return conf.Masked(data)
	}
	return data
}
