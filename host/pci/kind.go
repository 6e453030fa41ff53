package pci

// Kind returns the operator's name for a kind of function: "GPU", "NIC", "NVSwitch", "disk
// controller". It depends on the class and, for NVSwitches and consoles, on the vendor. It is
// "device" if the class is unknown or has no common name (PCI Code and ID Assignment
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

// Label returns a function's kind, address and driver, if any, for use in a sentence: "NIC
// 0000:c3:00.0 (mlx5_core)".
func (d *Device) Label() string {
	label := d.Kind() + " " + d.Address.String()
	if d.Driver != nil {
		label += " (" + *d.Driver + ")"
	}
	return label
}

// IsGPU reports whether the function is known to be a GPU: a display controller or a processing
// accelerator. Code that is concerned with monitors calls IsDisplay instead.
func (d *Device) IsGPU() bool {
	return d.Class != nil && d.Class.isGPU()
}

// Vendors of the display controllers in management controllers of servers.
const (
	aspeed ID = 0x1a03
	matrox ID = 0x102b
)

// IsManagementConsole reports whether the function is known to be the display controller of a
// server's management controller.
func (d *Device) IsManagementConsole() bool {
	return d.IsDisplay() && (d.IsVendor(aspeed) || d.IsVendor(matrox))
}

// isGPU reports whether the class is one that GPUs have: that of display controllers or of
// processing accelerators (AMD's Instinct and Intel's Gaudi).
func (c Class) isGPU() bool {
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
