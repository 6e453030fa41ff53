package views

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/operate/node"
)

// PrintRDMA prints a line for each port of each adapter, then the virtual functions.
func PrintRDMA(u *term.UI, r node.RDMAScan, gids bool) {
	if len(r.Adapters) == 0 {
		u.Printf("no RDMA adapter: no function has an RDMA device or the driver of one\n")
		return
	}
	var rows, vfs, ids, entries [][]string
	for _, a := range r.Adapters {
		for i, p := range ports(a) {
			row := []string{"", "", "", "", "", ""}
			if i == 0 {
				row = []string{a.Title(), adapterName(a), deviceName(a), orDash(a.Driver), orDash(a.Firmware), Text(a.NUMANode)}
			}
			rows = append(rows, append(row, portCells(a, p)...))
			if p.Number > 0 {
				ids = append(ids, portIDs(a, p))
			}
			for _, g := range p.GIDs {
				entries = append(entries, []string{a.Title(), orDash(a.Name), strconv.Itoa(p.Number), strconv.Itoa(g.Index), g.GID.String(), orDash(g.Type),
					orDash(g.Netdev)})
			}
		}
		for _, v := range a.VFs {
			vfs = append(vfs, []string{v.Address.String(), strconv.Itoa(v.Index), a.Title(), orDash(v.Name), guid(v.NodeGUID), guid(v.PortGUID),
				orDash(v.Policy), orDash(v.Driver), orDash(v.Holder)})
		}
	}
	u.Table([]string{"ADAPTER", "NAME", "DEVICE", "DRIVER", "FIRMWARE", "NUMA", "PORT", "STATE", "LINK", "RATE", "NETDEV", "VFS", "NEAREST GPU"}, rows)
	tableBelow(u, []string{"VF", "INDEX", "ADAPTER", "DEVICE", "NODE GUID", "PORT GUID", "POLICY", "DRIVER", "HOLDER"}, vfs)
	if gids {
		tableBelow(u, []string{"ADAPTER", "DEVICE", "PORT", "NODE GUID", "PORT GUID", "LID", "SM LID", "NODES", "IPOIB"}, ids)
		u.Printf("\n")
		u.Table([]string{"ADAPTER", "DEVICE", "PORT", "INDEX", "GID", "TYPE", "NETDEV"}, entries)
	}
	u.Printf("\n%s\n", stackLine(r))
}

// ports returns the ports of an adapter, or one without a number if it has none.
func ports(a rdma.Adapter) []rdma.Port {
	if len(a.Ports) == 0 {
		return []rdma.Port{{}}
	}
	return a.Ports
}

// portCells returns the cells of a port: its number, state, link layer, rate and interfaces, and
// the adapter's virtual functions and nearest GPU.
func portCells(a rdma.Adapter, p rdma.Port) []string {
	n := either(p.Number > 0, strconv.Itoa(p.Number), "-")
	netdevs := a.Netdevs
	if a.Parent != "" {
		netdevs = []string{a.Parent}
	}
	vfs := either(a.TotalVFs != nil, fmt.Sprintf("%d of %d", len(a.VFs), host.Value(a.TotalVFs)), "-")
	nearest := either(a.GPU != nil, fmt.Sprintf("%s %s", host.Value(a.Link), host.Value(a.GPU)), "-")
	return []string{n, portState(p), orDash(p.LinkLayer), orDash(shortRate(p.Rate)), orDash(strings.Join(netdevs, " ")), vfs, nearest}
}

// portState returns the state of a port, with the physical state where the port is not active.
func portState(p rdma.Port) string {
	switch {
	case p.State == "":
		return "-"
	case p.State == "ACTIVE" || p.PhysState == "":
		return p.State
	}
	return fmt.Sprintf("%s (%s)", p.State, p.PhysState)
}

// shortRate returns a rate without the spelled-out unit: "100 Gb/s 4X EDR".
func shortRate(rate string) string {
	return strings.NewReplacer("/sec", "/s", "(", "", ")", "").Replace(rate)
}

func guid(g *rdma.GUID) string {
	switch {
	case g == nil:
		return "-"
	case g.IsZero():
		return "none"
	}
	return g.String()
}

// deviceName returns the RDMA device of an adapter, in brackets that of another function which
// serves its port, or that of another network namespace.
func deviceName(a rdma.Adapter) string {
	switch {
	case a.Elsewhere != "":
		return "(" + a.Elsewhere + " in another namespace)"
	case a.Name == "" && a.Lag != "":
		return "(" + a.Lag + ")"
	}
	return orDash(a.Name)
}

func adapterName(a rdma.Adapter) string {
	switch {
	case a.Function != nil:
		return Name(a.Function)
	case a.Parent != "":
		return "software, on " + a.Parent
	}
	return "-"
}

// stackLine returns how RDMA devices belong to network namespaces, and which nodes all share.
func stackLine(r node.RDMAScan) string {
	line := "network namespaces: "
	switch {
	case r.Netns == nil:
		line += "unknown"
	case *r.Netns == rdma.NetnsShared:
		line += "shared (every namespace can use every device)"
	default:
		line += string(*r.Netns)
	}
	if r.CM == nil {
		return line + "; no rdma_cm: module rdma_ucm is not loaded"
	}
	return line + "; rdma_cm is there"
}

// portIDs returns the cells of a port with its identifiers, which it has on InfiniBand only, its
// device nodes, and its IPoIB interfaces with what keeps them from carrying data.
func portIDs(a rdma.Adapter, p rdma.Port) []string {
	nodes := term.Join(" ", host.Value(a.Verbs).Name, host.Value(p.UMAD).Name, host.Value(p.ISSM).Name)
	interfaces := host.Map(p.IPoIB, func(i rdma.IPoIB) string {
		state := either(i.Up == host.No, "down", either(i.Carrier == host.No, "no carrier", ""))
		return term.Join(", ", i.Name+" "+orDash(i.Mode), "MTU "+Text(i.MTU), state, after("in ", i.Bond))
	})
	if !p.IsInfiniBand() {
		p.GUID, p.LID, p.SMLID = nil, nil, nil
	}
	return []string{a.Title(), orDash(a.Name), strconv.Itoa(p.Number), guid(a.NodeGUID), guid(p.GUID), Text(p.LID), Text(p.SMLID),
		orDash(nodes), orDash(strings.Join(interfaces, "; "))}
}

// PrintTopology prints the links between all GPUs and adapters as a matrix, with the names and the
// legend of nvidia-smi topo -m. Virtual functions have the links of their physical one and are left
// out.
func PrintTopology(u *term.UI, r node.RDMAScan, devices pci.Devices) {
	type place struct {
		label string
		d     *pci.Device
		name  string // of the RDMA device
	}
	var places []place
	for i, gpu := range r.GPUs {
		places = append(places, place{label: fmt.Sprintf("GPU%d", i), d: gpu})
	}
	n := 0
	for _, a := range r.Adapters {
		if a.Function != nil && !a.IsVF() {
			places = append(places, place{fmt.Sprintf("NIC%d", n), a.Function, a.Name})
			n++
		}
	}
	if len(places) == 0 {
		u.Printf("no GPU and no RDMA adapter\n")
		return
	}
	labels := host.Map(places, func(p place) string { return p.label })
	rows := host.Map(places, func(p place) []string {
		links := host.Map(places, func(other place) string { return either(p.d == other.d, "X", string(devices.Link(p.d, other.d))) })
		return slices.Concat([]string{p.label}, links, []string{Text(p.d.NUMANode), p.d.Address.String(), p.name})
	})
	u.Matrix(slices.Concat([]string{""}, labels, []string{"NUMA", "FUNCTION", "DEVICE"}), rows)
	u.Printf(`
  X     itself
  PIX   at most one PCIe switch
  PXB   several PCIe switches, without the PCIe host bridge
  PHB   a PCIe host bridge, typically the CPU
  NODE  several PCIe host bridges of one NUMA node
  SYS   the interconnect between NUMA nodes
`)
}
