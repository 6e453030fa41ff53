package pci

import "strings"

// Device is one PCI function as sysfs shows it. What the kernel does not show,
// or shows unreadably, is nil. It is written to JSON as docs/json.md says and
// can be read back from there.
type Device struct {
	Address           Address     `json:"address"`
	Class             *Class      `json:"class"`
	ClassName         *string     `json:"class_name"`
	VendorID          *ID         `json:"vendor_id"`
	ProductID         *ID         `json:"product_id"`
	Vendor            *string     `json:"vendor"`
	Product           *string     `json:"product"`
	SubsystemVendorID *ID         `json:"subsystem_vendor_id"`
	SubsystemID       *ID         `json:"subsystem_id"`
	Revision          *string     `json:"revision"` // two hexadecimal digits
	Driver            *string     `json:"driver"`   // nil for none
	DriverOverride    *string     `json:"driver_override"`
	Modalias          *string     `json:"modalias"`
	IOMMUGroup        *int        `json:"iommu_group"`
	GroupMembers      []Address   `json:"group_members"` // the function itself among them
	NUMANode          *int        `json:"numa_node"`     // nil for none (the kernel's -1)
	Parent            *Address    `json:"parent"`        // the bridge above; nil on a root bus
	Controller        *Address    `json:"controller"`    // the function whose domain this is (VMD)
	BootVGA           *bool       `json:"boot_vga"`
	ResetMethods      []string    `json:"reset_methods"` // nil where the kernel does not say
	SRIOV             SRIOV       `json:"sriov"`
	DeviceType        *DeviceType `json:"device_type"`
	AliasHint         *string     `json:"alias_hint"` // GPUs of a known product only
	Candidate         bool        `json:"candidate"`  // what host prepare selects by itself
	Warnings          []string    `json:"warnings"`
	// NVSwitchManager tells whether a network function manages the NVSwitches of its board.
	// It is nil on machines whose NVSwitches show as functions, or that have none.
	NVSwitchManager *bool `json:"nvswitch_manager,omitempty"`

	driverUnread bool
	vpdUnread    bool
	sriovUnread  bool
	mediates     bool // it can have mediated devices
}

// SRIOV is a function's part in single-root I/O virtualisation. Role is nil where
// the kernel's answer could not be read.
type SRIOV struct {
	Role     *Role    `json:"role"`
	TotalVFs *int     `json:"total_vfs"` // physical functions only
	NumVFs   *int     `json:"num_vfs"`
	PF       *Address `json:"pf"` // virtual functions only
}

// Role is none, pf (physical function) or vf (virtual function).
type Role string

// The three roles.
const (
	RoleNone Role = "none"
	RolePF   Role = "pf"
	RoleVF   Role = "vf"
)

// DeviceType is what Nova calls a function in its database, device_spec and
// alias (nova/objects/fields.py, PciDeviceType).
type DeviceType string

// The types a GPU can have. Nova follows libvirt, and libvirt calls a function
// physical when the kernel allows it at least one virtual function, enabled or
// not (nova/virt/libvirt/host.py, _get_device_type, since 13.0.0;
// libvirt/src/conf/node_device_conf.c, virNodeDeviceGetPCISRIOVCaps).
const (
	TypePCI DeviceType = "type-PCI"
	TypePF  DeviceType = "type-PF"
	TypeVF  DeviceType = "type-VF"
)

// DriverUnread tells that a driver may hold the function, but which could not be
// read: Driver is nil and means nothing.
func (d *Device) DriverUnread() bool {
	return d.driverUnread
}

// IsVendor tells whether the function is known to be made by vendor.
func (d *Device) IsVendor(vendor ID) bool {
	return d.VendorID != nil && *d.VendorID == vendor
}

// IsDisplay tells whether the function is known to be a display controller.
func (d *Device) IsDisplay() bool {
	return d.Class != nil && d.Class.IsDisplay()
}

// IsBridge tells whether the function is known to be a bridge to other functions.
func (d *Device) IsBridge() bool {
	return d.Class != nil && d.Class.IsBridge()
}

// IsNVSwitch tells whether the function is known to be one of the switches that
// join the GPUs of an HGX board, or to manage them. Chipsets of NVIDIA's have functions
// of the same class, on a root bus.
func (d *Device) IsNVSwitch() bool {
	return d.IsVendor(NVIDIA) && d.Class != nil && *d.Class == OtherBridge && d.Parent != nil ||
		d.NVSwitchManager != nil && *d.NVSwitchManager
}

// VPDUnread tells that the function may manage NVSwitches, and that its vital product
// data, which says so, cannot be read.
func (d *Device) VPDUnread() bool {
	return d.vpdUnread
}

// SRIOVUnread tells that the function's part in SR-IOV cannot be read: it may have virtual
// functions, or be one.
func (d *Device) SRIOVUnread() bool {
	return d.sriovUnread
}

// IsNVIDIAGPU tells whether the function is known to be a GPU of NVIDIA's, physical or virtual.
func (d *Device) IsNVIDIAGPU() bool {
	return d.IsVendor(NVIDIA) && d.IsGPU()
}

// IsBoardGPU tells whether the function may be a GPU of a board with NVSwitches: those
// are 3D controllers, which have no display outputs.
func (d *Device) IsBoardGPU() bool {
	return d.IsNVIDIAGPU() && *d.Class == Controller3D && d.SRIOV.PF == nil
}

// DriverName returns the name of the function's driver, or "" for none.
func (d *Device) DriverName() string {
	if d.Driver == nil {
		return ""
	}
	return *d.Driver
}

// IsVF reports whether the function is known to be a virtual function.
func (d *Device) IsVF() bool {
	return d.SRIOV.Role != nil && *d.SRIOV.Role == RoleVF
}

// IsConsole reports whether the function is known to be the console of the firmware.
func (d *Device) IsConsole() bool {
	return d.BootVGA != nil && *d.BootVGA
}

// LeavesAlone tells whether a driver holds a function without using it, so that
// its group can be given to a guest: vfio-pci and its variants for one vendor's
// devices (drivers/vfio/pci: mlx5_vfio_pci, nvgrace_gpu_vfio_pci, …), which all
// are named so, and pci-stub.
func LeavesAlone(driver string) bool {
	driver = strings.ReplaceAll(driver, "-", "_")
	return driver == "pci_stub" || driver == "vfio_pci" || strings.HasSuffix(driver, "_vfio_pci")
}
