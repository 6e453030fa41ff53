package pci

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
)

// Device is a PCI function as sysfs shows it. A field is nil, or Unknown, if the kernel does not
// show the value or shows it malformed. Its JSON form is documented in docs/json.md and can be read
// back.
type Device struct {
	Address   Address `json:"address"`    // the function
	Class     *Class  `json:"class"`      // base class and subclass: "0300"
	ClassName *string `json:"class_name"` // the name of the class
	VendorID  *ID     `json:"vendor_id"`  // the function's vendor
	ProductID *ID     `json:"product_id"` // the function's product
	Vendor    *string `json:"vendor"`     // the vendor's name from the machine's pci.ids
	// the product's name from the machine's pci.ids or, for NVIDIA's, from gpustack's own list
	Product           *string `json:"product"`
	SubsystemVendorID *ID     `json:"subsystem_vendor_id"` // the board's vendor
	SubsystemID       *ID     `json:"subsystem_id"`        // the board's model
	Revision          *string `json:"revision"`            // two hexadecimal digits
	Driver            *string `json:"driver"`              // the bound driver; nil for none
	// the only driver that may bind it; nil for any
	DriverOverride *string `json:"driver_override"`
	// Modalias is what modules' alias patterns are compared with. The class and the ids are read
	// from it, or from their own files, with a warning, if it is not as kernels write it.
	Modalias   *string `json:"modalias"`
	IOMMUGroup *int    `json:"iommu_group"` // nil for none
	// all functions in that group, including this one
	GroupMembers []Address `json:"group_members"`
	NUMANode     *int      `json:"numa_node"` // nil for none (the kernel's -1)
	// the bridge above; nil on a root bus
	Parent *Address `json:"parent"`
	// the VMD controller that provides the function's domain; nil for none
	Controller *Address `json:"controller"`
	// whether it is the VGA controller that the firmware has enabled; null if the kernel does not show
	// it
	BootVGA host.Bool `json:"boot_vga"`
	// the file that shows that the firmware's framebuffer is on it; nil for none
	Framebuffer *string `json:"framebuffer"`
	// how the kernel can reset it; nil if the kernel does not show it
	ResetMethods []string    `json:"reset_methods" null:"zero"`
	SRIOV        SRIOV       `json:"sriov"`       // its part in SR-IOV
	DeviceType   *DeviceType `json:"device_type"` // its device type in Nova
	// AliasHint is the name that the Nova alias of the product gets, for known GPUs: "K4200",
	// "A100-SXM4-80GB", "MI300X". It depends on the product alone.
	AliasHint *Alias `json:"alias_hint"`
	// Candidate reports whether host prepare selects it by default: an NVIDIA GPU (display
	// controller or processing accelerator) that is not a virtual function.
	Candidate bool `json:"candidate"`
	// the memory regions of a GPU; nil for other functions and if the kernel does not show them
	BARs     []BAR    `json:"bars" null:"zero"`
	Warnings []string `json:"warnings"` // files of the function that cannot be read or parsed
	// NVSwitchManager reports whether a network function manages the NVSwitches of its board (HGX
	// B200, B300). It is absent on machines without NVSwitches and on machines whose NVSwitches are
	// PCI functions.
	NVSwitchManager host.Bool `json:"nvswitch_manager,omitempty"`

	link        string // where its entry in the list of functions leads, "" if that is no link
	whole       bool   // everything was read, not only what identifies the function
	groupUnread bool
	driverErr   error // see DriverErr
	vpdUnread   bool
	vpdAbsent   bool
	sriovUnread bool
	mediates    bool     // it supports mediated devices
	shows       []string // of consoleEntries
}

// SRIOV is a function's role in single-root I/O virtualization. Role is nil if it could not be
// determined.
type SRIOV struct {
	Role *Role `json:"role"` // nil if unknown
	// how many virtual functions a physical function supports; nil for other functions
	TotalVFs *int `json:"total_vfs"`
	NumVFs   *int `json:"num_vfs"` // how many it has; nil for other functions
	// the physical function of a virtual one; nil for other functions
	PF *Address `json:"pf"`
}

// Role is none, pf (physical function) or vf (virtual function).
type Role string

// The three roles.
const (
	RoleNone Role = "none"
	RolePF   Role = "pf" // can have virtual functions
	RoleVF   Role = "vf" // is a virtual function
)

// DeviceType is Nova's type of a PCI device in its database, device_spec and alias
// (nova/objects/fields.py, PciDeviceType).
type DeviceType string

// The types that a GPU can have. Nova uses libvirt's, and libvirt calls a function physical if the
// kernel permits at least one virtual function, enabled or not (nova/virt/libvirt/host.py,
// _get_device_type, since 13.0.0; libvirt/src/conf/node_device_conf.c,
// virNodeDeviceGetPCISRIOVCaps).
const (
	TypePCI DeviceType = "type-PCI"
	TypePF  DeviceType = "type-PF"
	TypeVF  DeviceType = "type-VF"
)

// UnmarshalText sets the type. Nova has no others, apart from vdpa, which no GPU is.
func (t *DeviceType) UnmarshalText(text []byte) error {
	if *t = DeviceType(text); !slices.Contains([]DeviceType{TypePCI, TypePF, TypeVF}, *t) {
		return fmt.Errorf("%.60q is not a type of devices in Nova: %s, %s or %s", text, TypePCI, TypePF, TypeVF)
	}
	return nil
}

// DriverUnread reports whether the driver of the function could not be read: Driver is nil then,
// although a driver may be bound.
func (d *Device) DriverUnread() bool {
	return d.driverErr != nil
}

// DriverErr returns why the driver of the function could not be read, or nil.
func (d *Device) DriverErr() error {
	return d.driverErr
}

// GroupUnread reports whether the IOMMU group of the function could not be read: IOMMUGroup is nil
// then, although the function may share a group with others.
func (d *Device) GroupUnread() bool {
	return d.groupUnread
}

// IsVendor reports whether the function is known to be made by vendor.
func (d *Device) IsVendor(vendor ID) bool {
	return d.VendorID != nil && *d.VendorID == vendor
}

// IsDisplay reports whether the function is known to be a display controller.
func (d *Device) IsDisplay() bool {
	return d.Class != nil && d.Class.IsDisplay()
}

// IsBridge reports whether the function is known to be a bridge to other functions.
func (d *Device) IsBridge() bool {
	return d.Class != nil && d.Class.IsBridge()
}

// IsNVSwitch reports whether the function is known to be one of the switches that connect the GPUs
// of an HGX board, or to manage them. NVIDIA's chipsets have functions of the same class, on a
// root bus.
func (d *Device) IsNVSwitch() bool {
	return d.IsVendor(NVIDIA) && d.Class != nil && *d.Class == OtherBridge && d.Parent != nil ||
		d.NVSwitchManager == host.Yes
}

// VPDUnread reports whether the function may manage NVSwitches but its vital product data, which
// would show that, cannot be read.
func (d *Device) VPDUnread() bool {
	return d.vpdUnread
}

// SRIOVUnread reports whether the function's role in SR-IOV cannot be read: it may have virtual
// functions, or be one.
func (d *Device) SRIOVUnread() bool {
	return d.sriovUnread
}

// IsNVIDIAGPU reports whether the function is known to be a GPU of NVIDIA's, physical or virtual.
func (d *Device) IsNVIDIAGPU() bool {
	return d.IsVendor(NVIDIA) && d.IsGPU()
}

// IsBoardGPU reports whether the function may be a GPU of a board with NVSwitches: those are 3D
// controllers, which have no display outputs.
func (d *Device) IsBoardGPU() bool {
	return d.IsNVIDIAGPU() && *d.Class == Controller3D && d.SRIOV.PF == nil
}

// DriverName returns the name of the function's driver, or "" for none.
func (d *Device) DriverName() string {
	return host.Value(d.Driver)
}

// IsVF reports whether the function is known to be a virtual function.
func (d *Device) IsVF() bool {
	return d.SRIOV.Role != nil && *d.SRIOV.Role == RoleVF
}

// LeavesAlone reports whether a driver binds functions without using them, so that their group can
// be assigned to a guest: pci-stub, and vfio-pci with its variants for one vendor's devices, whose
// names have the same form (drivers/vfio/pci: mlx5_vfio_pci, nvgrace_gpu_vfio_pci, …).
func LeavesAlone(driver string) bool {
	driver = strings.ReplaceAll(driver, "-", "_")
	return driver == "pci_stub" || driver == "vfio_pci" || strings.HasSuffix(driver, "_vfio_pci")
}
