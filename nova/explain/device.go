package explain

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
	"gpustack/nova/pools"
)

// short is the first alias of which there are too few devices.
type short struct {
	alias      string
	have, want int
}

// reason is how a summary says it.
func (s short) reason() string {
	if s.have == 0 {
		return "has no free " + s.alias
	}
	return fmt.Sprintf("has %d free %s of %d", s.have, s.alias, s.want)
}

// lacksKind is lacks for devices whose tags are unknown or do not count.
func (j *judge) lacksKind(list []pools.Pool) *short {
	k := *j
	k.requests = nil
	k.requests = append(k.requests, host.Map(j.requests, pools.Request.WithoutTags)...)
	untagged := host.Map(list, pools.Pool.WithoutTags)
	return k.lacks(untagged)
}

// lacks returns the first alias of the request of which there are too few devices, nil for none.
// NUMA nodes do not count.
func (j *judge) lacks(list []pools.Pool) *short {
	d := pools.Devices{Release: j.facts.Release, Pools: list}
	if lack := d.Supports(j.requests, nil); lack != nil {
		return &short{lack.Alias, lack.Have, lack.Count}
	}
	return nil
}

// startsNot is the reason for a device_spec that nova-compute rejects.
const startsNot = "has a device_spec with which nova-compute does not start"

// deviceSpec judges the device_spec of a host, and the devices that it offers when all are free. It
// returns these devices, nil if they are unknown. isPending is true for a failure that nova-compute
// has only after its next start, when it reads its file and the devices.
func (j *judge) deviceSpec(h Host) (result Judged, offered []pools.Pool, isPending bool) {
	result = Judged{Link: DeviceSpec}
	side, isSure := j.side(h)
	var lines []devspec.Line
	var from []string
	if side != nil {
		view := side.Compute()
		lines = devspec.Lines(view.Files, j.facts.Release.SpecNames())
		from = append(from, view.Name())
		for _, l := range lines {
			for _, f := range nova.SpecFaults(l, j.facts.Release) {
				if !f.IsTolerated {
					result.fail(startsNot, f.Seen, host.Plain(f.Remedy))
					result.From = l.Where()
					return result, nil, true
				}
			}
			for _, f := range nova.TagFaults(l, view.IsOn(nova.ReportInPlacement), j.facts.Release) {
				result.fail("has a device_spec with which nova-compute never reports devices", f.Seen, host.Plain(f.Remedy))
				result.From = l.Where()
				return result, nil, true
			}
		}
	}
	if h.Devices != nil {
		from = append(from, "inventory of "+h.Devices.Name)
	}
	result.From = strings.Join(from, ", ")
	if name := j.aliases.unresolved(j.request); name != "" {
		result.notChecked("the devices of alias "+name+" are unknown", host.Plain(giveConf))
		return result, nil, false
	}
	switch {
	case side == nil && h.Devices == nil:
		result.notChecked(j.unmatched())
		return result, nil, false
	case h.Devices == nil:
		j.specsOnly(&result, lines, isSure)
		return result, nil, true
	}
	present := pools.Every(h.Devices.Devices)
	if side == nil {
		if j.judgeDevices(&result, h, present, nil) {
			result.notChecked(result.Seen+"; device_spec is unknown", host.Plain("give the host's file with --conf compute=FILE"))
		}
		return result, nil, true
	}
	functions := pools.Offered(devspec.NewHardware(h.Devices.Devices, side.Interfaces), lines)
	offered = pools.Of(functions)
	var unbound []string
	bound := slices.DeleteFunc(functions, func(f pools.Function) bool {
		managed, err := devspec.Bool(f.Spec.Object["managed"])
		isUnbound := err == nil && !managed && f.Spec.Object["managed"] != nil && j.facts.Release >= nova.Epoxy &&
			(f.Device.Driver == nil || !pci.LeavesAlone(*f.Device.Driver))
		if isUnbound {
			unbound = append(unbound, fmt.Sprintf("%s has %s", f.Device.Address, driver(f.Device)))
		}
		return isUnbound
	})
	if !j.judgeDevices(&result, h, present, offered) {
		return result, offered, true
	}
	result.Status = Pass
	if j.lacks(pools.Of(bound)) != nil {
		result.fail("has devices without vfio-pci, with managed=no", "device_spec has managed=no, and "+strings.Join(unbound, ", "),
			host.Textf("on %s: %s, and reboot; or %s", h.Name,
				host.NewCommand("host prepare").Elsewhere(), host.NewCommand("host bind").Elsewhere()))
	}
	return result, offered, false
}

func driver(d *pci.Device) string {
	if d.Driver == nil {
		return "no driver"
	}
	return "driver " + *d.Driver
}

// judgeDevices judges the devices of an inventory: those that the host has, and those that its
// device_spec offers; nil if that is unknown. It returns whether there are enough.
func (j *judge) judgeDevices(result *Judged, h Host, present, offered []pools.Pool) bool {
	of, isKnown := offered, offered != nil
	if !isKnown {
		of = present
	}
	lack := j.lacksKind(of)
	if tagged := j.lacks(of); lack == nil && isKnown && tagged != nil {
		result.fail("offers no "+tagged.alias+" with the tags of the alias", fmt.Sprintf("alias %s requires devices with %s, which device_spec does not give them",
			tagged.alias, j.aliases.tagsOf(tagged.alias)), j.aliases.remedy(tagged.alias, pools.Share{Why: pools.OtherTags}, nova.Compute))
		return false
	}
	if lack == nil {
		result.Seen = fmt.Sprintf("%s: %d requested, %d offered", j.request, j.request.Devices(), j.count(of))
		if !isKnown {
			result.Seen = fmt.Sprintf("the host has %d devices of %s", j.count(of), j.request)
		}
		return true
	}
	named := fmt.Sprintf("%s (%s)", lack.alias, j.aliases.products(lack.alias))
	all := j.aliases.share(lack.alias, present, nil, false)
	share := j.aliases.share(lack.alias, present, offered, isKnown)
	isByClass := j.aliases.isByClass(j.aliases.defined[lack.alias][0])
	switch {
	case share.Why == pools.Absent && isByClass && !isKnown:
		result.notChecked("alias "+lack.alias+" has a resource class only, which a device_spec defines", host.Plain("give the host's file with --conf compute=FILE"))
	case share.Why == pools.Absent && isByClass:
		result.fail("has no device_spec with the resource class of "+lack.alias, "no device_spec gives a device the class "+j.aliases.products(lack.alias),
			host.Textf("on %s: %s with resource_class in --alias", h.Name, host.NewCommand("nova configure").Flag("role", "compute").Elsewhere()))
	case share.Why == pools.Absent && h.Devices.Scope == nova.ScopeGPUs && !j.isNVIDIA(lack.alias):
		result.notChecked("the inventory lists GPUs only, and alias "+lack.alias+" is for other devices",
			host.Textf("give the output of %s", host.NewCommand("host scan").Flag("all").Flag("o", "json").Elsewhere()))
	case share.Why == pools.Absent:
		result.fail("has no "+lack.alias, "the host has no "+named,
			host.Textf("choose another host, or install the device: %s lists what a host has", host.NewCommand("host scan").Elsewhere()))
	case share.Why == pools.OtherType:
		result.fail("has no "+lack.alias+" of the alias's device_type",
			fmt.Sprintf("alias %s selects %s, but the devices are %s", lack.alias, nova.SelectedTypes(j.aliases.defined[lack.alias][0]),
				strings.Join(share.Types, " and ")),
			j.aliases.remedy(lack.alias, share, nova.Controller))
	case share.Why == pools.NotOffered:
		result.fail("offers no "+lack.alias, fmt.Sprintf("the host has %d %s, but no device_spec matches one", share.Has, named),
			host.Textf("on %s: %s, and restart nova-compute", h.Name, j.aliases.remedy(lack.alias, share, nova.Compute)))
	case isKnown && share.Typed < all.Typed:
		result.fail(fmt.Sprintf("offers %d %s of %d", share.Typed, lack.alias, lack.want),
			fmt.Sprintf("the host has %d %s, but device_spec offers %d, and the flavor requests %d", share.Has, named, share.Typed, lack.want),
			host.Textf("on %s: %s, and restart nova-compute", h.Name, j.aliases.remedy(lack.alias, pools.Share{Why: pools.NotOffered,
				Types: all.Types}, nova.Compute)))
	default:
		result.fail(fmt.Sprintf("has only %d %s of %d", lack.have, lack.alias, lack.want),
			fmt.Sprintf("the host has %d %s, and the flavor requests %d", lack.have, named, lack.want),
			host.Textf("use a flavor with fewer devices: %s",
				host.NewCommand("flavor create").Arg(fmt.Sprintf("%s:%d", lack.alias, max(lack.have, 1)))))
	}
	return false
}

// isNVIDIA reports whether an alias is for NVIDIA's devices, all GPUs of which an inventory lists.
func (j *judge) isNVIDIA(alias string) bool {
	return slices.ContainsFunc(j.aliases.defined[alias], func(o map[string]any) bool {
		return strings.EqualFold(fmt.Sprint(o["vendor_id"]), pci.NVIDIA.String())
	})
}

// count returns how many devices of pools some alias of the request selects.
func (j *judge) count(list []pools.Pool) (n int) {
	for _, p := range list {
		if j.selects(p) {
			n += p.Count
		}
	}
	return n
}

// selects reports whether some alias of the request selects devices of a pool.
func (j *judge) selects(p pools.Pool) bool {
	return slices.ContainsFunc(j.request, func(w nova.Wanted) bool { return j.aliases.why(w.Alias, p) == pools.Gets })
}

// specsOnly judges device_spec without the hardware: whether a spec is for the ids of each alias, and
// gives devices the tags that it requires.
func (j *judge) specsOnly(result *Judged, lines []devspec.Line, isSure bool) {
	for _, w := range j.request {
		isMatched, isTagged := false, false
		for _, l := range lines {
			for _, s := range l.Specs {
				for _, o := range j.aliases.defined[w.Alias] {
					vendor, _ := o["vendor_id"].(string)
					product, _ := o["product_id"].(string)
					byClass := j.aliases.isByClass(o) && (devspec.Reported{Device: &pci.Device{}, Spec: s}).Class() == reportedAs(o).Class()
					if s.Faulty || !byClass && (ids(o) == "" || !s.MatchesIDs(strings.ToLower(vendor), strings.ToLower(product))) {
						continue
					}
					isMatched = true
					p := pools.New(&pci.Device{}, s.Object)
					p.Vendor, p.Product = vendor, product
					for _, kind := range []pci.DeviceType{pci.TypePCI, pci.TypePF, pci.TypeVF} {
						p.Type = string(kind)
						isTagged = isTagged || byClass || pools.Devices{Release: j.facts.Release}.Selects(pools.Request{Specs: []pools.Spec{pools.NewSpec(o)}}, p)
					}
				}
			}
		}
		suffix := ""
		if !isSure {
			suffix = "; the file is taken to be that of every compute node"
		}
		switch {
		case !isMatched:
			result.fail("offers no "+w.Alias, fmt.Sprintf("no device_spec matches alias %s (%s)%s", w.Alias, j.aliases.products(w.Alias), suffix),
				host.Textf("on the compute node: %s, and restart nova-compute", j.aliases.remedy(w.Alias, pools.Share{Why: pools.NotOffered}, nova.Compute)))
			return
		case !isTagged:
			result.fail("offers no "+w.Alias+" with the tags of the alias", fmt.Sprintf("alias %s requires devices with %s, which device_spec does not give them%s",
				w.Alias, j.aliases.tagsOf(w.Alias), suffix), j.aliases.remedy(w.Alias, pools.Share{Why: pools.OtherTags}, nova.Compute))
			return
		}
	}
	result.Status, result.Seen = Pass, "a device_spec matches every alias of the flavor; the devices of the host are unknown"
}

// unresolved returns an alias of a request whose devices are unknown, "" if all are known.
func (a aliases) unresolved(r nova.Request) string {
	for _, w := range r {
		if len(a.defined[w.Alias]) == 0 {
			return w.Alias
		}
	}
	return ""
}

// isAny reports whether an alias selects devices of any product: before 2025.2 Nova does not
// require ids (acc6221660; 2025.1: 2ca6c939d3).
func (a aliases) isAny(alias map[string]any) bool {
	return ids(alias) == "" && !a.isByClass(alias)
}

// unmatched says of a host without configuration and inventory what is missing, and of which hosts
// the files are that are given.
func (j *judge) unmatched() (seen string, remedy host.Text) {
	var others []string
	for _, s := range j.facts.Sides {
		if !s.Role.Computes() {
			continue
		}
		if found := s.Find(conf.Name{Section: "DEFAULT", Key: "host"}); len(found) > 0 {
			last := found[len(found)-1]
			others = append(others, last.File+" sets host = "+last.Value)
		} else {
			others = append(others, s.Name()+" is of another host")
		}
	}
	slices.Sort(others)
	switch len(others) {
	case 0:
		return "neither nova.conf nor an inventory of the host is given", host.Plain("give --conf compute=FILE and --inventory FILE")
	case 1, 2:
	default:
		others = []string{fmt.Sprintf("%s, and %d files are of other hosts too", others[0], len(others)-1)}
	}
	return "no inventory of the host is given, and no nova.conf of it: " + strings.Join(others, ", "),
		host.Plain("give the --conf compute=FILE that sets its host, or --inventory FILE")
}

// side returns the configuration of a host. Files that do not name a host are those of every
// compute node if there is no other such configuration; isSure is false then.
func (j *judge) side(h Host) (side *nova.Side, isSure bool) {
	var computes []*nova.Side
	for i := range j.facts.Sides {
		s := &j.facts.Sides[i]
		if !s.Role.Computes() {
			continue
		}
		computes = append(computes, s)
		for _, name := range s.HostNames() {
			if name == h.Name || name == h.Node || h.Devices != nil && h.Devices.Named(name) {
				return s, true
			}
		}
	}
	if len(computes) == 1 && len(computes[0].Find(conf.Name{Section: "DEFAULT", Key: "host"})) == 0 {
		return computes[0], len(j.facts.Hosts) == 1
	}
	return nil, false
}
