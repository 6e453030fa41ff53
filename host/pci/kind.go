package pci

// Kind is what an operator calls a function: "GPU", "NIC", "NVSwitch", "disk controller".
// It follows from the class and, for NVSwitches and consoles, the vendor. It is "device"
// where the class is unknown or has no common name (PCI Code and ID Assignment
// Specification; Linux, include/linux/pci_ids.h).
func (d *Device) Kind() string {
	switch {
	case d.IsNVSwitch():
		return "NVSwitch"
	case d.IsManagementConsole():
		return "console"
	case d.Class == nil:
		return "device"
	}
	return d.Class.kind()
}

// Label names a function in a sentence: its kind, its address and, where it has one, its
// driver, as in "NIC 0000:c3:00.0 (mlx5_core)".
func (d *Device) Label() string {
	label := d.Kind() + " " + d.Address.String()
	if d.Driver != nil {
		label += " (" + *d.Driver + ")"
	}
	return label
}

// IsGPU tells whether the function is known to be a GPU: a display controller or a
// processing accelerator. Code that is about what a monitor shows asks IsDisplay instead.
func (d *Device) IsGPU() bool {
	return d.Class != nil && d.Class.IsGPU()
}

// Makers of the display controllers in servers' management controllers.
const (
	aspeed ID = 0x1a03
	matrox ID = 0x102b
)

// IsManagementConsole tells whether the function is known to be the display controller of a
// server's management controller.
func (d *Device) IsManagementConsole() bool {
	return d.IsDisplay() && (d.IsVendor(aspeed) || d.IsVendor(matrox))
}

// IsGPU tells whether the class is one that GPUs have: those of display controllers, and
// those of processing accelerators (AMD's Instinct and Intel's Gaudi).
func (c Class) IsGPU() bool {
	return c.IsDisplay() || c.base() == 0x12
}

func (c Class) kind() string {
	switch c {
	case 0x0401, 0x0403:
		return "audio"
	case 0x0c03:
		return "USB controller"
	case 0x0c80: // NVIDIA's Turing cards have such a function
		return "USB-C controller"
	case 0x0c05:
		return "SMBus controller"
	}
	switch c.base() {
	case 0x01:
		return "disk controller"
	case 0x02:
		return "NIC"
	case 0x03:
		return "GPU"
	case 0x04:
		return "multimedia controller"
	case 0x05:
		return "memory controller"
	case 0x06:
		return "bridge"
	case 0x07:
		return "communication controller"
	case 0x08:
		return "system peripheral"
	case 0x0b:
		return "coprocessor"
	case 0x0d:
		return "wireless controller"
	case 0x10:
		return "encryption controller"
	case 0x12:
		return "accelerator"
	}
	return "device"
}
