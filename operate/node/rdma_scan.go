package node

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// RDMAScan is the output of rdma scan (docs/json.md).
type RDMAScan struct {
	Schema int     `json:"schema"`
	Host   *string `json:"host"`
	// which network namespaces can use RDMA devices; null without module ib_core
	Netns *rdma.NetnsMode `json:"netns"`
	// the kernel's verbs ABI; null without module ib_uverbs
	VerbsABI *int `json:"verbs_abi"`
	// the device node of the connection manager; null without module rdma_ucm
	CM       *rdma.Node     `json:"rdma_cm"`
	Adapters []rdma.Adapter `json:"adapters"` // by PCI address, then software devices by name
	Links    []adapterLink  `json:"links"`    // the link of each adapter to each GPU
	Warnings []string       `json:"warnings"` // what could not be read, except of adapters

	GPUs []*pci.Device `json:"-"`
}

// adapterLink is the link between an adapter and a GPU.
type adapterLink struct {
	Adapter pci.Address `json:"adapter"` // the adapter
	GPU     pci.Address `json:"gpu"`     // the GPU
	// the worst part of the path between them, as nvidia-smi topo -m names it
	Link pci.Link `json:"link"`
}

// AllWarnings returns the warnings with those of the adapters.
func (r RDMAScan) AllWarnings() []string {
	return slices.Concat(r.Warnings, host.FlatMap(r.Adapters, func(a rdma.Adapter) []string { return a.Warnings }))
}

// ReadRDMA returns the RDMA adapters of the machine below root, or only those at some addresses,
// and all PCI functions. gids says that the tables of GIDs are read.
func ReadRDMA(root host.Root, only []pci.Address, gids bool) (r RDMAScan, all pci.Devices, err error) {
	record, recordErr := rdma.ReadRecord(root)
	all, stack, err := rdma.Scan(root, rdma.Options{GIDs: gids, Whole: record.Whole()})
	if err != nil {
		return RDMAScan{}, nil, err
	}
	if recordErr != nil {
		stack.Warnings = append(stack.Warnings, fmt.Sprintf("adapters that are assigned to guests as a whole are not listed: %v", recordErr))
	}
	if missing := host.Filter(only, func(a pci.Address) bool { return stack.At(a) == nil }); missing != nil {
		return RDMAScan{}, nil, errors.Join(host.Map(missing, func(a pci.Address) error { return rdma.NotAdapter(a, all) })...)
	}
	if len(only) > 0 {
		stack.Adapters = slices.DeleteFunc(stack.Adapters, func(a rdma.Adapter) bool {
			return a.Address == nil || !slices.Contains(only, *a.Address)
		})
	}
	stack.Warnings = append(stack.Warnings, findHolders(root, all, &stack)...)
	return newRDMAScan(root, all, stack), all, nil
}

// findHolders adds what uses each virtual function, and returns warnings. A copy
// of a machine has no processes.
func findHolders(root host.Root, devices pci.Devices, stack *rdma.Stack) (warnings []string) {
	if !slices.ContainsFunc(stack.Adapters, func(a rdma.Adapter) bool { return len(a.VFs) > 0 }) {
		return nil
	}
	uses, err := machine.ObserveUses(root, devices, root.IsMachine())
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("cannot determine which processes have virtual functions open: %v", err))
	}
	if why := uses.Unknown(); why != nil && uses.Running {
		warnings = append(warnings, "cannot determine which guests have virtual functions: "+why.Error())
	}
	for _, a := range stack.Adapters {
		for k := range a.VFs {
			v := &a.VFs[k]
			for _, h := range gate.HeldOf(uses, v.Address) {
				v.Holder = h.By
			}
		}
	}
	return warnings
}

func newRDMAScan(root host.Root, devices pci.Devices, stack rdma.Stack) RDMAScan {
	r := RDMAScan{
		Schema: 1, Host: host.ReadHostname(root), Netns: stack.Netns, VerbsABI: stack.VerbsABI, CM: stack.CM,
		Adapters: stack.Adapters, Warnings: stack.Warnings, GPUs: rdma.GPUs(devices),
	}
	for _, a := range stack.Adapters {
		for _, gpu := range r.GPUs {
			if a.Function != nil {
				r.Links = append(r.Links, adapterLink{*a.Address, gpu.Address, devices.Link(a.Function, gpu)})
			}
		}
	}
	return r
}
