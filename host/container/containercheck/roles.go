package containercheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
)

// Offered is a GPU that a device_spec of nova.conf matches: nova-compute offers it to guests.
type Offered struct {
	Address pci.Address
	Spec    string // as in the file
	File    string
	Line    int
	// ByAddress reports whether the spec names the address; one of vendor and product matches all
	// identical devices.
	ByAddress bool
}

// roles finds GPUs that guests and containers are both offered, by the record of host prepare,
// device_spec of nova.conf, and all specs.
func (v view) roles() []host.Finding {
	switch {
	case !v.Contract.Seen():
		return checklist.Unread(v.Contract.File, v.Contract.Err)
	case !v.Specs.Seen():
		return checklist.Unread(v.Specs.File, v.Specs.Err)
	case !v.Driver.Seen():
		return checklist.Unread(v.Driver.File, v.Driver.Err)
	}
	var findings []host.Finding
	if !v.Offered.Seen() {
		findings = checklist.Unread(v.Offered.File, v.Offered.Err)
	}
	type use struct{ file, title, field string }
	uses := map[pci.Address]use{} // by specs of containers
	for _, n := range v.namedNodes() {
		a, ok := v.gpuOf(n.path)
		if !ok {
			continue
		}
		if _, known := uses[a]; !known {
			uses[a] = use{n.file, n.title(), n.field}
		}
	}
	for _, d := range v.cards {
		u, used := uses[d.Address]
		guest := v.Contract.Value.At(d.Address)
		switch {
		case used && guest != nil && nvidia.IsDriver(d.DriverName()):
			findings = append(findings, host.Finding{
				Status: host.Warn, File: u.file, Seen: fmt.Sprintf("%s: %s gives %s to containers, and it is recorded for guests", u.field, u.title, d.Address),
				Effect: "containers can use it until the reboot that binds it to " + guest.Driver + ", and lose it then",
				Remedy: host.Textf("stop containers that use it, reboot, and generate the spec again; or leave it to containers: %s",
					host.NewCommand("host prepare").Flag("remove", d.Address.String())),
			})
		case used && guest != nil:
			findings = append(findings, host.Finding{
				Status: host.Fail, File: u.file, Seen: fmt.Sprintf("%s: %s gives %s to containers, and it is recorded for guests and bound to %s", u.field, u.title,
					d.Address, orNone(d.DriverName())),
				Effect: `a container gets a node that cannot be opened: "No such device or address"`, Remedy: "generate the spec again",
			})
		}
		if o, ok := v.offer(d.Address); ok && guest == nil && (used || v.isForContainers(d.Address)) {
			f := host.Finding{
				Status: host.Fail, File: o.File, Line: o.Line,
				Seen:   fmt.Sprintf("device_spec %s matches %s, which containers use", o.Spec, d.Address),
				Effect: "Nova assigns it to a guest while containers use it: unbinding it from NVIDIA's driver waits for them, and the guest does not start",
				Remedy: "add the addresses of the GPUs for guests to the spec, then restart nova-compute",
			}
			if o.ByAddress {
				f.Remedy = "remove the address from the spec, then restart nova-compute"
			}
			findings = append(findings, f)
		}
	}
	// A device that is bound to vfio-pci has no minor number any more: nodes that no GPU has are
	// reported by nodes and devices.
	return checklist.OrPass(findings, "%s, none of which has two roles", host.Numbered(len(v.cards), "GPU"))
}

func (v view) offer(a pci.Address) (o Offered, ok bool) {
	i := slices.IndexFunc(v.Offered.Value, func(o Offered) bool { return o.Address == a })
	if i < 0 {
		return o, false
	}
	return v.Offered.Value[i], true
}

// isForContainers reports whether a function is recorded for containers.
func (v view) isForContainers(a pci.Address) bool {
	return v.Containers.Value.At(a) != nil
}
