package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host/iommu"
	"gpustack/host/pci"
)

// scanTable prints a line for each function, those of a group held together by a
// bracket, and below it what blocks each group.
func (u *ui) scanTable(r scanReport) {
	u.printf("%s\n", printable(hostLine(r.Host)))
	if len(r.Devices) == 0 {
		u.printf("\nno function to list: gpustack host scan --all lists every one\n")
		return
	}
	states := map[int]string{}
	for _, g := range r.Groups {
		states[g.Number] = state(g)
	}
	strokes := u.lines()
	var rows [][]string
	for _, unit := range units(r.Devices) {
		for i, d := range unit {
			bracket := strokes.middle
			switch {
			case len(unit) == 1:
				bracket = strokes.alone
			case i == 0:
				bracket = strokes.top
			case i == len(unit)-1:
				bracket = strokes.bottom
			}
			group, groupState := "", ""
			if i == 0 {
				group, groupState = number(d.IOMMUGroup), "-"
				if d.IOMMUGroup != nil {
					groupState = states[*d.IOMMUGroup]
				}
			}
			rows = append(rows, []string{
				bracket + group, groupState, d.Address.String(), ids(d), name(d), text(d.Driver), number(d.NUMANode), forNova(d),
			})
		}
	}
	u.printf("\n")
	u.table([]string{"GROUP", "STATE", "FUNCTION", "ID", "NAME", "DRIVER", "NUMA", "NOVA"}, rows)
	u.blockers(r.Groups)
}

// blockers prints what keeps groups from being given to a guest.
func (u *ui) blockers(groups []iommu.Group) {
	var rows [][]string
	for _, g := range groups {
		label := fmt.Sprintf("group %d", g.Number)
		for _, b := range g.Blockers {
			rows = append(rows, []string{label, b.Address.String(), b.Reason})
			label = ""
		}
	}
	if len(rows) > 0 {
		u.printf("\n")
		u.table([]string{"In the way of giving a group to a guest:"}, rows)
	}
}

// units puts functions together that belong together: those of a group, and
// where there are no groups those of a slot. Units come in the order of their
// first functions.
func units(devices []pci.Device) [][]pci.Device {
	type key struct {
		group int
		slot  pci.Address
	}
	places := map[key]int{}
	var units [][]pci.Device
	for _, d := range devices {
		k := key{group: -1, slot: d.Address}
		k.slot.Function = 0
		if d.IOMMUGroup != nil {
			k = key{group: *d.IOMMUGroup}
		}
		place, known := places[k]
		if !known {
			place = len(units)
			places[k] = place
			units = append(units, nil)
		}
		units[place] = append(units[place], d)
	}
	return units
}

// scanTree prints the functions where they sit: below their host bridge and the
// bridges between, and below the VMD controller whose domain they are in. Bridges and
// controllers are shown whether they were asked for or not.
func (u *ui) scanTree(r scanReport, all []pci.Device) {
	u.printf("%s\n\n", printable(hostLine(r.Host)))
	known := map[pci.Address]pci.Device{}
	for _, d := range all {
		known[d.Address] = d
	}
	children := map[pci.Address][]pci.Device{}
	tops := map[string][]pci.Device{} // by root bus
	placed := map[pci.Address]bool{}
	var place func(d pci.Device)
	place = func(d pci.Device) {
		if placed[d.Address] {
			return
		}
		placed[d.Address] = true
		if above := cmp.Or(d.Parent, d.Controller); above != nil {
			if bridge, ok := known[*above]; ok {
				children[*above] = append(children[*above], d)
				place(bridge)
				return
			}
		}
		bus := rootBus(d)
		tops[bus] = append(tops[bus], d)
	}
	for _, d := range r.Devices {
		place(d)
	}
	strokes := u.lines()
	var rows [][]string
	var grow func(indent string, level []pci.Device)
	grow = func(indent string, level []pci.Device) {
		slices.SortFunc(level, func(a, b pci.Device) int { return a.Address.Compare(b.Address) })
		for i, d := range level {
			branch, below := strokes.tee, strokes.pass
			if i == len(level)-1 {
				branch, below = strokes.corner, strokes.none
			}
			rows = append(rows, []string{
				indent + branch + d.Address.String(), number(d.IOMMUGroup), number(d.NUMANode), text(d.Driver), ids(d), name(d),
			})
			grow(indent+below, children[d.Address])
		}
	}
	buses := make([]string, 0, len(tops))
	for bus := range tops {
		buses = append(buses, bus)
	}
	slices.SortFunc(buses, func(a, b string) int {
		return tops[a][0].Address.Compare(tops[b][0].Address)
	})
	for _, bus := range buses {
		rows = append(rows, []string{bus, "", "", "", "", ""})
		grow("", tops[bus])
	}
	u.table([]string{"FUNCTION", "GROUP", "NUMA", "DRIVER", "ID", "NAME"}, rows)
	u.blockers(r.Groups)
}

// rootBus names the host bridge's bus as sysfs does: the bus of the topmost
// function, or its domain alone where the bridge above is not known.
func rootBus(d pci.Device) string {
	if d.Parent != nil {
		return "below " + d.Parent.String()
	}
	bus, _, _ := strings.Cut(d.Address.String(), ".")
	return "pci" + bus[:strings.LastIndex(bus, ":")]
}

// hostLine says in one line which machine this is.
func hostLine(h scannedHost) string {
	var parts []string
	for _, part := range []struct {
		label string
		value *string
	}{{"", h.Hostname}, {"", h.Distribution}, {"Linux ", h.Kernel}, {"CPU ", h.CPUVendor}, {"boot loader ", h.BootLoader}} {
		if part.value != nil {
			parts = append(parts, part.label+*part.value)
		}
	}
	switch {
	case h.IOMMU.Enabled == nil:
		parts = append(parts, "IOMMU unknown (these files do not say)")
	case *h.IOMMU.Enabled:
		parts = append(parts, fmt.Sprintf("IOMMU on (groups: %d)", h.IOMMU.Groups))
	default:
		parts = append(parts, "IOMMU off (no groups: nothing can be given to a guest)")
	}
	return strings.Join(parts, ", ")
}

func state(g iommu.Group) string {
	switch {
	case g.Viable == nil:
		return "unknown"
	case *g.Viable:
		return "free"
	}
	return "held"
}

func ids(d pci.Device) string {
	return unknownID(d.VendorID) + ":" + unknownID(d.ProductID)
}

func unknownID(id *pci.ID) string {
	if id == nil {
		return "????"
	}
	return id.String()
}

// name is the product's name without the chip's where it has one of its own, and
// the class where the product is not known.
func name(d pci.Device) string {
	if d.Product == nil {
		return cmp.Or(text(d.ClassName), "-")
	}
	if _, product, ok := strings.Cut(*d.Product, "["); ok && d.IsGPU() {
		if product, _, ok = strings.Cut(product, "]"); ok {
			return product
		}
	}
	return *d.Product
}

// forNova is what Nova will call a GPU.
func forNova(d pci.Device) string {
	if !d.Candidate || d.DeviceType == nil {
		return ""
	}
	if d.AliasHint == nil {
		return string(*d.DeviceType)
	}
	return string(*d.DeviceType) + " " + *d.AliasHint
}

func text(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}
