package rdma

import (
	"net/netip"

	"gpustack/host/pci"
)

// Stack is the RDMA stack of a machine. A pointer is nil if the kernel does not show the value or
// shows it malformed; Warnings of its adapter then say which.
type Stack struct {
	Adapters []Adapter  // ordered by PCI address; software devices (rxe) follow, by name
	Netns    *NetnsMode // nil without module ib_core
	VerbsABI *int       // /sys/class/infiniband_verbs/abi_version
	CM       *Node      // rdma_cm, nil if its module is not loaded
	Warnings []string
}

// NetnsMode is how RDMA devices belong to network namespaces (rdma-system(8)).
type NetnsMode string

// The two modes: all namespaces use every device, or each device belongs to one namespace.
const (
	NetnsShared    NetnsMode = "shared"
	NetnsExclusive NetnsMode = "exclusive"
)

// Adapter is one PCI function with an RDMA device or with the driver of one, or a software device.
type Adapter struct {
	Address  *pci.Address // nil for a software device
	Function *pci.Device  // nil for a software device
	Name     string       // of the RDMA device, such as mlx5_0 or ibp12s0; "" if its driver created none
	Driver   string       // of the function; "" for none
	Parent   string       // the network interface below a software device
	Netdevs  []string     // network interfaces of the function, IPoIB interfaces included

	Firmware, BoardID, HCAType string // "" where the driver shows none
	NodeType                   string // as the kernel names it: "CA", "RNIC"
	NodeGUID, SysImageGUID     *GUID
	Ports                      []Port
	Verbs                      *Node // uverbsN

	VFs      []VF // of a physical function, by index
	Warnings []string
}

// Port is one port of an RDMA device.
type Port struct {
	Number           int
	State, PhysState string // as the kernel names them: "ACTIVE", "LinkUp"
	LinkLayer        string // LinkInfiniBand, LinkEthernet, or "" where the kernel shows none
	GUID             *GUID  // the interface id of GID 0, on InfiniBand
	LID, SMLID       *int
	CapMask          *uint32
	Rate             string // "100 Gb/sec (4X EDR)"
	PKeys            []uint16
	GIDs             []GID   // only those that are not zero; read on request
	IPoIB            []IPoIB // interfaces of this port
	UMAD, ISSM       *Node   // nil without module ib_umad
}

// Values of Port.LinkLayer.
const (
	LinkInfiniBand = "InfiniBand"
	LinkEthernet   = "Ethernet"
)

// GID is an entry of a port's GID table.
type GID struct {
	Index  int
	GID    netip.Addr
	Type   string // "IB/RoCE v1", "RoCE v2"
	Netdev string // "" on InfiniBand
}

// IPoIB is an IP-over-InfiniBand interface.
type IPoIB struct {
	Name   string
	Mode   string // "datagram" or "connected"
	PKey   *uint16
	MTU    *int
	Parent string // of a child interface such as ib0.8001
}

// Node is a character device of the RDMA stack.
type Node struct {
	Name         string // below /dev/infiniband: "uverbs0"
	Major, Minor int    // as sysfs shows them
	ABI          *int   // the driver's, of a uverbs node
	// File is what stands at /dev/infiniband/Name; nil if nothing does.
	File *NodeFile
}

// NodeFile is a device node as it stands in /dev.
type NodeFile struct {
	Major, Minor int
	Mode         uint32 // permission bits
}

// VF is a virtual function of an adapter.
type VF struct {
	Index              int
	Address            pci.Address
	NodeGUID, PortGUID *GUID  // as the PF's driver or the VF's own RDMA device shows them
	Policy             string // "Follow", "Up", "Down" where the driver shows it (MLNX_OFED), else ""
	Driver             string // "" for none
	Name               string // of its RDMA device on the host, if any
	Holder             string // what uses it now: a guest, a process; "" for none or unknown
}
