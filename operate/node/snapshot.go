package node

import (
	"context"
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container/containercheck"
	"gpustack/host/container/containerprepare"
	"gpustack/host/hardware"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/rdma/rdmacheck"
	"gpustack/host/rdma/rdmaprepare"
	"gpustack/host/selection"
	"gpustack/host/snapshot"
	"gpustack/nova/conf"
)

// Snapshot is what was read of a machine, for host scan, check and the plans of prepares elsewhere.
type Snapshot struct {
	Tree      *snapshot.Tree
	Functions int // PCI functions of the machine
	Warnings  []string
}

// TakeSnapshot reads what [ReadAll] does and host scan, without secrets, and without what
// identifies a single machine unless identity is true.
func TakeSnapshot(ctx context.Context, n Node, identity bool) (Snapshot, error) {
	if err := Settled(ctx, n.Root, change.Machine(n.Root).Observe()); err != nil {
		return Snapshot{}, err
	}
	tree := &snapshot.Tree{}
	n.Root = n.Root.Recorded(tree.Masked(snapshot.MaskBoot, MaskNova))
	n.Runner.Root = n.Root
	scan, err := newScan(machine.ObserveScan(n.Root, pci.Options{BARs: true}))
	if err != nil {
		return Snapshot{}, err
	}
	m := ReadAll(ctx, n)
	warnings := scan.AllWarnings()
	if err := m.Needs.Err; err != nil {
		warnings = append(warnings, strings.Split(err.Error(), "\n")...)
	}
	if err := m.Mediated.Err; err != nil { // host prepare refuses functions with mediated devices
		warnings = append(warnings, err.Error())
	}
	if identity {
		for _, name := range identityFiles() {
			if _, err := n.Root.ReadFile(name); err != nil && !host.IsAbsent(err) {
				warnings = append(warnings, err.Error())
			}
		}
	} else {
		tree.Remove(identityFiles()...)
	}
	if unread := tree.Unreadable(); len(unread) > 0 {
		warnings = append(warnings, fmt.Sprintf("host check and host prepare will show less: not readable: %s, such as /%s", host.Numbered(len(unread), "file"), unread[0]))
	}
	return Snapshot{tree, len(scan.Devices), warnings}, nil
}

// identityFiles returns the files that identify a single machine.
func identityFiles() []string {
	return append(host.HostnameFiles(),
		"etc/machine-id",
		"sys/class/dmi/id/product_serial",
		"sys/class/dmi/id/product_uuid",
		"sys/class/dmi/id/board_serial",
		"sys/class/dmi/id/chassis_serial",
	)
}

// ReadAll reads what host check, host prepare, rdma scan, rdma check, container check and container
// prepare read, by doing what they do, and returns what host check reads. Refusals and failed checks
// are what the snapshot shows later, so they are no errors here.
func ReadAll(ctx context.Context, n Node) machine.Machine {
	root := n.Root
	journal := change.Machine(root).Observe()
	m := machine.ObserveCheck(root, nil, &journal)
	m.VirtType = ReadVirtType(root)
	m.Nova, _ = judgeOffers(root, m, journal)
	n.RefusedByPrepare(ctx, m, journal) // as host check asks it
	hardware.Read(root)                 // as host scan --machine does

	rdmacheck.Observe(root, m.Devices.Value, journal) // reads what rdma scan reads, too
	containercheck.Observe(root, m.Devices, Offered(root, m.Devices.Value))
	containerprepare.Observe(root, m) //nolint:errcheck // read, not shown

	readAdapters(root, m)

	prepare.Observe(root, machine.ObservePrepare(root, true), selection.Options{None: true})
	return m
}

// readAdapters reads what rdma prepare reads, with options that concern every adapter. seen
// is the machine.
func readAdapters(root host.Root, seen machine.Machine) {
	m, err := rdmaprepare.Observe(root, seen, rdmaprepare.Options{})
	if err != nil {
		return // as rdma prepare fails on the machine
	}
	var all rdmaprepare.Options
	for _, a := range m.Stack.Adapters {
		if a.Address != nil && !a.IsVF() {
			all.Add = append(all.Add, *a.Address)
		}
	}
	if all.Add != nil {
		rdmaprepare.Observe(root, seen, all) //nolint:errcheck // read, not shown
	}
}

// MaskNova hides the passwords of Nova's files.
func MaskNova(name string, data []byte) []byte {
	if strings.Contains(name, "nova") && strings.HasSuffix(name, ".conf") {
		return conf.Masked(data)
	}
	return data
}
