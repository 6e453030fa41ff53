package rdma

import (
	"fmt"
	"net/netip"

	"gpustack/host"
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

// NoIsolation says what mode shared does not do for containers (measured with Linux 6.1 and 6.12:
// the connection manager respects network namespaces, verbs do not).
const NoIsolation = "with network namespaces in mode shared, nothing isolates containers from each other: " +
	"each that has a verbs device can send with the addresses of the host"

// Adapter is one PCI function with an RDMA device or with the driver of one, or a software device.
type Adapter struct {
	Address  *pci.Address `json:"address"` // nil for a software device
	Function *pci.Device  `json:"-"`       // nil for a software device
	Name     string       `json:"name"`    // of the RDMA device, such as mlx5_0 or ibp12s0; "" if its driver created none
	Driver   string       `json:"driver"`  // of the function; "" for none
	Parent   string       `json:"parent"`  // the network interface below a software device
	// Netdevs are the network interfaces of the function, IPoIB interfaces included, and Representors
	// those of its switch's ports, which carry nothing by RDMA.
	Netdevs      []string `json:"netdevs"`
	Representors []string `json:"representors"`
	Switchdev    bool     `json:"switchdev"` // its switch is in mode switchdev
	// Lag is the RDMA device that serves the function's port too, as its interface is in a bond with
	// that of the device's own function (RoCE LAG); "" for none.
	Lag   string       `json:"lag"`
	lagAt *pci.Address // the function of Lag
	at    string       // the folder of the function or subfunction in sysfs

	// "" where the driver shows none.
	Firmware     string `json:"firmware"`
	BoardID      string `json:"board_id"`
	HCAType      string `json:"hca_type"`
	HWVersion    *int   `json:"hw_ver"`    // revision of the hardware; nil where the driver shows no number
	NodeType     string `json:"node_type"` // as the kernel names it: "CA", "RNIC"
	NodeGUID     *GUID  `json:"node_guid"`
	SysImageGUID *GUID  `json:"sys_image_guid"`
	Verbs        *Node  `json:"verbs"` // uverbsN
	Ports        []Port `json:"ports"`

	// Of the function; nil for a software device.
	VendorID  *pci.ID      `json:"vendor_id"`
	ProductID *pci.ID      `json:"product_id"`
	Product   *string      `json:"product"`
	NUMANode  *int         `json:"numa_node"`
	Group     *int         `json:"iommu_group"`
	PF        *pci.Address `json:"pf"` // of a virtual function
	TotalVFs  *int         `json:"total_vfs"`
	GPU       *pci.Address `json:"gpu"`  // the nearest one; nil without a GPU
	Link      *pci.Link    `json:"link"` // to that GPU

	VFs      []VF     `json:"vfs"` // of a physical function, by index
	Warnings []string `json:"warnings"`
}

// Port is one port of an RDMA device.
type Port struct {
	Number    int      `json:"port"`
	State     string   `json:"state"` // as the kernel names it: "ACTIVE"
	PhysState string   `json:"phys_state"`
	LinkLayer string   `json:"link_layer"` // LinkInfiniBand, LinkEthernet, or "" where the kernel shows none
	GUID      *GUID    `json:"port_guid"`  // the interface id of GID 0; nil on Ethernet
	LID       *int     `json:"lid"`
	SMLID     *int     `json:"sm_lid"`
	LMC       *int     `json:"port_lmc"` // bits of the LID that a subnet manager may set by path
	CapMask   *uint32  `json:"cap_mask"`
	MaxMTU    *int     `json:"max_mtu"`    // of RoCE, where the driver derives both from its interface; else nil
	ActiveMTU *int     `json:"active_mtu"` // the same
	Rate      string   `json:"rate"`       // "100 Gb/sec (4X EDR)"
	PKeys     []uint16 `json:"pkeys"`
	IPoIB     []IPoIB  `json:"ipoib"` // interfaces of this port
	Netdevs   []string `json:"-"`     // its network interfaces, those of IPoIB too
	UMAD      *Node    `json:"umad"`  // nil without module ib_umad
	ISSM      *Node    `json:"issm"`
	GIDs      []GID    `json:"gids"` // only those that are not zero; nil if they were not read
	GIDsErr   error    `json:"-"`    // why not all of them were read, an ErrGIDs

	netdev    string // whose MTU ActiveMTU is derived from
	netdevMTU int
}

// WastedMTU returns the interface of a RoCE port whose MTU has room for the data of the next larger
// MTU of RoCE but not for its headers too, with both MTUs and the MTU that would do. ok is false if
// there is none.
func (p Port) WastedMTU() (netdev string, has, gives, needs int, ok bool) {
	if p.ActiveMTU == nil || *p.ActiveMTU >= MaxMTU || p.netdevMTU < 2*(*p.ActiveMTU) {
		return "", 0, 0, 0, false
	}
	const round = 100
	needs = 2**p.ActiveMTU + roceHeaders
	return p.netdev, p.netdevMTU, 2 * *p.ActiveMTU, (needs + round - 1) / round * round, true
}

// IsInfiniBand reports whether the port is an InfiniBand port. Ports without a link layer are:
// kernels from before RoCE show none, and libibumad treats such ports alike. That of EFA is
// Unspecified.
func (p Port) IsInfiniBand() bool { return p.LinkLayer == LinkInfiniBand || p.LinkLayer == "" }

// Values of Port.LinkLayer.
const (
	LinkInfiniBand = "InfiniBand"
	LinkEthernet   = "Ethernet"

	LinkUnspecified = "Unspecified" // EFA's
)

// GID is an entry of a port's GID table.
type GID struct {
	Index  int        `json:"index"`
	GID    netip.Addr `json:"gid"`
	Type   string     `json:"type"`   // "IB/RoCE v1", "RoCE v2"
	Netdev string     `json:"netdev"` // "" on InfiniBand
}

// IPoIB is an IP-over-InfiniBand interface.
type IPoIB struct {
	Name   string    `json:"name"`
	Mode   string    `json:"mode"` // "datagram" or "connected"
	PKey   *uint16   `json:"pkey"`
	MTU    *int      `json:"mtu"`
	Parent string    `json:"parent"` // of a child interface such as ib0.8001
	Up     host.Bool `json:"up"`     // set up, as ip link set does; Unknown if it is not shown
	Bond   string    `json:"bond"`   // of which it is a slave: the bond has the IP address
	// carries is whether the addresses of the bond are those of this interface; not shown: Unknown.
	carries host.Bool
	bondUp  host.Bool // as Up, of Bond
}

// Node is a character device of the RDMA stack.
type Node struct {
	Name  string `json:"name"` // below /dev/infiniband: "uverbs0"
	Major int    `json:"major"`
	Minor int    `json:"minor"`
	ABI   *int   `json:"abi"` // the driver's, of a uverbs node
	// File is what stands at /dev/infiniband/Name; nil if nothing does.
	File *NodeFile `json:"in_dev"`
}

// NodeFile is a device node as it stands in /dev.
type NodeFile struct {
	Major int  `json:"major"`
	Minor int  `json:"minor"`
	Mode  Mode `json:"permissions"`
}

// Mode is the permission bits of a file.
type Mode uint32

// MarshalText returns the bits as four octal digits.
func (m Mode) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%04o", uint32(m)), nil
}

// VF is a virtual function of an adapter.
type VF struct {
	Index    int         `json:"index"`
	Address  pci.Address `json:"address"`
	NodeGUID *GUID       `json:"node_guid"` // as the PF's driver or the VF's own RDMA device shows them
	PortGUID *GUID       `json:"port_guid"`
	Policy   string      `json:"policy"` // "Follow", "Up", "Down" where the driver shows it (MLNX_OFED), else ""
	Driver   string      `json:"driver"` // "" for none
	Name     string      `json:"name"`   // of its RDMA device on the host, if any
	Holder   string      `json:"holder"` // the guest or process that uses it now; "" for none or unknown
}
