package prepare

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/steps"
)

// Plan is a list of file changes and of the programs that must run after them.
type Plan struct {
	Files     edit.Changes
	Functions []machine.Function
	Arguments boot.Change
	// Menu and Initramfs report which generated files the changes affect.
	Menu, Initramfs bool
	// Programs regenerate the affected files, AllPrograms all of them.
	Programs, AllPrograms []host.Program
	// Regenerated is what Programs regenerate, AllRegenerated what AllPrograms do.
	Regenerated, AllRegenerated Regenerated
	None                        bool // nothing of host prepare remains
	Warnings                    []string
	// Others are settings outside gpustack by which functions are bound even with gpustack=off.
	Others []modprobe.Stated
	// Blacklists are settings outside gpustack that keep every driver of the host from a GPU, with
	// gpustack=off too.
	Blacklists []string
}

// Regenerated is what programs generate from changed files.
type Regenerated struct {
	Kernels int  // whose initramfs is regenerated
	Menu    bool // the boot loader's menu
}

// NewPlan plans the changes that bring the machine to the wanted configuration.
func NewPlan(m Observed, w Want) (Plan, error) {
	n, err := newNode(m)
	if err != nil {
		return Plan{}, err
	}
	if w.none {
		return n.planNone()
	}
	p := Plan{Functions: w.contract.Functions, Arguments: w.arguments.Change(n.Loader.Args()), Warnings: append(n.Warnings, w.warnings...),
		Others: w.others, Blacklists: w.blacklists}
	menu, err := n.Loader.Plan(n.edited, w.arguments)
	if err != nil {
		return Plan{}, err
	}
	modules, err := w.modprobe.Plan(n.edited, n.Conf)
	if err != nil {
		return Plan{}, err
	}
	early, err := w.early.Plan(n.edited, n.Maker)
	if err != nil {
		return Plan{}, err
	}
	p.Menu = len(menu.Pending()) > 0
	p.Initramfs = len(modules.Pending())+len(early.Pending())+len(w.takeOver.Pending()) > 0
	for _, release := range n.withoutImage() {
		p.Warnings = append(p.Warnings, fmt.Sprintf("kernel %s has no initramfs in /boot to bind functions early: when it is booted, host drivers may keep them",
			release))
	}
	p.addPrograms(n)
	p.Files = slices.Concat(menu, w.takeOver, modules, early)

	for _, c := range p.Files {
		if c.After != nil && isOurs(c.Name) {
			w.contract.Files = append(w.contract.Files, machine.Hash{Name: c.Name, Hash: c.After.Hash()})
		}
	}
	unit, err := n.unitPlan(&w.contract)
	if err != nil {
		return Plan{}, err
	}
	contract, err := n.planContract(&w.contract)
	p.Files = append(append(p.Files, unit...), contract)
	return p, err
}

// addPrograms adds the programs to run after the changes, and what they regenerate.
func (p *Plan) addPrograms(n node) {
	p.Programs, p.AllPrograms = n.programs(p.Menu, p.Initramfs), n.programs(true, true)
	p.AllRegenerated = Regenerated{Kernels: len(n.Images) - len(n.withoutImage()), Menu: len(n.Loader.Programs(true, false)) > 0}
	if p.Initramfs {
		p.Regenerated.Kernels = p.AllRegenerated.Kernels
	}
	p.Regenerated.Menu = p.Menu && p.AllRegenerated.Menu
}

// programs returns the programs that regenerate the initramfs of every kernel and the boot
// loader's files. Where kernel-install generates initramfs images itself, dracut is not run
// separately.
func (n node) programs(menu, initramfs bool) []host.Program {
	var programs []host.Program
	if initramfs {
		programs = n.Maker.Programs(n.Images)
	}
	return append(programs, n.Loader.Programs(menu, initramfs)...)
}

// withoutImage returns the kernels for which no program generates an initramfs.
func (n node) withoutImage() []string {
	var releases []string
	for _, i := range n.Images {
		installed := slices.ContainsFunc(n.Loader.Programs(false, true), func(p host.Program) bool { return p.Release == i.Release })
		if i.Name == "" && !installed {
			releases = append(releases, i.Release)
		}
	}
	return releases
}

// unitPlan returns the plan that the unit of every boot exists if what is recorded needs it. That of
// others is theirs: without a function that the unit binds, it stays as it is, masked or not.
func (n node) unitPlan(guests *machine.Contract) (edit.Changes, error) {
	others := gate.Records{RDMA: n.adapters, Containers: n.Containers}
	if len(steps.Of(gate.Records{Guests: guests})) == 0 && len(steps.Of(others)) > 0 {
		return nil, nil
	}
	return n.unit.Plan(gate.Records{Guests: guests, RDMA: n.adapters, Containers: n.Containers})
}

// isOurs reports whether gpustack owns the whole file.
func isOurs(name string) bool {
	return strings.Contains(name, "gpustack")
}

// planContract does not rewrite a record that differs only in IOMMU groups: the first boot with
// the IOMMU on creates groups, which does not change what was agreed. Without a contract, it leaves
// what is recorded for containers, and removes the file without that.
func (n node) planContract(c *machine.Contract) (edit.Change, error) {
	text, err := machine.RecordText(c, n.Containers)
	if err != nil {
		return edit.Change{}, err
	}
	if text == nil {
		return n.edited.Remove(machine.ContractFile)
	}
	if n.Recorded != nil && c != nil {
		same := *c
		same.Functions = slices.Clone(c.Functions)
		for i := range same.Functions {
			f := &same.Functions[i]
			if r := n.Recorded.At(f.Address); r != nil && r.Group == nil {
				f.Group, f.Members = nil, r.Members
			}
		}
		recorded, err := machine.RecordText(n.Recorded, n.Containers)
		if err != nil {
			return edit.Change{}, err
		}
		if unchanged, err := machine.RecordText(&same, n.Containers); err == nil && string(unchanged) == string(recorded) {
			text = recorded
		}
	}
	return n.edited.Put(machine.ContractFile, text, 0o600, false)
}
