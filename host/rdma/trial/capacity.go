package trial

import (
	"gpustack/host"
	"gpustack/host/pci"
)

// Hardware is what the figures of a test were measured on.
type Hardware struct {
	// the name of the PCI function; null for a software device, and if unknown
	Product string `json:"product" null:"zero"`
	// the adapter's driver; "" for a software device, and if none is shown
	Driver string `json:"driver"`
	// the adapter's firmware; "" for a software device, and if none is shown
	Firmware string `json:"firmware"`
	// what the port can carry in each direction; null for a software device, and if unknown
	Port *Capacity `json:"port_capacity"`
	Link *Capacity `json:"pcie_capacity"` // what the PCIe link can carry at this moment, likewise
	Err  error     // why the PCIe link was not read
}

// Capacity is how much data a port or a PCIe link can carry.
type Capacity struct {
	// as the kernel shows it: "100 Gb/sec (4X EDR)", "x16 16.0 GT/s PCIe"
	Name string  `json:"capacity"`
	Gbps float64 `json:"data_gbit_per_second"` // 10^9 bits per second, without the encoding
	// the encoding that the capacity includes, such as "8b/10b"; null if it includes none
	Encoding string `json:"encoding" null:"zero"`
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
	h := Hardware{Driver: a.Driver, Firmware: a.Firmware, Product: host.Value(a.Product)}
	if gbps, encoding, ok := target.Port.DataRate(); ok {
		h.Port = &Capacity{target.Port.Rate, gbps, encoding}
	}
	with := host.Or(a.PF, *a.Address)
	link := pci.ReadPCIeLinks(root, []pci.Device{{Address: with}})[with]
	if gbps, encoding, ok := link.Rate(); ok {
		h.Link = &Capacity{"x" + link.Width + " " + link.Speed, gbps, encoding}
	}
	h.Err = link.Err
	return h
}
