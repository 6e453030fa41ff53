package novacheck

import (
	"cmp"
	"slices"

	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/devspec"
	"gpustack/nova/pools"
)

// Counts is what was checked.
type Counts struct {
	Files   int `json:"file_count"`  // files that were read
	Aliases int `json:"alias_count"` // aliases with different names
	// DeviceCount is how many functions of this machine (without --conf) and of the inventories the
	// device specs of the compute nodes offer to guests; without a compute node, those that the
	// aliases select. It is null if no hardware is known.
	DeviceCount *int `json:"device_count"`
	// these functions, by host and address; null if no hardware is known
	Devices []Function `json:"offered" null:"zero"`
}

// Function is a function of a host.
type Function struct {
	Host    string      `json:"host" null:"zero"` // the hostname; null for this machine
	Address pci.Address `json:"address"`          // the function
}

// Count returns what [Run] checks.
func Count(r nova.Release, sides []nova.Side, hosts []nova.Host) Counts {
	c := newChecker(r, sides, hosts)
	var files []string
	for _, s := range c.sides {
		for _, f := range s.Files {
			if !slices.Contains(files, f.Name) {
				files = append(files, f.Name)
			}
		}
		c.readAliases(s)
	}
	counts := Counts{Files: len(files), Aliases: len(c.aliases)}
	if len(c.nodes)+len(c.hosts) == 0 {
		return counts
	}
	counts.Devices = []Function{}
	for _, n := range c.nodes {
		for _, f := range n.offered {
			counts.Devices = append(counts.Devices, Function{n.Name, f.Device.Address})
		}
	}
	for _, h := range c.hosts {
		for i := range h.Devices {
			if d := &h.Devices[i]; !c.computes && c.isAsked(d) {
				counts.Devices = append(counts.Devices, Function{h.Name, d.Address})
			}
		}
	}
	slices.SortFunc(counts.Devices, func(a, b Function) int { return cmp.Or(cmp.Compare(a.Host, b.Host), a.Address.Compare(b.Address)) })
	counts.Devices = slices.Compact(counts.Devices)
	counts.DeviceCount = new(len(counts.Devices))
	return counts
}

// isAsked reports whether an alias selects a device by its ids, whatever its tags are.
func (c *checker) isAsked(d *pci.Device) bool {
	for _, at := range c.aliases {
		if share := c.byIDs(at).Judge(pools.Every([]pci.Device{*d}), nil, false, c.release); share.Why == pools.Gets {
			return true
		}
	}
	return false
}

// byIDs returns the request without the definitions that have no ids: the hardware of hosts does not
// tell which devices these select.
func (c *checker) byIDs(at []aliasAt) pools.Request {
	r := c.request(at)
	r.Specs = slices.DeleteFunc(r.Specs, func(s pools.Spec) bool { return s["vendor_id"] == "" && s["product_id"] == "" })
	return r
}

// request returns the request for a device of an alias, by its definitions on one side.
func (c *checker) request(at []aliasAt) pools.Request {
	of := c.model(at).side
	alias := contents(at, of)
	r := pools.NewRequest(alias)
	for i, a := range alias {
		if !nova.HasIDs(a) && isByClass(of.reader(), a, c.release) {
			r.Specs[i][pools.ClassTag] = devspec.Reported{Spec: devspec.Spec{Object: a}}.Class()
		}
	}
	return r
}
