package novacheck

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/devspec"
	"gpustack/nova/pools"
)

// The names of the checks, by what they check. They are part of the output (docs/json.md).
const (
	checkOption     = "option" // options that the release ignores
	checkAlias      = "alias"
	checkDeviceSpec = "device_spec"
	checkFilters    = "filters"
	checkPlacement  = "placement"
	checkFlavors    = "flavors"
)

// Flavor is a flavor that requests devices.
type Flavor struct {
	Name    string
	Request string
}

// Run checks the configuration of controllers and compute nodes for consistency with each other,
// the release, the hardware of hosts and the flavors. hosts and flavors may be empty. The findings
// are sorted by file and line.
func Run(r nova.Release, sides []nova.Side, hosts []nova.Host, flavors []Flavor) []host.Finding {
	c := newChecker(r, sides, hosts)
	c.files()
	c.prepared()
	c.bothSides()
	c.names()
	c.offered()
	c.missing()
	c.placement()
	c.flavors(flavors)
	slices.SortStableFunc(c.findings, func(a, b host.Finding) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	var findings []host.Finding
	for _, f := range c.findings { // a file that two services read is judged for each
		if !contains(findings, f) {
			findings = append(findings, f)
		}
	}
	return findings
}

func contains(findings []host.Finding, f host.Finding) bool {
	return slices.ContainsFunc(findings, func(g host.Finding) bool { return reflect.DeepEqual(f, g) })
}

// files checks the files of each side by themselves, and with the hardware of its hosts.
func (c *checker) files() {
	for _, s := range c.sides {
		c.ignored(s)
		for _, f := range s.BooleanFaults(c.release) {
			c.stop(checkOption, f.At.File, f.At.Line(), fmt.Sprintf("%s = %s is not a boolean", f.At.Key, f.At.Value), f.Effect,
				host.Plain("write true or false alone: a comment behind a value is part of it"))
		}
		c.readAliases(s)
		if s.Role.Computes() {
			c.checkSpecs(s, c.readSpecs(s))
			c.keptFunctions(s)
			c.mediated(s)
		}
		if s.Role.Controls() {
			c.specLines(s.Scheduler()) // nova-scheduler parses them, and uses none
			c.filters(s)
		}
	}
}

func newChecker(r nova.Release, sides []nova.Side, hosts []nova.Host) *checker {
	c := &checker{release: r, hosts: hosts, aliases: map[string][]aliasAt{}}
	computes := 0
	for _, s := range sides {
		for _, view := range views(s) {
			view.number = len(c.sides)
			c.sides = append(c.sides, view)
			if view.Role.Computes() {
				computes++
			}
		}
	}
	c.computes = computes > 0
	for _, s := range c.sides {
		if s.Role.Computes() {
			c.addNodes(s, computes == 1)
		}
	}
	return c
}

// node is a host to which the files of a compute node may belong, and what they offer of its devices.
type node struct {
	nova.Host // without a name: this machine
	side      side
	hardware  devspec.Hardware
	offered   []pools.Function
	isSure    bool // false: there are several compute nodes, and nothing tells which files are whose
}

// addNodes adds the hosts to which the files of a compute node may belong: the machine itself, else
// the inventory with its name, else all inventories.
func (c *checker) addNodes(s side, isOnly bool) {
	hosts, names := c.hosts, s.HostNames()
	if len(s.Devices) > 0 {
		hosts, isOnly = []nova.Host{{Devices: s.Devices, Given: s.Given, Containers: s.Containers}}, true
	} else if i := slices.IndexFunc(hosts, func(h nova.Host) bool { return slices.ContainsFunc(names, h.Named) }); i >= 0 {
		hosts, isOnly = hosts[i:i+1], true
	}
	lines := devspec.Lines(s.Compute().Files, c.release.SpecNames())
	for _, h := range hosts {
		hardware := devspec.NewHardware(h.Devices, s.Interfaces)
		c.nodes = append(c.nodes, node{h, s, hardware, pools.Offered(hardware, lines), isOnly})
	}
}

// of returns the hosts to which the files of a side may belong.
func (c *checker) of(s side) (nodes []node) {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n node) bool { return n.side.number != s.number })
}

// side is a side as the services that need its options read it.
type side struct {
	nova.Side
	number  int
	service string // the only service that reads aliases there, if the side was split; "" otherwise
}

// views returns a side as nova-api and nova-compute read it: two sides if they read different
// files, which may then differ in their aliases like those of two machines.
func views(s nova.Side) []side {
	if s.Role != nova.All || slices.Equal(s.API().Files, s.Compute().Files) {
		return []side{{Side: s}}
	}
	controller, compute := s.Of(nova.Controller.Programs()...), s.Compute()
	controller.Role, compute.Role = nova.Controller, nova.Compute
	return []side{{Side: controller, service: "nova-api"}, {Side: compute, service: "nova-compute"}}
}

// reader returns the side as the service reads it that needs its aliases.
func (s side) reader() nova.Side {
	if s.Role == nova.Controller {
		return s.API()
	}
	return s.Compute()
}

// hasAlias reports whether files of the side have an alias, which nova configure keeps.
func (s side) hasAlias(r nova.Release) bool { return len(s.Find(r.AliasNames()...)) > 0 }

type checker struct {
	release  nova.Release
	sides    []side
	hosts    []nova.Host
	nodes    []node
	findings []host.Finding
	stops    []host.Finding // those with which a service does not start, or fails whatever it is asked
	aliases  map[string][]aliasAt
	specs    []specAt
	computes bool // there is a side of a compute node
}

// aliasAt is an alias with its place.
type aliasAt struct {
	side   side
	file   string
	line   int
	object map[string]any
}

// specAt is a device_spec with its place, and its number among those of its side.
type specAt struct {
	side side
	line devspec.Line
	spec devspec.Spec
	n    int
}

// specsOf returns the device specs of a side, in their order.
func (c *checker) specsOf(s side) []specAt {
	return slices.DeleteFunc(slices.Clone(c.specs), func(at specAt) bool { return at.side.number != s.number })
}

// add adds a finding. effect continues a sentence that begins with "Nova".
func (c *checker) add(check string, status host.Status, file string, line int, seen, effect string, remedy host.Text) {
	c.findings = append(c.findings, finding(check, status, file, line, seen, effect, remedy))
}

func finding(check string, status host.Status, file string, line int, seen, effect string, remedy host.Text) host.Finding {
	return host.Finding{Check: check, Status: status, File: file, Line: line, Seen: seen, Effect: "Nova " + effect, Remedy: remedy}
}

// stop adds a failure with which a service does not start, or fails whatever it is asked.
func (c *checker) stop(check, file string, line int, seen, effect string, remedy host.Text) {
	c.add(check, host.Fail, file, line, seen, effect, remedy)
	c.stops = append(c.stops, c.findings[len(c.findings)-1])
}

func (c *checker) ignored(s side) {
	for _, name := range c.release.Ignored() {
		for _, o := range s.Find(name) {
			remedy := host.Plain("remove the line")
			if s.hasAlias(c.release) { // without one there is nothing to configure
				remedy = host.Textf("remove it: %s", host.NewCommand("nova configure"))
			}
			if instead := c.release.Instead(name); instead != "" {
				remedy = host.Textf("use %s instead, or %s", instead, remedy)
			}
			c.add(checkOption, host.Fail, o.File, o.Line(), name.String()+" is not an option of "+c.release.String(), "silently ignores it", remedy)
		}
	}
}

// rejectsOwn is the effect of an alias with several definitions.
const rejectsOwn = "rejects requests for this alias, and from 31.3.1 on every alias of this file"

// allAliases is the effect of an alias that Nova rejects. nova-api (wsgi_app.py) and nova-compute
// (manager.py) read the aliases when they start since 2025.2 (ae064caf16).
func (c *checker) allAliases() string {
	if c.release >= nova.Flamingo {
		return "rejects every alias of this file, and its services do not start"
	}
	return "rejects every alias of this file; guests whose flavors request one fail"
}

func (c *checker) readAliases(s side) {
	if !s.Role.ReadsAliases(c.release) {
		return
	}
	for _, o := range s.reader().Find(c.release.AliasNames()...) {
		object, faults := nova.AliasFaults(o.Value, c.release)
		for _, f := range faults {
			c.stop(checkAlias, o.File, o.Line(), f.Seen, c.allAliases(), host.Plain(f.Remedy))
		}
		if object == nil {
			continue
		}
		name := strings.TrimSpace(fmt.Sprint(object["name"]))
		if name == "" {
			c.add(checkAlias, host.Warn, o.File, o.Line(), "an alias has a name of blanks", "accepts it, but no flavor can request it",
				host.Plain("write a name, or remove the line"))
			continue
		}
		for _, key := range []string{"vendor_id", "product_id"} {
			value, isSet := object[key]
			id, _ := value.(string)
			switch _, err := pci.ParseID(id); {
			case !isSet && c.release < nova.Flamingo && !isByClass(s.reader(), object, c.release):
				c.add(checkAlias, host.Warn, o.File, o.Line(), fmt.Sprintf("alias %s has no %s", name, key),
					"matches devices with any value, and rejects every alias of this file from 31.3.1 on", host.Plain("add vendor_id and product_id"))
			case err == nil && id != strings.ToLower(id) && c.release < nova.Rocky:
				c.add(checkAlias, host.Fail, o.File, o.Line(), fmt.Sprintf("alias %s: %s has upper-case letters", name, key),
					"compares it case-sensitively and finds no device", host.Plain("write it in lower case"))
			}
		}
		c.aliases[name] = append(c.aliases[name], aliasAt{s, o.File, o.Line(), object})
	}
	for _, conflict := range nova.ConflictsOf(s.reader(), c.release) {
		if conflict.IsOwn {
			c.add(checkAlias, host.Fail, conflict.At.File, conflict.At.Line(), conflict.Seen, rejectsOwn, host.Plain(conflict.Remedy))
		} else {
			c.stop(checkAlias, conflict.At.File, conflict.At.Line(), conflict.Seen, c.allAliases(), host.Plain(conflict.Remedy))
		}
	}
}

// isByClass reports whether a service requests the devices of an alias by a resource class, so that
// the alias needs no ids.
func isByClass(s nova.Side, alias map[string]any, r nova.Release) bool {
	return alias["resource_class"] != nil && r >= nova.Antelope && s.IsOn(nova.PCIInPlacement)
}

func (c *checker) filters(of side) {
	r, s := c.release, of.Scheduler()
	if len(s.Files) == 0 { // the files are those of another service's container
		return
	}
	filters, add := s.Filters(r), nova.Configure(nova.Controller)
	if !of.hasAlias(r) {
		add = add.Flag("inventory", "FILE")
	}
	if !slices.Contains(filters.Enabled, "PciPassthroughFilter") {
		c.add(checkFilters, host.Fail, filters.File, filters.Line, "PciPassthroughFilter is not enabled",
			"schedules guests to hosts without a free device, where they fail", host.Textf("add it: %s", add))
	}
	if !slices.Contains(filters.Enabled, "ComputeFilter") {
		c.add(checkFilters, host.Warn, filters.File, filters.Line, "ComputeFilter is not enabled", "also schedules guests to hosts whose nova-compute is down or disabled",
			host.Plain("add ComputeFilter to enabled_filters, and restart nova-scheduler"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.aliases)) {
		i := slices.IndexFunc(c.aliases[name], func(a aliasAt) bool { return a.object["numa_policy"] == "required" && a.side.number == of.number })
		if i >= 0 && !slices.Contains(filters.Enabled, "NUMATopologyFilter") {
			c.add(checkFilters, host.Warn, filters.File, filters.Line, fmt.Sprintf("NUMATopologyFilter is not enabled, and alias %s has numa_policy required", name),
				"also schedules guests with NUMA nodes to hosts whose free devices are on others, where they fail",
				host.Textf("add it: %s", add))
			break
		}
	}
	for _, f := range filters.Faults(r) {
		c.stop(checkFilters, filters.File, filters.Line, f.Seen, "does not start nova-scheduler", host.Plain(f.Remedy))
	}
}

// bothSides compares the aliases of controllers and compute nodes: nova-api and nova-compute each
// read their own.
func (c *checker) bothSides() {
	for _, name := range slices.Sorted(maps.Keys(c.aliases)) {
		at := c.aliases[name]
		model := c.model(at)
		theirs := contents(at, model.side)
		for _, s := range c.sides {
			mine := contents(at, s)
			needed := slices.DeleteFunc(slices.Clone(theirs), func(alias map[string]any) bool { return !c.needs(s, alias) })
			switch {
			case len(mine) == 0 && (len(needed) == 0 || len(contents(c.aliases[c.variant(name)], s)) > 0): // names reports the latter
			case len(mine) == 0:
				seen := fmt.Sprintf("alias %s is missing, which %s has", name, model.side.Name())
				if s.service != "" && model.side.Name() == s.Name() {
					seen = fmt.Sprintf("alias %s is missing in the files that %s reads: it is in %s", name, s.service, model.file)
				}
				effect := "rejects builds and resizes with this alias (PciRequestAliasNotDefined)"
				if !s.Role.Controls() {
					effect = "rejects resizes, migrations and evacuations to this host with this alias (PciRequestAliasNotDefined)"
				}
				c.add(checkAlias, host.Fail, s.Name(), 0, seen, effect, c.define(s.Role, at, model.side))
			case !nova.Within(needed, mine, c.known()) || !nova.Within(mine, theirs, c.known()):
				c.add(checkAlias, host.Fail, where(at, s).file, where(at, s).line, fmt.Sprintf("alias %s differs from the one in %s", name, model.name(s)),
					"claims a different device than the scheduler selected", c.define(s.Role, at, model.side))
			}
		}
	}
}

// model returns the definition of an alias with which the others are compared: a controller's, or
// one that only adds the device_type of physical functions, none of which an alias without it
// selects.
func (c *checker) model(at []aliasAt) aliasAt {
	model := at[0]
	if i := slices.IndexFunc(at, func(a aliasAt) bool { return a.side.Role.Controls() }); i >= 0 {
		model = at[i]
	}
	if model.object["device_type"] != nil || len(contents(at, model.side)) > 1 {
		return model
	}
	for _, a := range at {
		typed := maps.Clone(model.object)
		typed["device_type"] = a.object["device_type"]
		types := nova.TypesOfProduct(a.object, c.known())
		isOfDevices := len(types) == 0 || slices.ContainsFunc(types, func(t string) bool { return nova.TakesType(a.object, t) })
		if a.object["device_type"] == string(pci.TypePF) && len(contents(at, a.side)) == 1 && isOfDevices && nova.SameMeaning(typed, a.object, nil) {
			return a
		}
	}
	return model
}

func hostsOf(nodes []node) (hosts []nova.Host) {
	return host.Map(nodes, func(n node) nova.Host { return n.Host })
}

// needs reports whether a side needs a definition of an alias. nova-api needs all. nova-compute
// reads an alias only for the new flavor of a guest that moves to its host
// (nova/compute/resource_tracker.py, _move_claim, since Newton), which nova-scheduler has selected
// because it offers such devices.
func (c *checker) needs(s side, alias map[string]any) bool {
	if s.Role.Controls() {
		return true
	}
	nodes := c.of(s)
	if len(nodes) > 0 && nodes[0].isSure && allList(hostsOf(nodes), alias["vendor_id"]) {
		return c.release >= nova.Newton && slices.ContainsFunc(nodes, func(n node) bool {
			return slices.ContainsFunc(n.offered, func(f pools.Function) bool { return nova.IsProduct(alias, f.Device) })
		})
	}
	return c.release >= nova.Newton && slices.ContainsFunc(c.specsOf(s), func(at specAt) bool { return nova.CanMatch(at.spec.Object, alias) })
}

// name returns the name of the side of an alias, for messages about side s: the file if both have
// the same name.
func (a aliasAt) name(s side) string {
	if a.side.Name() == s.Name() {
		return a.file
	}
	return a.side.Name()
}

func contents(at []aliasAt, s side) (mine []map[string]any) {
	return host.Map(host.Filter(at, func(a aliasAt) bool { return a.side.number == s.number }),
		func(a aliasAt) map[string]any { return a.object })
}

// where returns the first place of an alias on a side.
func where(at []aliasAt, s side) aliasAt {
	return at[slices.IndexFunc(at, func(a aliasAt) bool { return a.side.number == s.number })]
}

// known returns the hosts whose hardware is known: those of the inventories, and this machine.
func (c *checker) known() []nova.Host {
	hosts := slices.Clone(c.hosts)
	if i := slices.IndexFunc(c.nodes, func(n node) bool { return n.Name == "" }); i >= 0 {
		hosts = append(hosts, c.nodes[i].Host)
	}
	return hosts
}

// allList reports whether the lists of all hosts have every product of a vendor. Those of
// [nova.ScopeGPUs] have NVIDIA's GPUs, and other functions only beside them.
func allList(hosts []nova.Host, vendor any) bool {
	return strings.EqualFold(fmt.Sprint(vendor), "10de") || !slices.ContainsFunc(hosts, func(h nova.Host) bool { return h.Scope == nova.ScopeGPUs })
}

// scanAll is the remedy where an inventory lists too little.
var scanAll = host.Textf("give inventories of %s", host.NewCommand("host scan").Flag("all").Flag("o", "json").Elsewhere())

// guess returns the status and the text of a failure: a warning if it is not sure that the file
// belongs to the host.
func (n node) guess(seen, file string) (host.Status, string) {
	if n.isSure {
		return host.Fail, seen
	}
	return host.Warn, fmt.Sprintf("if %s belongs to host %s: %s", file, n.Name, seen)
}

// someSpecMatches reports whether a device_spec may match a device of an alias.
func (c *checker) someSpecMatches(at []aliasAt) bool {
	return slices.ContainsFunc(at, func(a aliasAt) bool {
		return slices.ContainsFunc(c.specs, func(s specAt) bool { return nova.CanMatch(s.spec.Object, a.object) })
	})
}

// asksPlacement reports whether the services of a controller that need pci_in_placement have it, or
// one of them if the files are those of its container.
func asksPlacement(s side) bool {
	on := false
	for _, program := range nova.Controller.Programs() {
		if view := s.Of(program); len(view.Files) > 0 {
			if !view.IsOn(nova.PCIInPlacement) {
				return false
			}
			on = true
		}
	}
	return on
}

// placement checks that compute nodes report devices if controllers ask Placement for them, and
// vice versa.
func (c *checker) placement() {
	if c.release < nova.Antelope {
		return
	}
	for _, controller := range c.sides {
		for _, compute := range c.sides {
			if !controller.Role.Controls() || !compute.Role.Computes() {
				continue
			}
			switch asks, reports := asksPlacement(controller), compute.Compute().IsOn(nova.ReportInPlacement); {
			case asks && !reports:
				c.add(checkPlacement, host.Fail, compute.Name(), 0, fmt.Sprintf("report_in_placement is not set, but %s sets pci_in_placement",
					controller.Name()), "never schedules guests with devices to this host",
					host.Textf("run %s here", nova.Configure(nova.Compute).Flag("placement")))
			case reports && !asks:
				c.add(checkPlacement, host.Warn, controller.Name(), 0, fmt.Sprintf("pci_in_placement is not set, but %s reports its devices", compute.Name()),
					"schedules devices without Placement", host.Textf("run %s here", nova.Configure(nova.Controller).Flag("placement")))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.aliases)) {
		c.classes(name, c.aliases[name])
	}
}

// classes checks that some device has the resource class and the traits that an alias requires
// (nova/pci/request.py, nova/compute/pci_placement_translator.py): Placement has those of the first
// device_spec that matches the device.
func (c *checker) classes(name string, at []aliasAt) {
	asks := slices.ContainsFunc(c.sides, func(s side) bool { return s.Role.Controls() && asksPlacement(s) })
	reports := slices.ContainsFunc(c.sides, reportsDevices)
	for _, a := range at {
		vendor, vendorErr := pci.ParseID(fmt.Sprint(a.object["vendor_id"]))
		product, productErr := pci.ParseID(fmt.Sprint(a.object["product_id"]))
		isByClass := !nova.HasIDs(a.object) && a.object["resource_class"] != nil
		if !asks || !reports || !a.side.Role.Controls() || !isByClass && (vendorErr != nil || productErr != nil) {
			continue
		}
		wanted := devspec.Reported{Device: &pci.Device{VendorID: &vendor, ProductID: &product}, Spec: devspec.Spec{Object: a.object}}
		offered := c.reported(wanted.Device, isByClass)
		var ports []devspec.Reported // of Neutron, for whose devices nova-compute reports nothing
		offered = slices.DeleteFunc(offered, func(o devspec.Reported) bool {
			if o.Spec.IsNetwork() {
				ports = append(ports, o)
			}
			return o.Spec.IsNetwork()
		})
		requires := fmt.Sprintf("alias %s requires resource class %s and traits %s", name, wanted.Class(), devspec.OrNone(wanted.Traits()))
		const sameClass = "set the same resource_class and traits in the alias and the device_spec"
		switch {
		case slices.ContainsFunc(offered, func(o devspec.Reported) bool {
			return o.Class() == wanted.Class() && wanted.HasTraits(o, c.release.TraitsBeside(o.Spec))
		}):
		case isByClass:
			c.add(checkPlacement, host.Fail, a.file, a.line, requires+", which no device_spec of a compute node gives its devices",
				"finds no host (NoValidHost)", host.Plain(sameClass))
		case len(offered) > 0:
			have := offered[0]
			c.add(checkPlacement, host.Fail, a.file, a.line, fmt.Sprintf("%s, but %s gives its devices resource class %s and traits %s",
				requires, have.Line.Where(),
				have.Class(), devspec.OrNone(have.Traits())), "finds no host (NoValidHost)", host.Plain(sameClass))
		case len(ports) > 0:
			c.add(checkPlacement, host.Fail, a.file, a.line,
				fmt.Sprintf("alias %s can be met only by devices of %s, which have a physical_network", name, ports[0].Line.Where()),
				"never reports such devices to Placement, and finds no host (NoValidHost)",
				host.Textf("offer the devices without physical_network: %s; or request them by ports of Neutron, without the alias",
					host.NewCommand("nova configure").Flag("hca", "ADDRESS=alias:"+name)))
		}
	}
}

// reportsDevices reports whether nova-compute of a side reports its devices to Placement.
func reportsDevices(s side) bool {
	return s.Role.Computes() && s.Compute().IsOn(nova.ReportInPlacement)
}

// reported returns what compute nodes offer of a product, or of all products, where nova-compute
// reports devices to Placement: the devices that are known, and unless these are all, for each spec
// that may be the first to match one.
func (c *checker) reported(product *pci.Device, isAny bool) (offered []devspec.Reported) {
	for _, s := range c.sides {
		if !reportsDevices(s) {
			continue
		}
		nodes := c.of(s)
		for _, n := range nodes {
			for _, f := range n.offered {
				if isAny || f.Device.IsVendor(*product.VendorID) && f.Device.ProductID != nil && *f.Device.ProductID == *product.ProductID {
					offered = append(offered, f.Reported)
				}
			}
		}
		if len(nodes) > 0 && (!isAny || allList(hostsOf(nodes), nil)) {
			continue
		}
		isShadowed := false
		for _, l := range devspec.Lines(s.Compute().Files, c.release.SpecNames()) {
			for _, spec := range l.Specs {
				if !isShadowed && !spec.Faulty && (isAny || spec.MatchesIDs(product.VendorID.String(), product.ProductID.String())) {
					offered = append(offered, devspec.Reported{Device: product, Line: l, Spec: spec})
					isShadowed = spec.Everywhere() && !isAny
				}
			}
		}
	}
	return offered
}
