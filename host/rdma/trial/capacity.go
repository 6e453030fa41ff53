package trial

import (
	"gpustack/host"
	"gpustack/host/pci"
)

// Hardware is what the figures of a test were measured on.
type Hardware struct {
	Product  string // "" of a software device, and where it is unknown
	Driver   string // of the function; "" of a software device
	Firmware string // "" where the driver shows none
	// Port and Link are what the port and the adapter's PCIe link can carry; nil if it is unknown, and
	// of a software device, whose rate is not that of a link.
	Port, Link *Capacity
	Err        error // why the PCIe link was not read
}

// Capacity is how much data a port or a PCIe link can carry in each direction.
type Capacity struct {
	Name     string  // as the kernel shows it: "100 Gb/sec (4X EDR)", "x16 16.0 GT/s PCIe"
	Gbps     float64 // 10^9 bits per second, without the encoding
	Encoding string  // that the shown rate includes; "" for none
}

// Percent returns how many per cent of the capacity a bandwidth is, in bytes per second; nil if the
// capacity is unknown.
func (c *Capacity) Percent(bandwidth float64) *float64 {
	if c == nil {
		return nil
	}
	percent := bandwidth * 8 / (c.Gbps * 1e9) * 100
	return &percent
}

// readHardware reads what a port's figures are measured on. A virtual function shares the PCIe link
// of its physical function.
func readHardware(root host.Root, target Target) Hardware {
	a := target.Adapter
	if a.Address == nil {
		return Hardware{Firmware: a.Firmware}
	}
	h := Hardware{Driver: a.Driver, Firmware: a.Firmware}
	if a.Product != nil {
		h.Product = *a.Product
	}
	if gbps, encoding, ok := target.Port.DataRate(); ok {
		h.Port = &Capacity{target.Port.Rate, gbps, encoding}
	}
	function := pci.Device{Address: *a.Address}
	if a.PF != nil {
		function.Address = *a.PF
	}
	link := pci.ReadPCIeLink(root, &function)
	if gbps, encoding, ok := link.Rate(); ok {
		h.Link = &Capacity{"x" + link.Width + " " + link.Speed, gbps, encoding}
	}
	h.Err = link.Err
	return h
}
