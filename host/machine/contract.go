package machine

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// ContractFile is where the contract lies.
const ContractFile = change.Dir + "/contract.json"

// Contract is what was asked for and what was planned for it: what the machine is
// to be after its reboot.
type Contract struct {
	Schema   int           `json:"schema"`
	Driver   string        `json:"driver"`
	Selected []pci.Address `json:"selected"`                // by the operator, or as the default
	Allowed  []pci.Address `json:"allowed"`                 // refusals that were lifted
	Unsafe   bool          `json:"allow_unsafe_interrupts"` // was asked for
	NVSwitch NVSwitch      `json:"nvswitch,omitempty"`      // "" where no choice was made
	// Functions are all that go to guests: those selected, and all that go with them.
	Functions []Function `json:"functions"`
	Arguments []string   `json:"arguments"` // that the kernel is to be started with
	Files     []Hash     `json:"files"`
}

// Function is one that goes to guests.
type Function struct {
	Address           pci.Address   `json:"address"`
	VendorID          pci.ID        `json:"vendor_id"`
	ProductID         pci.ID        `json:"product_id"`
	SubsystemVendorID *pci.ID       `json:"subsystem_vendor_id"`
	SubsystemID       *pci.ID       `json:"subsystem_id"`
	Path              []pci.Address `json:"path"`                 // the bridges above, from the root port down
	SysfsPath         string        `json:"sysfs_path,omitempty"` // its folder without links, if it is bound by address
	BootVGA           bool          `json:"boot_vga,omitempty"`   // it was the console
	Group             *int          `json:"group"`                // null while the IOMMU is off
	Members           []pci.Address `json:"members"`
	Driver            string        `json:"driver"`
	By                By            `json:"by"`
}

// IDs returns the ids of the product, in the form that drivers accept: "10de:11b4".
func (f Function) IDs() string {
	return f.VendorID.String() + ":" + f.ProductID.String()
}

// IsAt reports whether the device at the recorded address is the recorded function. Among those
// that are bound by address there may be identical devices, which only the board and the slot tell
// apart.
func (f Function) IsAt(devices pci.Devices) bool {
	d := devices.At(f.Address)
	return d != nil && d.IsVendor(f.VendorID) && d.ProductID != nil && *d.ProductID == f.ProductID && (f.By == ByIDs ||
		!Differs(d.SubsystemVendorID, f.SubsystemVendorID) && !Differs(d.SubsystemID, f.SubsystemID) && slices.Equal(devices.Path(d), f.Path))
}

// Differs reports whether two ids are both known and not the same.
func Differs(a, b *pci.ID) bool {
	return a != nil && b != nil && *a != *b
}

// IsHeldBy reports whether a driver is the recorded one.
func (f Function) IsHeldBy(driver string) bool {
	return modprobe.Normal(driver) == modprobe.Normal(f.Driver)
}

// MayBeBorrowed reports whether a driver may have got the function for a guest, in place of the
// recorded one: libvirt binds managed devices from pci-stub to vfio-pci, or to a variant of it
// (libvirt, src/hypervisor/virhostdev.c).
func (f Function) MayBeBorrowed(driver string) bool {
	return !f.IsHeldBy(driver) && pci.LeavesAlone(driver) && modprobe.Normal(driver) != modprobe.Normal(Stub)
}

// At returns the recorded function at an address, or nil. A nil contract has none.
func (c *Contract) At(a pci.Address) *Function {
	if c == nil {
		return nil
	}
	for i := range c.Functions {
		if f := &c.Functions[i]; f.Address == a {
			return f
		}
	}
	return nil
}

// NVSwitch says which side gets the NVSwitches of a board whose GPUs are assigned to guests.
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

// A driver takes every function of a product by ids, or one by its address: the
// way for twins of which one stays, and where the kernel itself holds a driver
// that would be faster.
const (
	ByIDs     By = "ids"
	ByAddress By = "address"
)

// Hash identifies what a file of ours holds.
type Hash struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// Schema is the version of the contract's format.
const Schema = 1

// ReadContract returns what is recorded, or nil.
func ReadContract(root host.Root) (*Contract, error) {
	data, err := root.ReadFile(ContractFile)
	if host.IsAbsent(err) {
		return nil, nil
	}
	var c Contract
	if err == nil {
		err = host.DecodeSchema(data, Schema, &c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ContractFile, host.Cause(err))
	}
	return &c, nil
}

// Drivers that leave a function alone until a guest gets it.
const (
	VFIO = "vfio-pci"
	Stub = "pci-stub"
)
