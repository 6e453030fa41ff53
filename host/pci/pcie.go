package pci

import (
	"errors"
	"strconv"
	"strings"

	"gpustack/host"
)

// PCIeLink is the state of a function's PCIe link (Linux,
// Documentation/ABI/testing/sysfs-bus-pci). A value is "" where the kernel shows none.
type PCIeLink struct {
	Width, MaxWidth string // lanes
	Speed, MaxSpeed string // "16.0 GT/s PCIe"
	SlotWidth       string // the most lanes of the port above
	SlotSpeed       string
	Err             error
}

// ReadPCIeLinks reads the PCIe link of each device. A virtual function has none of its own.
func ReadPCIeLinks(root host.Root, devices []Device) map[Address]PCIeLink {
	links, warnings := revisit(root, devices, func(r *reader) (l PCIeLink) {
		file(r, "current_link_width", &l.Width, parseText)
		file(r, "current_link_speed", &l.Speed, parseText)
		file(r, "max_link_width", &l.MaxWidth, parseText)
		file(r, "max_link_speed", &l.MaxSpeed, parseText)
		file(r, "../max_link_width", &l.SlotWidth, parseText) // of the bridge above
		file(r, "../max_link_speed", &l.SlotSpeed, parseText)
		return l
	})
	for i, d := range devices {
		if len(warnings[i]) > 0 {
			l := links[d.Address]
			l.Err = errors.New(strings.Join(warnings[i], "; "))
			links[d.Address] = l
		}
	}
	return links
}

// Lanes returns the number of lanes in use, and how many the function and the slot support. The
// slot's number is 0 if it is unknown. ok is false if the kernel shows none or an impossible
// number: of a function that is powered down or has fallen off the bus, all registers read as ones,
// which are 63 lanes (PCI Express Base Specification, Link Status Register).
func (l PCIeLink) Lanes() (now, most, slot int, ok bool) {
	now, err := strconv.Atoi(l.Width)
	most, maxErr := strconv.Atoi(l.MaxWidth)
	slot, slotErr := strconv.Atoi(l.SlotWidth)
	if slotErr != nil || slot < 0 || slot > maxLanes {
		slot = 0
	}
	return now, most, slot, errors.Join(err, maxErr) == nil && now > 0 && now <= most && most <= maxLanes
}

// maxLanes is the greatest width of a PCIe link.
const maxLanes = 32

// flits is the encoding of links at 64 GT/s: of 256 bytes of a flit, 236 carry packets (PCI Express
// Base Specification 6.0, Flit Mode).
const flits = "flits of 256 bytes"

// Rate returns what the link can carry in each direction at its current width and speed, in
// gigabits (10^9) per second without what its encoding needs, and the name of that encoding.
// Headers of packets are not subtracted: they take another 5 to 20 per cent. ok is false if the
// kernel shows no width or speed, as in a virtual machine.
func (l PCIeLink) Rate() (gbps float64, encoding string, ok bool) {
	lanes, _, _, ok := l.Lanes()
	word, _, _ := strings.Cut(l.Speed, " ")
	speed, err := strconv.ParseFloat(word, 64)
	if !ok || err != nil {
		return 0, "", false
	}
	raw := float64(lanes) * speed
	switch speed {
	case 2.5, 5:
		return raw * 8 / 10, "8b/10b", true
	case 8, 16, 32:
		return raw * 128 / 130, "128b/130b", true
	case 64:
		return raw * 236 / 256, flits, true
	}
	return 0, "", false
}
