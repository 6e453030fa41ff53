package views

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/operate/node"
)

// PrintScan prints a line for each function, with brackets around groups, and the number of GPUs
// that can be prepared.
func PrintScan(u *term.UI, r node.Scan, all []node.ScannedDevice) {
	u.Printf("%s\n", term.Printable(hostLine(r.Host, r.System)))
	if r.Machine != nil {
		printMachine(u, *r.Machine)
	}
	if len(r.Devices) == 0 {
		found := either(r.Scope == nova.ScopeFiltered, "no function matches the filters", "no GPU found")
		u.Printf("\n%s: %s lists every PCI function\n", found, u.Command(host.NewCommand("host scan").Flag("all")))
		return
	}
	// Without a record every function is the host's.
	roles := slices.ContainsFunc(all, func(d node.ScannedDevice) bool { return d.Role != nil && *d.Role != machine.OfHost })
	var rows [][]string
	for _, unit := range units(r.Devices) {
		for i, d := range unit {
			bracket := "│ "
			switch {
			case len(unit) == 1:
				bracket = "  "
			case i == 0:
				bracket = "┌ "
			case i == len(unit)-1:
				bracket = "└ "
			}
			group := either(i == 0, Text(d.IOMMUGroup), "")
			deviceType, alias := offered(d.Device)
			rows = append(rows, []string{bracket + group, d.Address.String(), IDs(d.Device), Name(d.Device), Text(d.Driver), Text(d.NUMANode), deviceType,
				alias, Text(d.Role), state(d)})
		}
	}
	u.Printf("\n")
	tableWith(u, "ROLE", roles, []string{"GROUP", "FUNCTION", "ID", "NAME", "DRIVER", "NUMA", "TYPE", "ALIAS", "ROLE", "STATE"}, rows)
	printGPUs(u, r)
}

// printGPUs prints how many GPUs are for guests or can be, and the next command to run.
func printGPUs(u *term.UI, r node.Scan) {
	n := r.GPUs
	if n.Listed == 0 {
		return
	}
	line := fmt.Sprintf("%d of %s can be prepared for guests", n.Preparable, host.Numbered(n.Listed, "GPU"))
	rest := []counted{{"blocked", n.Blocked}, {"console", n.Console}, {"unknown", n.Unseen()}, {"prepared", n.Prepared},
		{"bound for guests", n.Bound() - n.InUse}, {"in use", n.InUse}}
	switch n.Listed {
	case n.Bound():
		line, rest = are(n.Listed)+" bound for guests", rest[5:]
	case n.Prepared:
		line, rest = are(n.Listed)+" prepared for the next boot", nil
	case n.Bound() + n.Prepared:
		line, rest = are(n.Bound())+fmt.Sprintf(" bound for guests, %d prepared for the next boot", n.Prepared), rest[5:]
	}
	line += inBrackets(rest...)
	line += either(r.ChoosesSwitches(), "; host prepare also needs --nvswitch host or --nvswitch guest", "")
	u.Printf("\n%s. Next:\n  %s\n", line, u.Command(r.Next.Command))
}

// are returns the beginning of a sentence about a number of GPUs.
func are(n int) string {
	if n == 1 {
		return "1 GPU is"
	}
	return fmt.Sprintf("%d GPUs are", n)
}

// units arranges functions in units: IOMMU groups or, without groups, slots. In a unit, cards with
// GPUs come first and bridges last. Units are ordered by their first functions, with those of
// NVSwitches last.
func units(devices []node.ScannedDevice) [][]node.ScannedDevice {
	type key struct {
		group int
		slot  pci.Address
	}
	cards := map[pci.Address]bool{}
	units := grouped(devices, func(d node.ScannedDevice) key {
		cards[d.Address.Card()] = cards[d.Address.Card()] || d.IsGPU()
		if d.IOMMUGroup != nil {
			return key{group: *d.IOMMUGroup}
		}
		return key{group: -1, slot: d.Address.Card()}
	})
	rank := func(d node.ScannedDevice) int {
		switch {
		case d.IsBridge():
			return 2
		case cards[d.Address.Card()]:
			return 0
		}
		return 1
	}
	for _, unit := range units {
		slices.SortStableFunc(unit, func(a, b node.ScannedDevice) int { return rank(a) - rank(b) })
	}
	ofSwitches := func(unit []node.ScannedDevice) int {
		if unit[0].IsNVSwitch() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(units, func(a, b []node.ScannedDevice) int { return ofSwitches(a) - ofSwitches(b) })
	return units
}

// PrintScanTree prints the functions in the PCI hierarchy: below their host bridge, the bridges
// between, and the VMD controller that provides their domain. Bridges and controllers are always
// shown.
func PrintScanTree(u *term.UI, r node.Scan, all []node.ScannedDevice) {
	u.Printf("%s\n\n", term.Printable(hostLine(r.Host, r.System)))
	known := map[pci.Address]node.ScannedDevice{}
	for _, d := range all {
		known[d.Address] = d
	}
	children := map[pci.Address][]node.ScannedDevice{}
	tops := map[string][]node.ScannedDevice{} // top-level functions by root bus
	placed := map[pci.Address]bool{}
	var place func(d node.ScannedDevice)
	place = func(d node.ScannedDevice) {
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
		bus := rootBus(d.Device)
		tops[bus] = append(tops[bus], d)
	}
	for _, d := range r.Devices {
		place(d)
	}
	var rows [][]string
	var grow func(indent string, level []node.ScannedDevice)
	grow = func(indent string, level []node.ScannedDevice) {
		slices.SortFunc(level, func(a, b node.ScannedDevice) int { return a.Address.Compare(b.Address) })
		for i, d := range level {
			branch, below := "├─ ", "│  "
			if i == len(level)-1 {
				branch, below = "└─ ", "   "
			}
			rows = append(rows, []string{
				indent + branch + d.Address.String(), Text(d.IOMMUGroup), Text(d.NUMANode), Text(d.Driver), IDs(d.Device), Name(d.Device), state(d),
			})
			grow(indent+below, children[d.Address])
		}
	}
	byFirst := func(a, b string) int { return tops[a][0].Address.Compare(tops[b][0].Address) }
	for _, bus := range slices.SortedFunc(maps.Keys(tops), byFirst) {
		rows = append(rows, []string{bus, "", "", "", "", "", ""})
		grow("", tops[bus])
	}
	u.Table([]string{"FUNCTION", "GROUP", "NUMA", "DRIVER", "ID", "NAME", "STATE"}, rows)
	printGPUs(u, r)
}

// rootBus returns the name of the host bridge's bus as in sysfs: the bus of the topmost function,
// or only its domain if the bridge above is unknown.
func rootBus(d *pci.Device) string {
	if d.Parent != nil {
		return "below " + d.Parent.String()
	}
	bus, _, _ := strings.Cut(d.Address.String(), ".")
	return "pci" + bus[:strings.LastIndex(bus, ":")]
}

// state returns the state of a function, or "" for a bridge.
func state(d node.ScannedDevice) string { return host.Value(d.Whole).String() }

// offered returns Nova's device type and the suggested alias of a GPU, "" for another function and
// for what is unknown.
func offered(d *pci.Device) (deviceType, alias string) {
	if !d.IsGPU() || d.IsManagementConsole() || d.DeviceType == nil {
		return "", ""
	}
	return string(*d.DeviceType), string(host.Value(d.AliasHint))
}
