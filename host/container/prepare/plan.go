package prepare

import (
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/edit"
	"gpustack/host/machine"
)

// Plan is a list of file changes, with what the operator has to know.
type Plan struct {
	Record   machine.Containers
	Files    edit.Plan
	Names    []string // qualified names of the devices that containers can be given
	Notes    []string // costs, and what is left to the operator
	Warnings []string
}

// NewPlan plans the specs of what is wanted, and the record. The record of guests stays as it is.
func NewPlan(root host.Root, m Machine, w Want) (Plan, error) {
	p := Plan{Record: w.Record, Warnings: slices.Concat(m.Unread, w.Warnings)}
	p.Record.Files = []machine.Hash{}
	for _, f := range []struct {
		name string
		spec *specs.Spec
	}{{GPUFile, w.Specs.GPU}, {HCAFile, w.Specs.HCA}} {
		c, err := putSpec(root, SpecFile(w.Record.Options, f.name), f.spec)
		if err != nil {
			return Plan{}, err
		}
		p.Files = append(p.Files, c)
		if c.After != nil {
			p.Record.Files = append(p.Record.Files, machine.Hash{Name: c.Name, Hash: c.After.Hash()})
		}
		if f.spec != nil {
			for _, d := range f.spec.Devices {
				p.Names = append(p.Names, f.spec.Kind+"="+d.Name)
			}
		}
	}
	containers := &p.Record
	if len(containers.Functions) == 0 {
		containers = nil
	}
	text, err := machine.RecordText(m.Guests, containers)
	if err != nil {
		return Plan{}, err
	}
	record, err := edit.Remove(root, machine.ContractFile)
	if err == nil && text != nil {
		record, err = edit.Put(root, machine.ContractFile, text, 0o600, false)
	}
	p.Files = append(p.Files, record)
	p.notes(w)
	return p, err
}

// putSpec plans the file of a spec, or without one its removal.
func putSpec(root host.Root, file string, spec *specs.Spec) (edit.Change, error) {
	if spec == nil {
		return edit.Remove(root, file)
	}
	text, err := cdi.Text(*spec)
	if err != nil {
		return edit.Change{}, err
	}
	return edit.Put(root, file, text, 0o644, false)
}

// notes adds the costs of the specs, and what is left to the operator.
func (p *Plan) notes(w Want) {
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	if w.Specs.GPU != nil {
		folder := w.Record.Options.LibraryFolder
		if w.Record.Options.LibraryPath {
			note("LD_LIBRARY_PATH=%s replaces an image's own; setuid programs ignore it", folder)
		} else {
			note("the driver's libraries are mounted in %s: only images whose LD_LIBRARY_PATH names it find them there; the others need --library-path", folder)
		}
		note("an image's own compatibility libraries (/usr/local/cuda/compat) are not used")
		var links []string
		for _, m := range w.Specs.GPU.ContainerEdits.Mounts {
			links = append(links, m.HostPath)
		}
		note("a container does not start if one of these is missing after an upgrade of the driver: %s", strings.Join(links, ", "))
		note("ModifyDeviceFiles of the driver is not hidden: a container with CAP_MKNOD can make nodes, which the device cgroup denies")
		note("the nodes have to exist at each boot before containers start: nvidia-modprobe -u -c 0, or nvidia-persistenced.service")
		note("the specs are for compute; nvidia-ctk cdi generate makes those for graphics, MIG and IMEX")
	}
	if w.Specs.HCA != nil {
		// containers.conf(5), default_ulimits; systemd.exec(5), LimitMEMLOCK
		note(`containers need locked memory: --ulimit memlock=-1 for one; for all of podman default_ulimits = ["memlock=-1:-1"] below [containers] in ` +
			"/etc/containers/containers.conf; for all of docker, containerd and slurmd LimitMEMLOCK=infinity below [Service] in " +
			"/etc/systemd/system/SERVICE.service.d/memlock.conf, then systemctl daemon-reload and a restart of the service")
		note("the numbers of uverbs nodes can change with the order in which adapters are found: gpustack container check compares them after a boot")
	}
}
