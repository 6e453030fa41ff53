package explain

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
	"gpustack/nova/conf"
	"gpustack/nova/pools"
)

// aliases are the aliases as the services that need them read them.
type aliases struct {
	defined map[string][]map[string]any // by name; several definitions are alternatives
	where   map[string]string           // the file and line of the first definition
	known   bool                        // nova.conf of a controller was given
	// assumed are the aliases that no file defines: they stand for the product that host scan gives
	// that name.
	assumed map[string]bool
	faults  []Judged // with which nova-api rejects requests
	release nova.Release
	// inPlacement is pci_in_placement of nova-scheduler.
	inPlacement bool
}

// rejected is the reason for the aliases of a file of which Nova accepts none.
const rejected = "is not offered any alias: nova-api rejects those of a file"

func numaPolicy(alias map[string]any) string {
	policy, _ := alias["numa_policy"].(string)
	return cmp.Or(policy, "legacy")
}

// definitions returns the aliases of one side, with the faults for which Nova rejects them all, or
// requests for those that the flavor asks for.
func definitions(s nova.Side, r nova.Release, asked nova.Request) (defined map[string][]map[string]any, where map[string]string, faults []Judged) {
	defined, where = map[string][]map[string]any{}, map[string]string{}
	for _, o := range s.Find(r.AliasNames()...) {
		object, wrong := nova.AliasFaults(o.Value, r)
		at := fmt.Sprintf("%s:%d", o.File, o.Line())
		for _, f := range wrong {
			faults = append(faults, Judged{Link: Alias, Status: Fail, Reason: rejected,
				Seen: f.Seen + ": Nova rejects every alias of the file", From: at, Remedy: host.Plain(f.Remedy)})
		}
		if object == nil {
			continue
		}
		name := strings.TrimSpace(fmt.Sprint(object["name"]))
		defined[name] = append(defined[name], object)
		if where[name] == "" {
			where[name] = at
		}
	}
	for _, c := range nova.ConflictsOf(s, r) {
		fault := Judged{Link: Alias, Status: Fail, Reason: rejected, Seen: c.Seen + ": Nova rejects every alias of the file",
			From: fmt.Sprintf("%s:%d", c.At.File, c.At.Line()), Remedy: host.Plain(c.Remedy)}
		switch isAsked := slices.ContainsFunc(asked, func(w nova.Wanted) bool { return w.Alias == c.Name }); {
		case c.IsOwn && !isAsked:
			continue
		case c.IsOwn:
			fault.Reason, fault.Seen = "cannot be asked for "+c.Name, c.Seen+": Nova rejects requests for it"
		}
		faults = append(faults, fault)
	}
	return defined, where, faults
}

// readAliases returns the aliases of the controllers. Without a controller's file they are those of
// the compute nodes, and without any file those that devices have by their products.
func (f Facts) readAliases(r nova.Request) aliases {
	a := aliases{defined: map[string][]map[string]any{}, where: map[string]string{}, assumed: map[string]bool{}, release: f.Release,
		inPlacement: f.isOn(nova.Side.Scheduler, nova.PCIInPlacement)}
	for _, controls := range []bool{true, false} {
		for _, s := range f.Sides {
			if s.Role.Controls() != controls || len(a.where) > 0 && !controls {
				continue
			}
			view := s.API()
			if !controls {
				view = s.Compute()
			}
			a.known = a.known || controls
			defined, where, faults := definitions(view, f.Release, r)
			if controls {
				a.faults = append(a.faults, faults...)
				a.faults = append(a.faults, f.missing(r, defined, view)...)
			}
			for name, objects := range defined {
				if a.where[name] == "" {
					a.defined[name], a.where[name] = objects, where[name]
				} else if controls && !reflect.DeepEqual(objects, a.defined[name]) {
					a.faults = append(a.faults, f.differs(r, name, a.where[name], where[name])...)
				}
			}
		}
		if a.known {
			return a
		}
	}
	for _, w := range r {
		if len(a.defined[w.Alias]) == 0 {
			a.assume(w.Alias, f.Hosts)
		}
	}
	return a
}

// missing returns a fault for each alias that nova-api on one machine does not have. An alias that
// differs in case only is mistyped in the flavor.
func (f Facts) missing(r nova.Request, defined map[string][]map[string]any, s nova.Side) (faults []Judged) {
	for _, w := range r {
		if len(defined[w.Alias]) > 0 {
			continue
		}
		seen := fmt.Sprintf("alias %s is not defined: nova-api rejects the flavor (PciRequestAliasNotDefined)", w.Alias)
		remedy := host.Textf("define it on every controller: %s",
			host.NewCommand("nova configure").Flag("role", "controller").Flag("alias", w.Alias+"=VENDOR:PRODUCT").Elsewhere())
		for _, name := range slices.Sorted(maps.Keys(defined)) {
			if strings.EqualFold(name, w.Alias) {
				seen = fmt.Sprintf("alias %s is not defined, only %s: names are case-sensitive, and nova-api rejects the flavor (PciRequestAliasNotDefined)",
					w.Alias, name)
				remedy = host.Textf("openstack flavor set --property %s=%s %s", nova.RequestKey, r.Renamed(w.Alias, name), f.Flavor.Name)
			}
		}
		for _, ignored := range f.Release.Ignored() {
			for _, o := range s.Find(ignored) {
				if ignored.Key == "alias" && slices.ContainsFunc(conf.ParseObjects(o.Value), func(a map[string]any) bool { return a["name"] == w.Alias }) {
					seen = fmt.Sprintf("alias %s is not defined: %s (%s:%d) is not an option of %s", w.Alias, ignored, o.File, o.Line(), f.Release)
					remedy = host.Textf("use %s instead of %s on every controller, and restart nova-api", f.Release.Instead(ignored), ignored)
				}
			}
		}
		faults = append(faults, Judged{Link: Alias, Status: Fail, Reason: "has no alias " + w.Alias, Seen: seen, From: s.Name(), Remedy: remedy})
	}
	return faults
}

// differs returns the fault of an alias of the request that two controllers define differently.
func (f Facts) differs(r nova.Request, name, first, second string) []Judged {
	if !slices.ContainsFunc(r, func(w nova.Wanted) bool { return w.Alias == name }) {
		return nil
	}
	return []Judged{{Link: Alias, Status: Fail, Reason: "has two definitions of alias " + name,
		Seen: fmt.Sprintf("alias %s differs from the one in %s: the devices that a guest gets depend on the controller", name, first), From: second,
		Remedy: host.Textf("run %s with the same devices on both",
			host.NewCommand("nova configure").Flag("role", "controller").Elsewhere())}}
}

// assume gives an alias that no file defines the product that has its name.
func (a aliases) assume(name string, hosts []Host) {
	add := func(vendor, product string) {
		object := map[string]any{"name": name, "vendor_id": vendor, "product_id": product}
		if !slices.ContainsFunc(a.defined[name], func(o map[string]any) bool { return reflect.DeepEqual(o, object) }) {
			a.defined[name], a.assumed[name] = append(a.defined[name], object), true
		}
	}
	for _, h := range hosts {
		if h.Devices != nil {
			for i := range h.Devices.Devices {
				if d := &h.Devices.Devices[i]; nova.AliasName(d) == name {
					add(d.VendorID.String(), d.ProductID.String())
				}
			}
		}
		if h.Stock == nil {
			continue
		}
		for _, r := range h.Stock.Rows {
			vendor, vendorErr := pci.ParseID(r.Vendor)
			id, err := pci.ParseID(r.Product)
			if vendorErr == nil && err == nil && pci.AliasName(vendor, id, "") == name {
				add(r.Vendor, r.Product)
			}
		}
	}
}

// judge judges the aliases of a request for all hosts.
func (a aliases) judge(r nova.Request) Judged {
	if len(a.faults) > 0 {
		return a.faults[0]
	}
	var seen, from []string
	for _, w := range r {
		from = append(from, a.where[w.Alias])
		switch {
		case len(a.defined[w.Alias]) > 1 && a.inPlacement && a.known && a.release >= nova.Antelope:
			// nova/objects/request_spec.py, generate_request_groups_from_pci_requests
			return Judged{Link: Alias, Status: Fail, Reason: rejected, From: a.where[w.Alias],
				Seen:   fmt.Sprintf("alias %s is defined twice, which pci_in_placement does not allow: Nova rejects requests for it", w.Alias),
				Remedy: host.Textf("give the devices of both one resource_class, and define alias %s once with it", w.Alias)}
		case len(a.defined[w.Alias]) == 0:
			return Judged{Link: Alias, Status: NotChecked, Seen: fmt.Sprintf("no file defines alias %s, and no device that was read has that name", w.Alias),
				Remedy: host.Plain(giveConf)}
		case !a.known && a.assumed[w.Alias]:
			return Judged{Link: Alias, Status: NotChecked, Seen: fmt.Sprintf("alias %s is assumed to be %s", w.Alias, a.products(w.Alias)), Remedy: host.Plain(giveConf)}
		case !a.known:
			return Judged{Link: Alias, Status: NotChecked, Seen: fmt.Sprintf("alias %s is %s on a compute node; nova-api reads that of the controllers", w.Alias,
				a.products(w.Alias)), From: a.where[w.Alias], Remedy: host.Plain(giveConf)}
		}
		seen = append(seen, fmt.Sprintf("alias %s is %s", w.Alias, a.products(w.Alias)))
	}
	if wide := a.anyProduct(r); wide != nil {
		return *wide
	}
	slices.Sort(from)
	return Judged{Link: Alias, Status: Pass, Seen: strings.Join(seen, ", "), From: strings.Join(slices.Compact(from), ", ")}
}

// anyProduct warns of an alias without ids, which selects devices of any product.
func (a aliases) anyProduct(r nova.Request) *Judged {
	for _, w := range r {
		if slices.ContainsFunc(a.defined[w.Alias], a.isAny) {
			return &Judged{Link: Alias, Status: Warn, Reason: "offers devices of any product as " + w.Alias,
				Seen: fmt.Sprintf("alias %s lacks vendor_id or product_id: it selects devices of any product", w.Alias),
				From: a.where[w.Alias], Remedy: host.Textf("add both: %s",
					host.NewCommand("nova configure").Flag("role", "controller").Flag("alias", w.Alias+"=VENDOR:PRODUCT").Elsewhere())}
		}
	}
	return nil
}

const giveConf = "give the controllers' files with --conf controller=FILE"

// products returns what an alias selects, for messages.
func (a aliases) products(name string) string {
	var words []string
	for _, o := range a.defined[name] {
		word := ids(o)
		if word == "" {
			word = reportedAs(o).Class()
		}
		if kind, ok := o["device_type"].(string); ok {
			word += " " + kind
		}
		words = append(words, word)
	}
	return strings.Join(words, " or ")
}

func ids(alias map[string]any) string {
	vendor, _ := alias["vendor_id"].(string)
	product, _ := alias["product_id"].(string)
	if vendor == "" || product == "" {
		return ""
	}
	return vendor + ":" + product
}

// isByClass reports whether the devices of an alias are those of a resource class: Nova compares it
// with pci_in_placement only.
func (a aliases) isByClass(alias map[string]any) bool {
	return ids(alias) == "" && alias["resource_class"] != nil && a.inPlacement
}

// share returns what an alias gets of the devices of a host, as [pools.Request.Judge] does.
func (a aliases) share(name string, present, offered []pools.Pool, isKnown bool) pools.Share {
	return pools.Request{Count: 1, Specs: a.specs(name)}.Judge(present, offered, isKnown, a.release)
}

// why returns why an alias does not select a device by its ids and its type. Tags do not count.
func (a aliases) why(name string, p pools.Pool) pools.Why {
	return a.share(name, []pools.Pool{p}, nil, false).Why
}

// specs returns the definitions of an alias as pools are compared with them. An alias that is
// assumed selects devices of each type.
func (a aliases) specs(name string) (specs []pools.Spec) {
	for _, o := range a.defined[name] {
		spec := pools.NewSpec(o)
		if a.isByClass(o) {
			spec[pools.ClassTag] = reportedAs(o).Class()
		}
		if !a.assumed[name] {
			specs = append(specs, spec)
			continue
		}
		for _, kind := range []pci.DeviceType{pci.TypePCI, pci.TypePF, pci.TypeVF} {
			typed := maps.Clone(spec)
			typed["dev_type"] = string(kind)
			specs = append(specs, typed)
		}
	}
	return specs
}

// requests returns the request of the flavor as nova-api translates it (nova/pci/request.py,
// _translate_alias_to_requests). policy replaces that of each alias, unless it is "".
func (a aliases) requests(r nova.Request, policy string) (list []pools.Request) {
	for _, w := range r {
		one := pools.Request{Alias: w.Alias, Count: w.Count, Policy: policy, Specs: a.specs(w.Alias)}
		if defined := a.defined[w.Alias]; policy == "" && len(defined) > 0 {
			one.Policy = numaPolicy(defined[0])
		}
		list = append(list, one)
	}
	return list
}

// tagsOf returns the tags that an alias requires, for messages.
func (a aliases) tagsOf(name string) string {
	var words []string
	for _, spec := range a.specs(name) {
		for _, key := range []string{"live_migratable", "capability_type"} {
			if value, there := spec[key]; there && !slices.Contains(words, key+"="+value) {
				words = append(words, key+"="+value)
			}
		}
	}
	if len(words) == 0 {
		return "no remote_managed" // nova/pci/stats.py, _filter_pools_for_unrequested_remote_managed_devices
	}
	return strings.Join(words, ", ")
}

// byClassOnly reports whether a request has an alias without ids, whose devices no row shows.
func (a aliases) byClassOnly(r nova.Request) string {
	for _, w := range r {
		for _, o := range a.defined[w.Alias] {
			if a.isByClass(o) {
				return w.Alias
			}
		}
	}
	return ""
}

// onCompute compares the aliases of a compute node with those of the controllers. nova-compute
// needs an alias only for guests that move to its host (nova/compute/resource_tracker.py,
// _move_claim), so that builds do not fail without it. hosts are the node's inventory, if it is known.
func (a aliases) onCompute(r nova.Request, s nova.Side, release nova.Release, hosts ...nova.Host) *Judged {
	if !a.known || release < nova.Newton {
		return nil
	}
	view := s.Compute()
	defined, where, faults := definitions(view, release, r)
	if len(faults) > 0 {
		faults[0].Status = Warn
		if release >= nova.Epoxy { // validated at the start of nova-compute (ae064caf16; 2025.1: b5dffede7d)
			faults[0].Status = Fail
			faults[0].Reason = "has an alias with which nova-compute does not start"
		}
		return &faults[0]
	}
	for _, w := range r {
		mine, theirs := defined[w.Alias], a.defined[w.Alias]
		switch {
		case len(mine) == 0:
			return &Judged{Link: Alias, Status: Warn, Reason: "has no alias " + w.Alias,
				Seen: fmt.Sprintf("alias %s is missing: builds work, but nova-compute rejects resizes, migrations and evacuations to this host", w.Alias),
				From: view.Name(), Remedy: host.Textf("run %s with the same devices",
					host.NewCommand("nova configure").Flag("role", "compute").Elsewhere())}
		case !nova.Within(mine, theirs, hosts) || !nova.Within(theirs, mine, hosts):
			return &Judged{Link: Alias, Status: Warn, Reason: "has another alias " + w.Alias,
				Seen: fmt.Sprintf("alias %s differs from the one in %s: builds work, but guests that move to this host claim other devices than nova-scheduler selected",
					w.Alias, a.where[w.Alias]),
				From: where[w.Alias], Remedy: host.Textf("run %s with the same devices on both",
					host.NewCommand("nova configure").Elsewhere())}
		}
	}
	return nil
}

// isOn reports whether a controller turns on a boolean option.
func (f Facts) isOn(program func(nova.Side) nova.Side, n conf.Name) bool {
	return slices.ContainsFunc(f.Sides, func(s nova.Side) bool { return s.Role.Controls() && program(s).IsOn(n) })
}

// remedy returns how an alias gets devices of a host for a reason for which it gets none, with the
// role of the service that has to change first.
func (a aliases) remedy(alias string, s pools.Share, role nova.Role) host.Text {
	return s.Why.Remedy(host.NewCommand("nova configure").Flag("role", string(role)).Elsewhere(), a.defined[alias], s.Types, a.where[alias])
}
