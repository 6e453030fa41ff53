package containerprepare

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// Plan is a list of file changes, with what the operator has to know.
type Plan struct {
	Record   machine.Containers
	Files    edit.Changes
	Boot     edit.Changes             // specs that each boot writes, as one would now; no entry records them
	Names    []string                 // qualified names of the devices that containers can be given
	NamesOf  map[pci.Address][]string // those of each function
	Notes    []string                 // costs, and what is left to the operator
	Restart  []string                 // services that take a changed file at their next start
	Warnings []string
}

// NewPlan plans the specs of what is wanted, the files of the unit that repeats the steps of every
// boot, and the record. The record of guests stays as it is. Static specs need no unit: a machine
// without systemd has none.
func NewPlan(m Observed, w Want) (Plan, error) {
	unit, err := m.planUnit(&w)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Record: w.Record, Warnings: slices.Concat(m.Unread, w.Warnings)}
	toolkit, warning, err := m.planToolkit(w)
	if err != nil {
		return Plan{}, err
	}
	if err := p.specs(m, w, toolkit.After != nil); err != nil {
		return Plan{}, err
	}
	p.Files = append(p.Files, unit...)
	limits, restart, warnings, err := m.planMemlock(w.Record)
	if err != nil {
		return Plan{}, err
	}
	p.Files = slices.Concat(p.Files, limits, edit.Changes{toolkit})
	record, err := m.planRecord(&p.Record)
	if err != nil {
		return Plan{}, err
	}
	p.Restart = restart
	relisted := slices.ContainsFunc(p.Boot.Pending(), func(c edit.Change) bool { return c.Name == container.RefreshFile })
	if toolkit.Action() != edit.None || relisted && record.Action() != edit.None {
		p.Restart = append(p.Restart, container.RefreshUnit)
	}
	if toolkit.Action() != edit.None {
		p.Notes = append(p.Notes, fmt.Sprintf("%s reads %s after systemctl daemon-reload", container.RefreshUnit, container.RefreshDropIn))
	}
	p.Warnings = append(p.Warnings, warnings...)
	if warning != "" {
		p.Warnings = append(p.Warnings, warning)
	}
	p.Files = append(p.Files, record)
	p.notes(m, w, len(unit) > 0)
	if len(restart) > 0 {
		p.Notes = append(p.Notes, memlockNote(restart))
	}
	if w.Specs.GPU != nil && len(unit) > 0 && !m.Driver.OfContainer() {
		switch {
		case errors.Is(m.NodeMaker, host.ErrNoProgram):
			p.Warnings = append(p.Warnings, "nothing makes the nodes of NVIDIA's driver at boot: nvidia-modprobe is not installed")
		case m.NodeMaker != nil:
			p.Warnings = append(p.Warnings, m.NodeMaker.Error())
		}
	}
	return p, nil
}

// planUnit plans the files of the unit. Where static specs do without one, it adds to the warnings
// what no boot does then.
func (m Observed) planUnit(w *Want) (edit.Changes, error) {
	unit, err := m.Unit.Plan(gate.Records{Guests: m.Guests, RDMA: m.RDMA, Containers: &w.Record})
	if !w.Record.Options.Static && errors.Is(err, steps.ErrNoSystemd) {
		err = host.WithHint(steps.ErrNoSystemd, host.Textf("write the specs in %s, once, and make the driver's nodes at boot yourself: %s",
			cdi.StaticFolder, w.options.static()))
	}
	if w.Record.Options.Static && (errors.Is(err, steps.ErrNoSystemd) || errors.Is(err, steps.ErrNoProgram)) {
		w.Warnings = append(w.Warnings, "no boot makes the driver's nodes: "+strings.ReplaceAll(err.Error(), "\n", "; "))
		err = nil
	}
	return unit, err
}

// specs adds the files of both specs, of which static ones are recorded, the names in them, and the
// list that NVIDIA's unit reads.
func (p *Plan) specs(m Observed, w Want, lists bool) error {
	p.Record.Files, p.NamesOf = []machine.Hash{}, map[pci.Address][]string{}
	for _, f := range []struct {
		name string
		spec *specs.Spec
	}{{container.GPUFile, w.Specs.GPU}, {container.HCAFile, w.Specs.HCA}} {
		changes, err := container.PutSpec(m.Files, w.Record.Options, f.name, f.spec)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if path.Dir(c.Name) == cdi.DynamicFolder {
				p.Boot = append(p.Boot, c)
				continue
			}
			p.Files = append(p.Files, c)
			if c.After != nil {
				p.Record.Files = append(p.Record.Files, machine.Hash{Name: c.Name, Hash: c.After.Hash()})
			}
		}
		if f.spec != nil {
			p.Names = append(p.Names, container.NamesOf(f.spec)...)
		}
	}
	list, err := container.RefreshList(m.Files, &w.Record, m.Driver, lists)
	if err != nil {
		return err
	}
	p.Boot = append(p.Boot, list)
	for _, f := range w.Record.Functions {
		only := machine.Containers{Functions: []machine.ContainerFunction{f}, Options: w.Record.Options}
		of := container.SpecOf(&only, m.Driver, m.Stack, m.Devices)
		p.NamesOf[f.Address] = append(container.NamesOf(of.GPU), container.NamesOf(of.HCA)...)
	}
	return nil
}

// planRecord plans the record's file, without the containers' part if that has no function.
func (m Observed) planRecord(containers *machine.Containers) (edit.Change, error) {
	if len(containers.Functions) == 0 {
		containers = nil
	}
	text, err := machine.RecordText(m.Guests, containers)
	if err != nil {
		return edit.Change{}, err
	}
	if text == nil {
		return m.Files.Remove(machine.ContractFile)
	}
	return m.Files.Put(machine.ContractFile, text, 0o600, false)
}

// versioned returns the names in a spec that change with every upgrade.
func versioned(spec *specs.Spec) (names []string) {
	for _, mount := range spec.ContainerEdits.Mounts {
		if name := path.Base(mount.HostPath); strings.Contains(name, ".so.") && !slices.Contains(nvidia.CoreLinks(), name) {
			names = append(names, name)
		}
	}
	return names
}

// notes adds the costs of the specs, and what is left to the operator.
func (p *Plan) notes(m Observed, w Want, hasUnit bool) {
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	if w.Specs.GPU != nil {
		const folder = container.LibraryFolder
		if w.Record.Options.LibraryPath {
			note("LD_LIBRARY_PATH=%s replaces an image's own; setuid programs ignore it", folder)
		} else {
			note("the driver's libraries are mounted in %s: only images whose LD_LIBRARY_PATH names it find them there; the others need --library-path", folder)
		}
		if w.Record.Options.LibraryPath {
			note("an image's own compatibility libraries (/usr/local/cuda/compat) are not used")
		} else {
			note("an image's own compatibility libraries (/usr/local/cuda/compat) are used only if its ld.so.conf names their folder, and then instead of the driver's")
		}
		switch names := strings.Join(versioned(w.Specs.GPU), ", "); {
		case names == "":
		case w.Record.Options.Static:
			note("names with the driver's version change with every upgrade: %s; after each one, run: %s", names, host.NewCommand("container prepare"))
		default:
			note("names with the driver's version change with every upgrade: %s; after one without a reboot, run: systemctl restart %s", names, steps.Unit)
		}
		if hasUnit && !m.Driver.OfContainer() {
			note("gpustack-boot.service makes the nodes at each boot, before containers start: nvidia-modprobe -u -c 0")
		}
	}
	if m.SELinux.DeniesDevices() && len(w.Record.Functions) > 0 {
		forAll := ""
		if m.SELinux.Devices.Known() { // the policy has the boolean
			forAll = ", or for all containers: setsebool -P container_use_devices on"
		}
		note("SELinux is enforcing and denies containers device nodes: podman run --security-opt=label=disable%s", forAll)
	}
	if !w.Record.Options.Static && len(w.Record.Functions) > 0 {
		note("gpustack-boot.service writes the specs at each boot, as the machine is then; --static writes them in %s, once", cdi.StaticFolder)
	}
	if w.Specs.HCA != nil {
		switch {
		case m.exclusive():
			note("%s", rdma.OwnNamespace)
		case m.RDMA != nil:
			note("%s; '%s' gives each device to one namespace", rdma.NoIsolation, host.NewCommand("rdma prepare").Flag("netns", "exclusive"))
		default: // an adapter has to be named to rdma prepare
			note("%s", rdma.NoIsolation)
		}
		note("containers of podman need --ulimit memlock=-1: as a setting for all it would keep containers of ordinary users from starting")
		if w.Record.Options.Static {
			note("the numbers of uverbs nodes can change with the order in which adapters are found: %s compares them after a boot",
				host.NewCommand("container check"))
		}
	}
}
