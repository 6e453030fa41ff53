// Package containercheck determines whether containers can use the GPUs and RDMA adapters of a
// machine, and if not, why: the driver, its libraries and device nodes, every CDI spec, the images
// that are handed over, and what gpustack has recorded. [Observe] reads a machine, [Verify] judges
// it. Each check has a file and a function named as in the output. Findings quote the messages
// that users see, because these rarely name their causes.
//
// It reads files below a root. It loads no library of NVIDIA's and runs none of its programs,
// since these create device nodes on the running machine whatever root they are given.
package containercheck

import (
	"errors"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
)

// errNothing means that a machine has neither a GPU of NVIDIA's nor an RDMA adapter, and no CDI
// spec.
var errNothing = host.WithHint(errors.New("nothing to check: neither a GPU of NVIDIA's, nor an RDMA adapter, nor a CDI spec"),
	host.Textf("to see all functions with their drivers: %s", host.NewCommand("host scan").Flag("all")))

// checks are the checks of what containers get, and of what they get it with.
var checks = checklist.List[view]{
	{Name: "module", Judge: view.module},
	{Name: "gpus", Judge: view.gpus},
	{Name: "pcie", Judge: view.pcie},
	{Name: "libraries", Judge: view.libraries},
	{Name: "nodes", Judge: view.nodes},
	{Name: "fabric", Judge: view.fabric},
	{Name: "specs", Judge: view.specs},
	{Name: "devices", Judge: view.devices},
	{Name: "record", Judge: view.record},
	{Name: "toolkit", Judge: view.toolkit},
	{Name: "roles", Judge: view.roles},
	{Name: "images", Judge: view.images},
	{Name: "runtimes", Judge: view.runtimes},
	{Name: "cgroups", Judge: view.cgroups},
	{Name: "selinux", Judge: view.selinux},
}

// Verify runs all checks. Its findings are in the order in which an operator would look for a
// problem. Each check has at least one finding. It returns errNothing for a machine with nothing to
// check.
func Verify(m Observed) ([]host.Finding, checklist.Verdict, error) {
	v := view{Observed: m}
	for i := range m.Devices.Value {
		if d := &m.Devices.Value[i]; d.IsNVIDIAGPU() {
			v.cards = append(v.cards, d)
		}
	}
	if m.isEmpty() {
		return nil, checklist.Unknown, errNothing
	}
	v.given = container.Devices(m.Specs, m.Driver.Value, m.Stack.Value)
	findings, verdict := checks.Judge(v)
	unread := !m.Driver.Seen() || !m.Contract.Seen()
	if !m.Devices.Seen() || verdict == checklist.Ready && unread {
		verdict = checklist.Unknown
	}
	return findings, verdict, nil
}

// isEmpty reports whether a machine has nothing that containers could be given, and nothing that
// gives them something.
func (m Observed) isEmpty() bool {
	if !m.Devices.Seen() || !m.Driver.Seen() || !m.Stack.Seen() {
		return false
	}
	return !slices.ContainsFunc(m.Devices.Value, func(d pci.Device) bool { return d.IsNVIDIAGPU() }) &&
		m.Driver.Value.Loaded == nil && len(m.Stack.Value.Adapters) == 0 && len(m.Specs.Files) == 0 && len(m.Specs.Problems) == 0
}

// prepare returns the command that records a GPU for containers, with all GPUs of its board if that
// has NVSwitches, or that plans again what is recorded, if that has a GPU. Where no boot can write
// specs they are static.
func (v view) prepare() host.Command {
	c := v.recording()
	if v.Driver.Value.OfContainer() || !v.Systemd {
		return c.Flag("static")
	}
	return c
}

// recording returns the command of prepare without the place of the specs.
func (v view) recording() host.Command {
	c := host.NewCommand("container prepare")
	if r := v.Containers.Value; r != nil && slices.ContainsFunc(r.Functions, func(f machine.ContainerFunction) bool { return !f.HCA }) {
		return c
	}
	hasSwitches := slices.ContainsFunc(v.Devices.Value, func(d pci.Device) bool { return d.IsNVSwitch() })
	var first []*pci.Device
	for _, d := range v.cards {
		g := v.Driver.Value.GPU(d.Address)
		isUsable := nvidia.IsDriver(d.DriverName()) && g != nil && g.Minor != nil && !v.Driver.Value.MIG[d.Address]
		if isUsable && v.Contract.Value.At(d.Address) == nil && (len(first) == 0 || hasSwitches && first[0].IsBoardGPU() && d.IsBoardGPU()) {
			first = append(first, d)
		}
	}
	for _, d := range first {
		c = c.Flag("device", d.Address.String())
	}
	if first == nil {
		return c.Flag("device", "ADDRESS")
	}
	return c
}

// view is a machine with values that several checks use.
type view struct {
	Observed
	cards []*pci.Device     // GPUs of NVIDIA's
	given []container.Given // by the devices of CDI specs
}
