package nova

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova/conf"
)

// The checks of nova.conf, by what they look at. Their names are a public face.
const (
	checkOption     = "option" // a name that the release does not read
	checkAlias      = "alias"
	checkDeviceSpec = "device_spec"
	checkFilters    = "filters"
	checkPlacement  = "placement"
	checkFlavors    = "flavors"
)

// Side is the configuration of one machine, or of all that are like it: its files,
// in the order in which they are read.
type Side struct {
	Role  Role
	Files []SideFile

	Devices    []pci.Device           // the machine's functions; nil where they are not known
	Interfaces map[string]pci.Address // its network interfaces; see [Interfaces]
	Given      []pci.Address          // functions prepared for guests; nil where they are not known
	Hypervisor Hypervisor
}

// SideFile is one file of a machine's configuration.
type SideFile struct {
	Name string
	File *conf.File
}

// Name is the first file's, by which a machine is called.
func (s Side) Name() string {
	return s.Files[0].Name
}

// placed is an option with the file that it stands in.
type placed struct {
	conf.Option
	in string
}

func (s Side) find(names ...conf.Name) []placed {
	var found []placed
	for _, f := range s.Files {
		for _, o := range f.File.Find(names...) {
			found = append(found, placed{o, f.Name})
		}
	}
	return found
}

// isOn reports whether a boolean option is set to true.
func (s Side) isOn(n conf.Name) bool {
	found := s.find(n)
	return len(found) > 0 && isTrue(found[len(found)-1].Value, "true")
}

// Flavor is what a flavor asks for: the value of pci_passthrough:alias.
type Flavor struct {
	Name    string
	Request string
}

// Check holds controllers and compute nodes against each other, against the release,
// against the hardware of hosts and against flavors, both of which may be none.
// Findings come by file and line.
func Check(r Release, sides []Side, hosts []Host, flavors []Flavor) []host.Finding {
	c := &checker{release: r, sides: sides, hosts: hosts, aliases: map[string][]aliasAt{}, unknown: map[string]bool{}}
	for _, s := range sides {
		c.ignored(s)
		c.readAliases(s)
		if s.Role.computes() {
			c.checkSpecs(s, c.readSpecs(s))
			c.identical(s)
		}
		if s.Role.controls() {
			c.filters(s)
		}
	}
	c.bothSides()
	c.offered()
	c.placement()
	c.flavors(flavors)
	slices.SortStableFunc(c.findings, func(a, b host.Finding) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return c.findings
}

type checker struct {
	release  Release
	sides    []Side
	hosts    []Host
	findings []host.Finding
	aliases  map[string][]aliasAt
	specs    []specAt
	unknown  map[string]bool // versions that were reported as unknown, by side
	computes bool            // some side is a compute node's, and could be read
}

// aliasAt is an alias where it stands, specAt a device_spec.
type aliasAt struct {
	side   Side
	file   string
	line   int
	object map[string]any
}

type specAt struct {
	side   Side
	file   string
	line   int
	object map[string]any
}

// add says what is wrong, and what Nova does with it.
func (c *checker) add(check string, status host.Status, file string, line int, seen, effect, remedy string) {
	c.findings = append(c.findings, host.Finding{Check: check, Status: status, File: file, Line: line, Seen: seen, Effect: "Nova " + effect, Remedy: remedy})
}

// readBy are names that some releases read and others do not: from the first on, and
// up to the second, which no longer reads it. Those of no release are mistakes that
// people make.
var readBy = []struct {
	name         conf.Name
	since, until Release
	instead      string
}{
	{conf.Name{Section: "pci", Key: "alias"}, ocata, newest + 1, "[DEFAULT] pci_alias"},
	{conf.Name{Section: "pci", Key: "passthrough_whitelist"}, ocata, newest + 1, "[DEFAULT] pci_passthrough_whitelist"},
	{conf.Name{Section: "pci", Key: "device_spec"}, zed, newest + 1, "[pci] passthrough_whitelist"},
	{reportInPlacement, zed, newest + 1, ""},
	{pciInPlacement, r2023_1, newest + 1, ""},
	{conf.Name{Section: "filter_scheduler", Key: "enabled_filters"}, ocata, newest + 1, "[DEFAULT] scheduler_default_filters"},
	{conf.Name{Section: "filter_scheduler", Key: "available_filters"}, ocata, newest + 1, "[DEFAULT] scheduler_available_filters"},
	{conf.Name{Section: "DEFAULT", Key: "scheduler_default_filters"}, mitaka, xena, "[filter_scheduler] enabled_filters"},
	{conf.Name{Section: "DEFAULT", Key: "scheduler_available_filters"}, mitaka, xena, "[filter_scheduler] available_filters"},
	{conf.Name{Section: "pci", Key: "pci_alias"}, 0, 0, "[pci] alias"},
	{conf.Name{Section: "pci", Key: "pci_passthrough_whitelist"}, 0, 0, "[pci] passthrough_whitelist"},
	{conf.Name{Section: "DEFAULT", Key: "passthrough_whitelist"}, 0, 0, "[pci] passthrough_whitelist"},
	{conf.Name{Section: "DEFAULT", Key: "alias"}, 0, 0, "[pci] alias"},
	{conf.Name{Section: "DEFAULT", Key: "device_spec"}, 0, 0, "[pci] device_spec"},
	{conf.Name{Section: "DEFAULT", Key: "enabled_filters"}, 0, 0, "[filter_scheduler] enabled_filters"},
}

func (c *checker) ignored(s Side) {
	for _, n := range readBy {
		if c.release >= n.since && c.release < n.until {
			continue
		}
		remedy := "take it out"
		if n.instead != "" {
			remedy = "write " + n.instead
		}
		for _, o := range s.find(n.name) {
			c.add(checkOption, host.Fail, o.in, o.Line(), n.name.String()+" is no option of "+c.release.String(), "silently ignores it", remedy)
		}
	}
}

// aliasKeys are what an alias may have, and since when (nova/pci/request.py,
// _ALIAS_SCHEMA).
var aliasKeys = map[string]Release{
	"name": 0, "vendor_id": 0, "product_id": 0, "capability_type": 0, "device_type": 0,
	"numa_policy": queens, "resource_class": r2023_1, "traits": r2023_1, "live_migratable": r2025_1,
}

const allAliases = "refuses every alias of this file: guests of flavors that name one fail"

func (c *checker) readAliases(s Side) {
	for _, o := range s.find(c.release.aliasNames()...) {
		all := objects(o.Value)
		if len(all) != 1 || strings.HasPrefix(strings.TrimSpace(o.Value), "[") {
			c.add(checkAlias, host.Fail, o.in, o.Line(), "an alias is not one JSON object", allAliases, "write one object a line, and repeat the key")
			continue
		}
		object := all[0]
		for key := range object {
			if since, known := aliasKeys[key]; !known || c.release < since {
				c.add(checkAlias, host.Fail, o.in, o.Line(), fmt.Sprintf("an alias has the key %q, which %s does not know", key, c.release), allAliases, "take it out")
			}
		}
		name, _ := object["name"].(string)
		if name = strings.TrimSpace(name); name == "" {
			c.add(checkAlias, host.Fail, o.in, o.Line(), "an alias has no name", allAliases, "give it one")
			continue
		}
		for _, key := range []string{"vendor_id", "product_id"} {
			id, _ := object[key].(string)
			switch _, err := pci.ParseID(id); {
			case object[key] == nil:
				c.add(checkAlias, host.Warn, o.in, o.Line(), fmt.Sprintf("alias %s has no %s", name, key), "matches any device with it, and refuses the alias from 2025.2 on", "name the product")
			case err != nil || len(id) != 4:
				c.add(checkAlias, host.Fail, o.in, o.Line(), fmt.Sprintf("alias %s: %s is not four hexadecimal digits", name, key), allAliases, "write it without 0x")
			case id != strings.ToLower(id) && c.release < rocky:
				c.add(checkAlias, host.Fail, o.in, o.Line(), fmt.Sprintf("alias %s: %s has capitals", name, key), "compares it as it is written, and finds no device", "write it in lower case")
			}
		}
		c.aliases[name] = append(c.aliases[name], aliasAt{s, o.in, o.Line(), object})
	}
}

func (c *checker) filters(s Side) {
	r := c.release
	list, file, line := r.defaultFilters(), s.Name(), 0
	for _, n := range r.filterNames() {
		if found := s.find(n); len(found) > 0 {
			o := found[len(found)-1]
			list, file, line = split(o.Value), o.in, o.Line()
			break
		}
	}
	if !slices.Contains(list, "PciPassthroughFilter") {
		c.add(checkFilters, host.Fail, file, line, "PciPassthroughFilter is not enabled", "sends guests to hosts without a free device, where they fail", "add it: gpustack nova configure --role controller")
	}
	for _, f := range list {
		if !r.hasFilter(f) {
			c.add(checkFilters, host.Fail, file, line, fmt.Sprintf("%s has no %s", r, f), "does not start nova-scheduler", "take it out")
		}
	}
}

// bothSides compares aliases: API and compute read their own.
func (c *checker) bothSides() {
	for name, at := range c.aliases {
		for _, a := range at[1:] {
			// Of one side, several contents are alternatives; each needs its type told.
			if a.side.Name() == at[0].side.Name() && (a.object["device_type"] == nil || a.object["device_type"] != at[0].object["device_type"]) {
				c.add(checkAlias, host.Fail, a.file, a.line, fmt.Sprintf("alias %s is there again without the same device_type", name), allAliases, "write the same device_type into both")
			}
		}
		for _, s := range c.sides {
			mine := contents(at, s)
			switch {
			case len(mine) == 0:
				c.add(checkAlias, host.Fail, s.Name(), 0, fmt.Sprintf("alias %s is missing, which %s has", name, at[0].side.Name()), "refuses guests, resizes or migrations with it here: PciRequestAliasNotDefined", "run gpustack nova configure with the same devices here")
			case !sameContents(mine, contents(at, at[0].side)):
				c.add(checkAlias, host.Fail, where(at, s).file, where(at, s).line, fmt.Sprintf("alias %s is another one than in %s", name, at[0].side.Name()), "claims another kind of device than the scheduler has looked for", "run gpustack nova configure with the same devices on both")
			}
		}
	}
}

func contents(at []aliasAt, s Side) (mine []map[string]any) {
	for _, a := range at {
		if a.side.Name() == s.Name() {
			mine = append(mine, a.object)
		}
	}
	return mine
}

// where is the first place that a side has an alias at.
func where(at []aliasAt, s Side) aliasAt {
	return at[slices.IndexFunc(at, func(a aliasAt) bool { return a.side.Name() == s.Name() })]
}

func sameContents(a, b []map[string]any) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x map[string]any) bool {
		return !slices.ContainsFunc(b, func(y map[string]any) bool { return reflect.DeepEqual(x, y) })
	})
}

// offered holds aliases against specs, and both against hardware.
func (c *checker) offered() {
	for name, at := range c.aliases {
		if c.computes && !c.someSpecMatches(at) {
			c.add(checkAlias, host.Fail, at[0].file, at[0].line, fmt.Sprintf("no compute node offers what alias %s asks for", name), "finds no host: NoValidHost", "run gpustack nova configure --role compute with the same devices there")
		}
		if len(c.hosts) == 0 {
			continue
		}
		var types []string
		for _, h := range c.hosts {
			for i := range h.Devices {
				d := &h.Devices[i]
				if slices.ContainsFunc(at, func(a aliasAt) bool { return isProduct(a.object, d) }) && d.DeviceType != nil && !slices.Contains(types, string(*d.DeviceType)) {
					types = append(types, string(*d.DeviceType))
				}
			}
		}
		switch served := func(a aliasAt) bool {
			return slices.ContainsFunc(types, func(t string) bool { return takesType(a.object, t) })
		}; {
		case len(types) == 0:
			c.add(checkAlias, host.Fail, at[0].file, at[0].line, fmt.Sprintf("no host of the inventories has what alias %s asks for", name), "finds no host: NoValidHost", "gpustack host scan shows what is there")
		case !slices.ContainsFunc(at, served):
			c.add(checkAlias, host.Fail, at[0].file, at[0].line, fmt.Sprintf("the devices that alias %s asks for are of another type: %s", name, strings.Join(types, ", ")), "finds no host: NoValidHost", "write that device_type into the alias")
		}
	}
	if len(c.hosts) == 0 {
		return
	}
	for _, s := range c.specs {
		if s.object["address"] != nil || s.object["devname"] != nil || s.object["vendor_id"] == nil {
			continue
		}
		if !slices.ContainsFunc(c.hosts, func(h Host) bool {
			return slices.ContainsFunc(h.Devices, func(d pci.Device) bool { return isProduct(s.object, &d) })
		}) {
			c.add(checkDeviceSpec, host.Warn, s.file, s.line, "a device_spec names a product that no host of the inventories has", "offers nothing for it", "gpustack host scan --all shows what is there")
		}
	}
}

// machines returns the hosts that a compute node's files may belong to: the machine
// itself, else the inventory of its name, else all inventories. sure is false if there are
// several compute nodes and only a guess which inventory belongs to which.
func (c *checker) machines(s Side) (hosts []Host, sure bool) {
	if s.Devices != nil {
		return []Host{{Devices: s.Devices}}, true
	}
	names := s.hostNames()
	for _, h := range c.hosts {
		short, _, _ := strings.Cut(h.Name, ".")
		if slices.Contains(names, h.Name) || slices.Contains(names, short) {
			return []Host{h}, true
		}
	}
	computes := 0
	for _, other := range c.sides {
		if other.Role.computes() {
			computes++
		}
	}
	return c.hosts, computes == 1
}

// hostNames returns the names by which a side's files may name their host: the option
// host, and the names of the files and their folders.
func (s Side) hostNames() (names []string) {
	if found := s.find(conf.Name{Section: "DEFAULT", Key: "host"}); len(found) > 0 {
		return []string{found[len(found)-1].Value}
	}
	for _, f := range s.Files {
		names = append(names, strings.TrimSuffix(path.Base(f.Name), ".conf"), path.Base(path.Dir(f.Name)))
	}
	return names
}

// identical checks the specs by ids of a compute node for functions that remain with the
// host, on each machine that its files may belong to.
func (c *checker) identical(s Side) {
	machines, sure := c.machines(s)
	for _, at := range c.specs {
		if at.side.Name() != s.Name() || at.object["address"] != nil || at.object["devname"] != nil || at.object["vendor_id"] == nil {
			continue
		}
		for _, h := range machines {
			c.twins(at, h, s.Given, sure)
		}
	}
}

// twins finds functions that a spec offers although they remain with the host, beside
// identical ones that guests get: by given, or by the drivers that are bound.
func (c *checker) twins(s specAt, h Host, given []pci.Address, sure bool) {
	var held, kept []string
	for i := range h.Devices {
		d := &h.Devices[i]
		forGuests := d.Driver != nil && pci.LeavesAlone(*d.Driver)
		if given != nil {
			forGuests = slices.Contains(given, d.Address)
		}
		switch {
		case !isProduct(s.object, d), given == nil && d.Driver == nil, d.SRIOV.PF != nil && given != nil:
		case forGuests:
			held = append(held, d.Address.String())
		default:
			kept = append(kept, d.Address.String())
		}
	}
	if len(held) > 0 && len(kept) > 0 {
		host := "host " + h.Name
		if h.Name == "" {
			host = "this host"
		}
		status, seen := guess(fmt.Sprintf("a device_spec offers %s too, which %s keeps for itself", strings.Join(kept, ", "), host), s.file, h, sure)
		c.add(checkDeviceSpec, status, s.file, s.line, seen, "takes them from the host for a guest", "run gpustack nova configure --role compute there, with --by-address where the host is not prepared")
	}
}

// guess returns the status and the text of a failure that depends on which machine a file
// belongs to.
func guess(seen, file string, h Host, sure bool) (host.Status, string) {
	if sure {
		return host.Fail, seen
	}
	return host.Warn, fmt.Sprintf("if %s belongs to host %s: %s", file, h.Name, seen)
}

// someSpecMatches tells whether some compute node may offer what an alias asks for.
func (c *checker) someSpecMatches(at []aliasAt) bool {
	return slices.ContainsFunc(at, func(a aliasAt) bool {
		return slices.ContainsFunc(c.specs, func(s specAt) bool { return c.canMatch(s.object, a.object) })
	})
}

// canMatch tells whether a spec can offer what an alias asks for. One by address
// alone may.
func (c *checker) canMatch(spec, alias map[string]any) bool {
	for _, key := range []string{"vendor_id", "product_id"} {
		have, _ := spec[key].(string)
		want, _ := alias[key].(string)
		if have != "" && have != "*" && want != "" && !strings.EqualFold(strings.TrimPrefix(have, "0x"), want) {
			return false
		}
	}
	return true
}

func isProduct(object map[string]any, d *pci.Device) bool {
	id := func(key string) (pci.ID, bool) {
		s, _ := object[key].(string)
		n, err := pci.ParseID(s)
		return n, err == nil
	}
	vendor, ok := id("vendor_id")
	product, ok2 := id("product_id")
	return ok && ok2 && d.IsVendor(vendor) && d.ProductID != nil && *d.ProductID == product
}

// flavors holds what flavors ask for against the aliases, whose names are compared as
// they are written.
func (c *checker) flavors(flavors []Flavor) {
	for _, f := range flavors {
		request, err := ParseRequest(f.Request)
		for _, fault := range faults(err) {
			c.add(checkFlavors, host.Fail, "", 0, fmt.Sprintf("flavor %s: %v", f.Name, fault), "refuses guests of this flavor", "openstack flavor set --property pci_passthrough:alias=NAME:COUNT")
		}
		for _, w := range request {
			if c.aliases[w.Alias] == nil {
				c.add(checkFlavors, host.Fail, "", 0, fmt.Sprintf("flavor %s names alias %s, which no file defines", f.Name, w.Alias), "refuses guests of this flavor: PciRequestAliasNotDefined", "define it, or correct the flavor: names count as they are written")
			}
		}
	}
}

// faults returns the errors that were joined, one by one.
func faults(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, faults(e)...)
	}
	return all
}

// placement compares who reports devices with who asks for them.
func (c *checker) placement() {
	if c.release < r2023_1 {
		return
	}
	for _, controller := range c.sides {
		for _, compute := range c.sides {
			if !controller.Role.controls() || !compute.Role.computes() {
				continue
			}
			switch asks, reports := controller.isOn(pciInPlacement), compute.isOn(reportInPlacement); {
			case asks && !reports:
				c.add(checkPlacement, host.Fail, compute.Name(), 0, fmt.Sprintf("report_in_placement is not set, and %s has pci_in_placement", controller.Name()), "never chooses this host for a guest with a device", "run gpustack nova configure --role compute --placement here")
			case reports && !asks:
				c.add(checkPlacement, host.Warn, controller.Name(), 0, fmt.Sprintf("pci_in_placement is not set, and %s reports its devices", compute.Name()), "does not use what Placement knows", "run gpustack nova configure --role controller --placement here")
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.aliases)) {
		c.classes(name, c.aliases[name])
	}
}

// classes checks that some device has the resource class and the traits that an alias asks
// Placement for (nova/pci/request.py, nova/compute/pci_placement_translator.py): Placement
// has those of the first device_spec that matches the device.
func (c *checker) classes(name string, at []aliasAt) {
	asks := slices.ContainsFunc(c.sides, func(s Side) bool { return s.Role.controls() && s.isOn(pciInPlacement) })
	for _, a := range at {
		vendor, vendorErr := pci.ParseID(fmt.Sprint(a.object["vendor_id"]))
		product, productErr := pci.ParseID(fmt.Sprint(a.object["product_id"]))
		if !asks || !a.side.Role.controls() || vendorErr != nil || productErr != nil {
			continue
		}
		wanted := reported{device: &pci.Device{VendorID: &vendor, ProductID: &product}, spec: deviceSpec{object: a.object}}
		var offered []reported
		for _, s := range c.sides {
			if s.Role.computes() && s.isOn(reportInPlacement) {
				offered = append(offered, c.offeredBy(s, wanted.device)...)
			}
		}
		if len(offered) == 0 || slices.ContainsFunc(offered, func(o reported) bool { return o.class() == wanted.class() && wanted.traitsIn(o) }) {
			continue
		}
		have := offered[0]
		c.add(checkPlacement, host.Fail, a.file, a.line, fmt.Sprintf("alias %s asks for %s with traits %s, and %s:%d gives its devices %s with traits %s", name, wanted.class(), orNone(wanted.traits()),
			have.line.file, have.line.option.Line(), have.class(), orNone(have.traits())), "finds no host: NoValidHost", "write the same resource_class and traits into the alias and the device_spec")
	}
}

// offeredBy returns what Placement has of a product by the specs of a compute node: of its
// devices if they are known, else by each spec that may be the first to match one.
func (c *checker) offeredBy(s Side, product *pci.Device) (offered []reported) {
	lines := c.release.specLines(s.Files)
	vendor, id := product.VendorID.String(), product.ProductID.String()
	machines, _ := c.machines(s)
	for _, m := range machines {
		h := newHardware(m.Devices, s.Interfaces)
		for i := range h.devices {
			d := &h.devices[i]
			if d.VendorID == nil || d.ProductID == nil || *d.VendorID != *product.VendorID || *d.ProductID != *product.ProductID {
				continue
			}
			if r, ok := h.first(lines, d); ok && !truthy(r.spec.object["physical_network"]) {
				offered = append(offered, r)
			}
		}
	}
	if len(machines) > 0 {
		return offered
	}
	for _, l := range lines {
		for _, spec := range l.specs {
			if spec.faulty || !spec.matchesIDs(vendor, id) {
				continue
			}
			if !truthy(spec.object["physical_network"]) {
				offered = append(offered, reported{product, l, spec})
			}
			if spec.everywhere() {
				return offered
			}
		}
	}
	return offered
}

// traitsIn reports whether another function has all traits of this one.
func (r reported) traitsIn(other reported) bool {
	have := strings.Split(other.traits(), ",")
	for t := range strings.SplitSeq(r.traits(), ",") {
		if t != "" && !slices.Contains(have, t) {
			return false
		}
	}
	return true
}
