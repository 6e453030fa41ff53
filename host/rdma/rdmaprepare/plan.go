package rdmaprepare

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/rdma"
	"gpustack/templates"
)

// Files of rdma prepare, besides the record and those of the unit.
const (
	modprobeFile = modprobe.Dir + "/gpustack-rdma.conf"
	LoadFile     = "/etc/modules-load.d/gpustack-rdma.conf"
)

// Plan is a list of file changes.
type Plan struct {
	Record   rdma.Record
	Files    edit.Changes
	Notes    []string // what happens at boot, and what is left to the operator
	Warnings []string
}

// NewPlan plans the files of a wanted record, and those of the unit that repeats the steps of every
// boot, which no record may need any more.
func NewPlan(m Observed, w Want) (Plan, error) {
	unit, err := m.Unit.Plan(gate.Records{Guests: m.Contract, RDMA: &w.Record, Containers: m.Containers})
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Record: w.Record, Warnings: slices.Concat(m.Unread, w.Warnings)}
	var options, load string
	if w.Record.Netns == rdma.NetnsExclusive {
		options = templates.RDMAModprobe
	}
	modules := m.modules(w.Record)
	if len(modules) > 0 {
		load = templates.RDMAModules + strings.Join(modules, "\n") + "\n"
	}
	for _, f := range []struct{ name, text, purpose string }{
		{modprobeFile, options, "ib_core netns_mode=0"}, {LoadFile, load, modprobe.LoadPurpose(modules)},
	} {
		c, err := m.Files.Remove(f.name)
		if f.text != "" {
			c, err = m.Files.Put(f.name, []byte(f.text), 0o644, false)
			c.Purpose = f.purpose
		}
		if err != nil {
			return Plan{}, err
		}
		p.Files = append(p.Files, c)
	}
	p.Files = append(p.Files, unit...)
	for _, c := range p.Files {
		if c.After != nil {
			p.Record.Files = append(p.Record.Files, rdma.File{Name: c.Name, Hash: c.After.Hash()})
		}
	}
	record, err := m.Files.Remove(rdma.RecordFile)
	if err == nil && len(w.Record.Adapters) > 0 {
		var text []byte
		if text, err = p.Record.Text(); err == nil {
			record, err = m.Files.Put(rdma.RecordFile, text, 0o600, false)
		}
	}
	p.Files = append(p.Files, record)
	p.notes()
	return p, err
}

// modules returns the modules that a record needs and that a kernel has as a file, in the order in
// which they are loaded.
func (m Observed) modules(r rdma.Record) []string {
	if len(r.Adapters) == 0 {
		return nil
	}
	modules := []string{"ib_uverbs", "rdma_ucm"}
	has := func(holds func(rdma.Prepared) bool) bool { return slices.ContainsFunc(r.Adapters, holds) }
	if has(func(a rdma.Prepared) bool { return a.LinkLayer == rdma.LinkInfiniBand }) {
		modules = append(modules, "ib_umad", "ib_ipoib")
	}
	if has(func(a rdma.Prepared) bool { return a.Use == rdma.ForGuests }) {
		modules = append(modules, machine.VFIO)
	}
	return slices.DeleteFunc(modules, func(module string) bool {
		return !slices.ContainsFunc(m.Kernels, func(k modprobe.Modules) bool { return k.Loadable(module) })
	})
}

// notes adds what happens at boot, and what is left to the operator.
func (p *Plan) notes() {
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	infiniband, shared, locked := false, false, false
	for _, a := range p.Record.Adapters {
		infiniband = infiniband || a.LinkLayer == rdma.LinkInfiniBand && len(a.VFs) > 0
		shared = shared || a.Use == rdma.ForContainers && p.Record.Netns != rdma.NetnsExclusive
		locked = locked || a.Use == rdma.ForContainers
	}
	if infiniband {
		note("the subnet manager must have virtual ports enabled, and decides which partitions the VFs are in: see the lines for partitions.conf")
	}
	if shared {
		note(rdma.NoIsolation + "; --netns exclusive gives each device to one namespace")
	}
	if locked {
		note("containers need locked memory: --ulimit memlock=-1, or LimitMEMLOCK=infinity of their service")
	}
}

// Partitions returns a line of OpenSM's partitions.conf (opensm(8)) with the port GUIDs of the VFs
// of an InfiniBand adapter, as an example, "" for another one.
func Partitions(a rdma.Prepared) string {
	var members []string
	for _, vf := range a.VFs {
		if vf.PortGUID != nil {
			members = append(members, "0x"+strings.ReplaceAll(vf.PortGUID.String(), ":", "")+"=full")
		}
	}
	if members == nil {
		return ""
	}
	return "NAME=0x8001, ipoib: " + strings.Join(members, ", ") + ";"
}
