package containerprepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Only returns what is recorded of some functions, or of all if none is named. The umad nodes of
// adapters, which are devices of their own, are left out unless they are asked for.
func Only(record machine.Containers, named []pci.Address, umad bool) machine.Containers {
	record.Functions = slices.DeleteFunc(slices.Clone(record.Functions), func(f machine.ContainerFunction) bool {
		return len(named) > 0 && !slices.Contains(named, f.Address)
	})
	record.Options.UMAD = umad
	return record
}

// Network is the configuration of a network that a CNI plugin attaches containers to.
type Network struct {
	Name string `json:"name"` // the network's name
	// a network configuration list (CNI specification, section 1), whose subnet is to be replaced
	Config json.RawMessage `json:"config"`
}

// cniList is a network configuration list.
type cniList struct {
	Version string      `json:"cniVersion"`
	Name    string      `json:"name"`
	Plugins []cniPlugin `json:"plugins"`
}

// cniPlugin has the keys of the plugins sriov, ib-sriov, rdma, macvlan and ipvlan that are used
// here, by their documentation.
type cniPlugin struct {
	Type     string         `json:"type"`
	DeviceID string         `json:"deviceID,omitempty"`      // sriov, ib-sriov, rdma: the VF
	Isolate  bool           `json:"rdmaIsolation,omitempty"` // ib-sriov: move the RDMA device too
	Master   string         `json:"master,omitempty"`        // macvlan, ipvlan: the network interface
	Mode     string         `json:"mode,omitempty"`          // macvlan, ipvlan
	IPAM     map[string]any `json:"ipam,omitempty"`
}

// subnetToReplace is the subnet in what [Networks] returns: one for documentation (RFC 5737).
const subnetToReplace = "192.0.2.0/24"

// Networks returns CNI networks for the adapters of a record: for a VF one that moves it and its
// RDMA device into the container, for another Ethernet adapter two that share it. notes are what an
// operator has to know of them, and why an adapter has none.
func Networks(record machine.Containers, stack rdma.Stack) (networks []Network, notes []string, err error) {
	ipam := func() map[string]any { return map[string]any{"type": "host-local", "subnet": subnetToReplace} }
	add := func(name string, plugins ...cniPlugin) {
		text, failed := json.Marshal(cniList{"0.3.1", name, plugins})
		err = errors.Join(err, failed)
		networks = append(networks, Network{name, text})
	}
	moved, shared := false, false
	for _, f := range record.Functions {
		if !f.HCA {
			continue
		}
		at := slices.IndexFunc(stack.Adapters, func(a rdma.Adapter) bool { return a.Address != nil && *a.Address == f.Address })
		if at < 0 || stack.Adapters[at].Name == "" || len(stack.Adapters[at].Ports) == 0 {
			notes = append(notes, fmt.Sprintf("%s: has no port, so its kind of network is not known", f.Address))
			continue
		}
		a := stack.Adapters[at]
		name := "gpustack-" + strings.ReplaceAll(f.Address.String(), ":", "-")
		infiniband := a.Ports[0].IsInfiniBand()
		switch {
		case a.PF != nil:
			moved = true
			plugin := cniPlugin{Type: "sriov", DeviceID: f.Address.String(), IPAM: ipam()}
			if infiniband {
				// ib-sriov moves the RDMA device itself, before the network interface: the move replaces the
				// interface of IPoIB, so plugin rdma would come too late (ib-sriov-cni, pull request 17).
				plugin.Type, plugin.Isolate = "ib-sriov", true
				add(name, plugin)
				continue
			}
			// Multus adds the VF to each plugin of a list; without Multus, rdma would look for it by the
			// address of an interface that is no longer in this namespace (rdma-cni, cmd/rdma/main.go).
			add(name, plugin, cniPlugin{Type: "rdma", DeviceID: plugin.DeviceID})
		case infiniband:
			notes = append(notes, fmt.Sprintf("%s: no plugin shares an InfiniBand adapter; prepare VFs of it, or use the machine's network (--network host)", f.Address))
		case len(a.Netdevs) == 0:
			notes = append(notes, fmt.Sprintf("%s: has no network interface in the namespace that gpustack runs in", f.Address))
		default:
			shared = true
			add(name+"-macvlan", cniPlugin{Type: "macvlan", Master: a.Netdevs[0], Mode: "bridge", IPAM: ipam()})
			add(name+"-ipvlan", cniPlugin{Type: "ipvlan", Master: a.Netdevs[0], Mode: "l2", IPAM: ipam()})
		}
	}
	if moved && (stack.Netns == nil || *stack.Netns != rdma.NetnsExclusive) {
		notes = append(notes, fmt.Sprintf("CNI plugins move RDMA devices only in exclusive mode: '%s'", host.NewCommand("rdma prepare").Flag("netns", "exclusive")))
	}
	if shared {
		notes = append(notes, "a shared adapter isolates nothing: a container that has its node uses every address of the adapter, the machine's too")
	}
	if len(networks) > 0 {
		notes = append(notes, "replace the subnet "+subnetToReplace+", which is for documentation")
	}
	return networks, notes, err
}
