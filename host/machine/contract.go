package machine

import (
	"slices"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// ContractFile is the path of the contract.
const ContractFile = change.Dir + "/contract.json"

// Contract is the record that host prepare writes: what the operator selected, what was planned
// for it, and so the state that the machine must have after its reboot.
type Contract struct {
	Driver   string        `json:"driver"`
	Selected []pci.Address `json:"selected"`                // by the operator or by default
	Allowed  []pci.Address `json:"allowed"`                 // functions that leave the host because --allow names them
	Unsafe   bool          `json:"allow_unsafe_interrupts"` // --allow-unsafe-interrupts was given
	NVSwitch NVSwitch      `json:"nvswitch"`                // "" where no choice was made
	TakeOver bool          `json:"take_over"`               // --take-over was given
	// Functions are all functions for guests, ordered by address: the selected ones, and the other
	// functions of their cards and IOMMU groups.
	Functions []Function `json:"functions"`
	Arguments []string   `json:"arguments"` // of the kernel
	Files     []Hash     `json:"files"`
}

// Function is the record of a function for guests.
type Function struct {
	Address           pci.Address `json:"address"`             // the function
	VendorID          pci.ID      `json:"vendor_id"`           // the function's vendor
	ProductID         pci.ID      `json:"product_id"`          // the function's product
	SubsystemVendorID *pci.ID     `json:"subsystem_vendor_id"` // the board's vendor
	SubsystemID       *pci.ID     `json:"subsystem_id"`        // the board's model
	// the bridges above, the outermost first
	Path []pci.Address `json:"bridges"`
	// its directory in sysfs without links; null if by is "ids"
	SysfsPath string `json:"sysfs_path" null:"zero"`
	// whether it is the firmware's console
	BootVGA bool          `json:"boot_vga"`
	Group   *int          `json:"iommu_group"`   // null while the IOMMU is off
	Members []pci.Address `json:"group_members"` // all functions in that group
	// the driver that binds it from the next boot on
	Driver string `json:"driver"`
	// how the driver finds the function
	By By `json:"by"`
}

// IDs returns the ids of the product, in the form that drivers accept: "10de:11b4".
func (f Function) IDs() string {
	return f.VendorID.String() + ":" + f.ProductID.String()
}

// Identity returns what identifies the recorded function.
func (f Function) Identity() pci.Identity {
	return pci.Identity{Address: f.Address, VendorID: &f.VendorID, ProductID: &f.ProductID,
		SubsystemVendorID: f.SubsystemVendorID, SubsystemID: f.SubsystemID, Path: f.Path}
}

// IsAt reports whether the device at the recorded address is the recorded function. A driver that
// binds by ids binds whatever device of the product is there, in another slot too.
func (f Function) IsAt(devices pci.Devices) bool {
	switch f.Identity().Compare(devices.Identity(f.Address)) {
	case pci.NoDifference:
		return true
	case pci.OtherBoard, pci.OtherSlot:
		return f.By == ByIDs
	case pci.Missing, pci.IDsUnread, pci.OtherProduct:
	}
	return false
}

// There returns the record without the functions at whose addresses other ones are now, which were not
// selected for guests. Functions that are gone stay. A nil record stays nil.
func (c *Contract) There(devices pci.Devices) *Contract {
	if c == nil {
		return nil
	}
	there := *c
	there.Functions = slices.DeleteFunc(slices.Clone(c.Functions), func(f Function) bool { return devices.At(f.Address) != nil && !f.IsAt(devices) })
	there.Selected = slices.DeleteFunc(slices.Clone(c.Selected), func(a pci.Address) bool { return there.At(a) == nil })
	return &there
}

// IsHeldBy reports whether a driver is the recorded one.
func (f Function) IsHeldBy(driver string) bool {
	return modprobe.Normal(driver) == modprobe.Normal(f.Driver)
}

// MayBeBorrowed reports whether a function may be bound to a driver, other than the recorded one,
// for a guest: libvirt binds managed devices from pci-stub to vfio-pci or one of its variants
// (libvirt, src/hypervisor/virhostdev.c).
func (f Function) MayBeBorrowed(driver string) bool {
	return !f.IsHeldBy(driver) && pci.LeavesAlone(driver) && modprobe.Normal(driver) != modprobe.Normal(Stub)
}

// At returns the record of the function at an address, or nil. A nil contract has no functions.
func (c *Contract) At(a pci.Address) *Function {
	if c == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(c.Functions, a, func(f Function, a pci.Address) int { return f.Address.Compare(a) })
	if !ok {
		return nil
	}
	return &c.Functions[i]
}

// All returns the recorded functions. A nil contract has none.
func (c *Contract) All() []Function {
	return host.Value(c).Functions
}

// Addresses returns the addresses of the recorded functions, nil for a nil contract alone.
func (c *Contract) Addresses() []pci.Address {
	if c == nil {
		return nil
	}
	return append([]pci.Address{}, host.Map(c.Functions, func(f Function) pci.Address { return f.Address })...)
}

// IDs returns the products that a driver binds by their ids. A nil contract has none.
func (c *Contract) IDs() []string {
	byIDs := host.Filter(c.All(), func(f Function) bool { return f.By == ByIDs })
	return host.Union(nil, host.Map(byIDs, Function.IDs)...)
}

// NVSwitch is the side to which the NVSwitches of a board are assigned whose GPUs are for guests.
type NVSwitch string

// The NVSwitches remain with the host, which runs NVIDIA's Fabric Manager, or are assigned to one
// guest together with all GPUs of the board (NVIDIA Fabric Manager User Guide, "Virtualization
// Models": shared NVSwitch and full passthrough).
const (
	SwitchesToHost  NVSwitch = "host"
	SwitchesToGuest NVSwitch = "guest"
)

// By is how a function is bound at boot.
type By string

// A driver binds all functions of a product through ids=, or one function by its address. By
// address are bound: functions of which an identical device remains with the host, and functions
// for which the kernel has a built-in driver, which would bind first. Both happen in the initramfs.
// What is no GPU, companion or NVSwitch is bound by gpustack-boot.service, by its address, after the
// gate was asked again.
const (
	ByIDs     By = "ids"
	ByAddress By = "address"
	ByService By = "service"
)

// Hash is the hash of the content of a file that gpustack wrote.
type Hash struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// ReadContract returns the contract, or nil if nothing is recorded for guests.
func ReadContract(root host.Root) (*Contract, error) {
	guests, _, err := ReadRecord(root)
	return guests, err
}

// Drivers that bind a function for passthrough and do not use it.
const (
	VFIO = "vfio-pci"
	Stub = "pci-stub"
)
