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
	NetnsShared    NetnsMode = "shared"    // every one can use every RDMA device
	NetnsExclusive NetnsMode = "exclusive" // each RDMA device belongs to one
)

// NoIsolation says what mode shared does not do for containers (measured with Linux 6.1 and 6.12:
// the connection manager respects network namespaces, verbs do not).
const NoIsolation = "with network namespaces in mode shared, nothing isolates containers from each other: " +
	"each that has a verbs device can send with the addresses of the host"

// OwnNamespace says what mode exclusive does to containers (Linux, rdma_dev_access_netns).
const OwnNamespace = "with network namespaces in mode exclusive, a container with a namespace of its own may not open the nodes of an adapter of the host: " +
	"start it with --network host, or have a CNI plugin (rdma) move the device into its namespace"

// Adapter is one PCI function with an RDMA device or with the driver of one, or a software device.
type Adapter struct {
	Address  *pci.Address `json:"address"` // nil for a software device
	Function *pci.Device  `json:"-"`       // nil for a software device
	// the RDMA device, such as "mlx5_0", which may change; "" if the driver created none
	Name string `json:"name"`
	// the function's driver, vfio-pci if it is assigned to guests as a whole; "" for none
	Driver string `json:"driver"`
	Parent string `json:"parent"` // the network interface below a software device
	// network interfaces of the function, IPoIB included, without representors
	Netdevs []string `json:"netdevs"`
	// Representors are the interfaces of the ports of its switch: VFs, subfunctions, other hosts.
	// They carry nothing by RDMA.
	Representors []string `json:"representors"`
	// its switch is in mode switchdev: RoCE is that of VFs and subfunctions
	Switchdev bool `json:"switchdev"`
	// Lag is the RDMA device that serves the port of a function without one of its own, as its
	// interface is in a bond with that of the device's own function (RoCE LAG); "" for none.
	Lag string `json:"lag"`
	// Elsewhere is the RDMA device of the function in another network namespace, as that of a
	// container; nothing but its device nodes is shown here; "" for none.
	Elsewhere string `json:"in_other_namespace"`
	// Parts are RDMA devices of parts of the adapter, such as smi1 of a ConnectX-8: they manage its
	// planes and have no verbs.
	Parts []string     `json:"parts"`
	lagAt *pci.Address // the function of Lag
	at    string       // the folder of the function or subfunction in sysfs

	// the version of the firmware; "" if the driver does not show it
	Firmware string `json:"firmware"`
	BoardID  string `json:"board_id"` // the board's model (PSID); "" if the driver does not show it
	HCAType  string `json:"hca_type"` // such as "MT4123"; "" if the driver does not show it
	// the hardware's revision, or the PCI vendor (5348) with bnxt_re of many kernels; nil if the
	// driver shows no number
	HWVersion    *int   `json:"hw_ver"`
	NodeType     string `json:"node_type"`      // as the kernel names it: "CA", "RNIC"
	NodeGUID     *GUID  `json:"node_guid"`      // zeros: a virtual function without identity
	SysImageGUID *GUID  `json:"sys_image_guid"` // the same for all functions of a board
	Verbs        *Node  `json:"verbs"`          // its device node uverbsN; nil without one
	Ports        []Port `json:"ports"`          // the ports, by number

	VendorID  *pci.ID      `json:"vendor_id"`   // the function's vendor; nil for a software device
	ProductID *pci.ID      `json:"product_id"`  // the function's product; nil for a software device
	Product   *string      `json:"product"`     // the product's name
	NUMANode  *int         `json:"numa_node"`   // nil for none
	Group     *int         `json:"iommu_group"` // nil for none
	PF        *pci.Address `json:"pf"`          // the physical function of a virtual one
	TotalVFs  *int         `json:"total_vfs"`   // how many virtual functions the firmware permits
	GPU       *pci.Address `json:"gpu"`         // the nearest GPU; nil without one
	Link      *pci.Link    `json:"link"`        // the link to this GPU

	VFs      []VF     `json:"vfs"`      // its virtual functions, by index
	Warnings []string `json:"warnings"` // what could not be read of the adapter
}

// Port is one port of an RDMA device.
type Port struct {
	Number int `json:"port"` // from 1
	// as the kernel names it: "DOWN", "INIT", "ARMED", "ACTIVE"
	State string `json:"state"`
	// as the kernel names it: "LinkUp", "Polling", "Disabled" and others
	PhysState string `json:"phys_state"`
	// "InfiniBand", "Ethernet", or "" if the kernel shows none
	LinkLayer string `json:"link_layer"`
	GUID      *GUID  `json:"port_guid"` // the interface id of GID 0; nil on Ethernet
	LID       *int   `json:"lid"`       // the port's local identifier; 0 on Ethernet
	SMLID     *int   `json:"sm_lid"`    // that of its subnet manager; 0 on Ethernet
	// number of low bits of lid that the subnet manager uses for several paths
	LMC *int `json:"port_lmc"`
	// the port's capabilities; bit 1: a subnet manager runs here
	CapMask *uint32 `json:"cap_mask"`
	// MaxMTU is that of a RoCE port of mlx4, mlx5, bnxt_re or irdma, which these drivers derive
	// from the MTU of the interface; nil for others: no file shows it.
	MaxMTU    *int     `json:"max_mtu"`
	ActiveMTU *int     `json:"active_mtu"` // likewise
	Rate      string   `json:"rate"`       // speed and width: "100 Gb/sec (4X EDR)"
	PKeys     []uint16 `json:"pkeys"`      // the partition keys that are not empty
	IPoIB     []IPoIB  `json:"ipoib"`      // the IP-over-InfiniBand interfaces of this port
	Netdevs   []string `json:"-"`          // its network interfaces, those of IPoIB too
	UMAD      *Node    `json:"umad"`       // its device node umadN; nil without module ib_umad
	ISSM      *Node    `json:"issm"`       // its device node issmN; nil without module ib_umad
	// entries of the GID table that are not zero; none, with a warning, if it cannot be read
	GIDs    []GID `json:"gids"`
	GIDsErr error `json:"-"` // why not all of them were read, an ErrGIDs

	Up      host.Bool `json:"-"` // its Ethernet interface is set up
	Carrier host.Bool `json:"-"` // and has a link; Unknown while it is down

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
	Index  int        `json:"index"`  // the number in the table
	GID    netip.Addr `json:"gid"`    // written like an IPv6 address
	Type   string     `json:"type"`   // "IB/RoCE v1" or "RoCE v2"
	Netdev string     `json:"netdev"` // the network interface; "" on InfiniBand
}

// IPoIB is an IP-over-InfiniBand interface.
type IPoIB struct {
	Name string  `json:"name"` // the interface's name
	Mode string  `json:"mode"` // "datagram" or "connected"
	PKey *uint16 `json:"pkey"` // its partition key
	MTU  *int    `json:"mtu"`  // the interface's MTU
	// the interface that a child interface such as ib0.8001 belongs to; "" for others
	Parent string    `json:"parent"`
	Up     host.Bool `json:"up"` // set up, as ip link set does; null if it is not shown
	// it has joined its broadcast group, without which it has no traffic by IP; null if it is not
	// shown, as while it is down
	Carrier host.Bool `json:"carrier"`
	// the bond of which it is a slave, which has the IP address; "" for none
	Bond string `json:"bond"`
	// carries is whether the addresses of the bond are those of this interface; not shown: Unknown.
	carries host.Bool
	bondUp  host.Bool // as Up, of Bond
}

// Node is a character device of the RDMA stack.
type Node struct {
	Name  string `json:"name"`  // the name below /dev/infiniband: "uverbs0"
	Major int    `json:"major"` // as sysfs shows it
	Minor int    `json:"minor"` // as sysfs shows it
	ABI   *int   `json:"abi"`   // the driver's ABI; nil for other nodes than uverbs
	// the file of that name in /dev/infiniband; nil if there is none
	File *NodeFile `json:"in_dev"`
}

// NodeFile is a device node as it stands in /dev.
type NodeFile struct {
	Major int  `json:"major"`       // that of the file
	Minor int  `json:"minor"`       // that of the file
	Mode  Mode `json:"permissions"` // "0666"
}

// Mode is the permission bits of a file.
type Mode uint32

// MarshalText returns the bits as four octal digits.
func (m Mode) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%04o", uint32(m)), nil
}

// VF is a virtual function of an adapter.
type VF struct {
	Index   int         `json:"index"`   // from 0
	Address pci.Address `json:"address"` // the virtual function
	// as the PF's driver or the VF's own RDMA device shows it; nil if neither does
	NodeGUID *GUID `json:"node_guid"`
	PortGUID *GUID `json:"port_guid"` // likewise
	// "Follow", "Up" or "Down"; "" if the driver does not show it (MLNX_OFED does)
	Policy string `json:"policy"`
	Driver string `json:"driver"` // the bound driver; "" for none
	Name   string `json:"name"`   // its RDMA device on the host; "" for none
	// the guest or process that uses it now; "" for none or unknown
	Holder string `json:"holder"`
}
