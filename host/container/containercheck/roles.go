package containercheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Offered is a function that a device_spec of nova.conf matches: nova-compute offers it to guests.
type Offered struct {
	Address pci.Address
	Spec    string // as in the file
	File    string
	Line    int
	// ByAddress reports whether the spec names the address; one of vendor and product matches all
	// identical devices.
	ByAddress bool
}

// roles finds GPUs and adapters that guests and containers are both offered, by the records,
// device_spec of nova.conf, and all specs.
func (v view) roles() []host.Finding {
	switch {
	case !v.Contract.Seen():
		return checklist.Unread(v.Contract.File, v.Contract.Err)
	case !v.Driver.Seen():
		return checklist.Unread(v.Driver.File, v.Driver.Err)
	}
	var findings []host.Finding
	if !v.Offered.Seen() {
		findings = checklist.Unread(v.Offered.File, v.Offered.Err)
	}
	records := gate.Records{Guests: v.Contract.Value, Containers: v.Containers.Value, RDMA: v.Adapters.Value}
	uses := map[pci.Address]container.Given{} // by specs of containers
	adapters := host.Map(host.Filter(v.Containers.Value.All(), func(f machine.ContainerFunction) bool { return f.HCA }),
		func(f machine.ContainerFunction) pci.Address { return f.Address })
	for _, g := range v.given {
		for _, a := range g.Functions {
			if _, known := uses[a]; known {
				continue
			}
			uses[a] = g
			if d := v.Devices.Value.At(a); d == nil || !d.IsNVIDIAGPU() {
				findings, adapters = append(findings, v.adapterRole(records, a, g)...), append(adapters, a)
			}
		}
	}
	for _, a := range pci.Unique(adapters) {
		if !records.ForGuests(v.Devices.Value, a) { // adapterRole has the remedy
			findings = append(findings, v.offeredToo(a,
				"Nova assigns it to a guest while containers use it: libvirt unbinds it from its driver, and containers no longer have it")...)
		}
	}
	for _, d := range v.cards {
		u, used := uses[d.Address]
		guest := v.Contract.Value.At(d.Address)
		if used && guest != nil { // its driver is NVIDIA's, or no minor would lead to it
			findings = append(findings, host.Finding{
				Status: host.Warn, File: u.File, Seen: fmt.Sprintf("%s gives %s to containers, and it is recorded for guests", u.Name, d.Address),
				Effect: "containers can use it until the reboot that binds it to " + guest.Driver + ", and lose it then",
				Remedy: host.Textf("stop containers that use it, reboot, and generate the spec again; or leave it to containers: %s",
					host.NewCommand("host prepare").Flag("remove", d.Address.String())),
			})
		}
		if guest == nil && (used || v.isForContainers(d.Address)) {
			findings = append(findings, v.offeredToo(d.Address,
				"Nova assigns it to a guest while containers use it: unbinding it from NVIDIA's driver waits for them, and the guest does not start")...)
		}
	}
	// A device that is bound to vfio-pci has no minor number any more: nodes that no GPU has are
	// reported by nodes and devices.
	return checklist.OrPass(findings, "%s, none of which has two roles", host.Numbered(len(v.cards), "GPU"))
}

// adapterRole finds a spec that gives containers an adapter of guests, or one whose VFs are theirs.
func (v view) adapterRole(records gate.Records, a pci.Address, g container.Given) []host.Finding {
	f := host.Finding{Status: host.Fail, File: g.File, Effect: "containers use the adapter and its identity on the network beside guests",
		Remedy: host.Textf("remove its device from %s, and give containers an adapter of their own: '%s' lists them", g.File, host.NewCommand("rdma scan"))}
	prepared := records.Adapter(v.Devices.Value, a)
	switch {
	case records.ForGuests(v.Devices.Value, a):
		f.Seen = fmt.Sprintf("%s gives %s to containers, and it is recorded for guests", g.Name, a)
	case prepared != nil && prepared.Use == rdma.ForGuests:
		f.Seen = fmt.Sprintf("%s gives %s to containers, and rdma prepare has recorded its VFs for guests", g.Name, a)
	case !v.Adapters.Seen():
		return checklist.Unread(v.Adapters.File, v.Adapters.Err)
	default:
		return nil
	}
	return []host.Finding{f}
}

// offeredToo finds the device_spec that offers guests a function which containers use.
func (v view) offeredToo(a pci.Address, effect string) []host.Finding {
	i := slices.IndexFunc(v.Offered.Value, func(o Offered) bool { return o.Address == a })
	if i < 0 {
		return nil
	}
	o := v.Offered.Value[i]
	f := host.Finding{Status: host.Fail, File: o.File, Line: o.Line, Effect: effect,
		Seen:   fmt.Sprintf("device_spec %s matches %s, which containers use", o.Spec, a),
		Remedy: host.Plain("add the addresses of the functions for guests to the spec, then restart nova-compute")}
	if o.ByAddress {
		f.Remedy = host.Plain("remove the address from the spec, then restart nova-compute")
	}
	return []host.Finding{f}
}

// isForContainers reports whether a function is recorded for containers.
func (v view) isForContainers(a pci.Address) bool {
	return v.Containers.Value.At(a) != nil
}
