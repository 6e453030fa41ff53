package fleet

import (
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
	"gpustack/nova"
)

// Fleet is what the documents show, by node.
type Fleet struct {
	Nodes     []*Node     // by name
	Malformed []Malformed // by file
	Warnings  []string
}

// Malformed is a file of a folder that has no document or a malformed one.
type Malformed struct {
	Node string // whose other files are named like it; the name of the file if there is none
	File string
	Err  error
}

// Node is a compute node with the newest document of each kind.
type Node struct {
	Name     string  // the hostname
	NovaHost string  // the name in Nova; "" if it is unknown
	Scan     *Scan   // nil without a document
	Check    *Check  // nil without a document
	Guests   *Guests // nil without a document

	Malformed []string // files of a folder that are named like its documents, and could not be read
}

// Origin is the document that something was read from.
type Origin struct {
	Name string    // of the document
	File string    // that contains it
	Time time.Time // zero for a document of a version that printed none

	machine string // the id of the machine, "" if the document does not show it
}

// Scan is what is kept of the output of host scan.
type Scan struct {
	Origin
	Complete  bool // every function of interest is listed, and could be identified
	Kernel    string
	Server    string     // vendor and product of the machine, "" if they are unknown
	Firmware  string     // version of the BIOS, "" if it is unknown
	Functions []Function // by address
	gpus      []Function // those that are GPUs
}

// Function is a PCI function of interest: a GPU, a function of a GPU's card or IOMMU group, or an
// NVSwitch.
type Function struct {
	Address pci.Address `json:"address"` // the GPU
	NamedProduct
	Board    Product // ids of the subsystem
	Class    string
	Driver   string        // "" for none
	NUMANode *int          `json:"numa_node"`     // null for none
	Group    []pci.Address `json:"group_members"` // all functions in its IOMMU group
	Console  bool
	Type     pci.DeviceType // "" if it is unknown
	GPU      bool           // an NVIDIA GPU that is not a virtual function
	Role     machine.Role
	State    selection.StateName
}

// isForContainers reports whether a function is recorded for containers.
func (f Function) isForContainers() bool { return f.Role == machine.OfContainer }

// MarshalText returns the name, by which documents refer to a node.
func (n Node) MarshalText() ([]byte, error) { return []byte(n.Name), nil }

// Product is a product by its ids.
type Product struct {
	Vendor pci.ID `json:"vendor_id"`  // the product's vendor
	ID     pci.ID `json:"product_id"` // the product's ID
}

// NamedProduct is a product with its name.
type NamedProduct struct {
	Product
	// the name of the product's alias, otherwise of the product
	Name string `json:"name" null:"zero"`
}

// Title returns the ids with the name, or that they are unknown.
func (n NamedProduct) Title() string {
	if !n.isKnown() {
		return unknownText
	}
	return strings.TrimSpace(n.String() + " " + n.Name)
}

// String returns the ids as VENDOR:PRODUCT.
func (p Product) String() string { return p.Vendor.String() + ":" + p.ID.String() }

// isKnown reports whether both ids could be read.
func (p Product) isKnown() bool { return p.Vendor != 0 && p.ID != 0 }

func (p Product) compare(other Product) int { return strings.Compare(p.String(), other.String()) }

// Check is what is kept of the output of host check.
type Check struct {
	Origin
	Verdict checklist.Verdict
	Version string   // of gpustack
	Kernel  string   // that ran
	Reboot  bool     // the machine has to be rebooted
	Failed  []string // names of the checks that have failed
	Links   []string // what was found about PCIe links with too few lanes
}

// Guests is what is kept of the output of host guests.
type Guests struct {
	Origin
	Complete  bool
	Instances []Instance
	Used      map[pci.Address]bool // functions that a guest or another process has
}

// Instance is a guest on a node, running or not.
type Instance struct {
	UUID string // "" if it is unknown
	Name string // "" if it is unknown
}

// MarshalText returns what String returns.
func (i Instance) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// String returns the instance's UUID, or its name if that is unknown.
func (i Instance) String() string {
	switch {
	case i.UUID != "":
		return i.UUID
	case i.Name != "":
		return i.Name
	}
	return "a guest without a known name"
}

// Use is what a GPU is used for.
type Use string

// The uses of GPUs.
const (
	Free        Use = "free"
	InGuests    Use = "in guests"
	InContainer Use = "in containers"
	WithHost    Use = "with the host"
	NotKnown    Use = "unknown"
)

// GPUs returns the GPUs of the node, by address. The caller must not change them.
func (n *Node) GPUs() []Function {
	return host.Value(n.Scan).gpus
}

// Use returns what a function of the node is used for.
func (n *Node) Use(f Function) Use {
	proven := n.Guests != nil && n.Guests.Complete
	switch {
	case n.Guests != nil && n.Guests.Used[f.Address], f.State == selection.UsedBy:
		return InGuests
	case f.State == selection.OfHost && f.isForContainers():
		return InContainer
	case f.State == selection.OfHost, f.State == selection.Blocked:
		return WithHost
	case f.State == selection.GuestReady && proven:
		return Free
	}
	return NotKnown
}

// unknown returns the number of the node's GPUs whose use is unknown.
func (n *Node) unknown() (count int) {
	for _, g := range n.GPUs() {
		if n.Use(g) == NotKnown {
			count++
		}
	}
	return count
}

// InNova returns the node's name in Nova, which is the hostname where it is unknown.
func (n *Node) InNova() string {
	return nova.Host{Name: n.Name, NovaHost: n.NovaHost}.InNova()
}

// origins returns the documents of the node.
func (n *Node) origins() (all []Origin) {
	if n.Scan != nil {
		all = append(all, n.Scan.Origin)
	}
	if n.Check != nil {
		all = append(all, n.Check.Origin)
	}
	if n.Guests != nil {
		all = append(all, n.Guests.Origin)
	}
	return all
}

// newest returns the time of the newest document of the node.
func (n *Node) newest() time.Time {
	return slices.MaxFunc(n.origins(), func(a, b Origin) int { return a.Time.Compare(b.Time) }).Time
}
