package explain

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// placement judges a host by what Placement has answered.
func (j *judge) placement(h Host) Judged {
	result := Judged{Link: Placing, From: "Placement"}
	p := j.facts.Placement
	switch {
	case p == nil:
		why, known := j.facts.Unread[Candidates]
		if !known {
			why = "Placement was not asked"
		}
		result.From = ""
		result.notChecked(why, host.Plain("use an administrator's credentials, or a user that Placement's policy accepts"))
		return result
	case h.Provider == "":
		result.notChecked("the resource provider of the host is unknown", host.Plain("use an administrator's credentials, who can list hypervisors"))
		return result
	}
	for _, s := range p.Steps {
		if s.Roots[h.Provider] || p.Shared[h.Provider] {
			continue
		}
		j.step(&result, s, h, p.Details[h.Provider])
		return result
	}
	for _, d := range p.Devices {
		free := d.Free[h.Provider]
		if free >= d.Count {
			continue
		}
		j.devicesInPlacement(&result, d, h, free)
		return result
	}
	result.Status = Pass
	words := host.Map(p.Steps, func(s Step) string { return s.String() })
	words = append(words, host.Map(p.Devices, func(d Devices) string { return fmt.Sprintf("%s:%d", d.Class, d.Count) })...)
	result.Seen = "has " + strings.Join(words, ", ")
	if len(p.Skipped) > 0 {
		result.notChecked(result.Seen+"; not judged: "+strings.Join(p.Skipped, ", "), host.Plain("openstack allocation candidate list"))
	}
	return result
}

// step reports what a host lacks of the resources and traits that a step adds.
func (j *judge) step(result *Judged, s Step, h Host, inventories map[string]cloud.Inventory) {
	if s.Missing != "" {
		result.fail("has no "+s.String(), "Placement does not have the name: "+s.Missing,
			host.Textf("correct the extra spec: openstack flavor show %s", j.facts.Flavor.Name))
		return
	}
	if s.Class == "" {
		name, isForbidden := strings.CutPrefix(s.Trait, "!")
		if isForbidden {
			result.fail("has the forbidden trait "+name, "the flavor forbids trait "+name+", which the host has", j.withoutTrait(name))
			return
		}
		result.fail("does not have trait "+name, "the guest requires trait "+name+", which the host does not have", j.withoutTrait(name))
		return
	}
	what, ratio := s.Class, ""
	switch s.Class {
	case classVCPU:
		what, ratio = "VCPUs", "cpu_allocation_ratio"
	case classPCPU:
		what, ratio = "dedicated CPUs", ""
	case classMemory:
		what, ratio = "memory", "ram_allocation_ratio"
	case classDisk:
		what, ratio = "disk", "disk_allocation_ratio"
	}
	few := "too few "
	if s.Class == classMemory || s.Class == classDisk {
		few = "too little "
	}
	seen := fmt.Sprintf("%s is requested, and Placement does not list the host among those that have it free", s.Ask)
	i, known := inventories[s.Class]
	switch {
	case known && i.MaxUnit > 0 && s.Amount > i.MaxUnit:
		result.fail("has "+few+what, fmt.Sprintf("%s is requested, and one guest gets at most %d", s.Ask, i.MaxUnit),
			host.Plain("use a smaller flavor, or a larger host"))
		return
	case known:
		seen = fmt.Sprintf("%s is requested, %d free: (total %d - reserved %d) × ratio %g - used %d", s.Ask, max(i.Free(), 0), i.Total, i.Reserved, i.Ratio, i.Used)
	case inventories != nil:
		seen = fmt.Sprintf("%s is requested, and the host has no inventory of %s", s.Ask, s.Class)
	}
	remedy := host.Textf("use a smaller flavor, or free the host: openstack server list --all-projects --host %s", h.Name)
	if ratio != "" {
		remedy = host.Textf("%s; [DEFAULT] %s of nova.conf on the host overcommits", remedy, ratio)
	}
	result.fail("has "+few+what, seen, remedy)
}

// withoutTrait returns the remedy for a trait, which an extra spec, the image, or a policy of the
// guest requests.
func (j *judge) withoutTrait(name string) host.Text {
	switch {
	case j.facts.Flavor.ExtraSpecs["trait:"+name] != "":
		return host.Textf("openstack flavor unset --property trait:%s %s, or use another host", name, j.facts.Flavor.Name)
	case j.facts.Image != nil && j.facts.Image.Properties["trait:"+name] == "required":
		return host.Textf("use another image than %s, or another host", j.facts.Image.Name)
	}
	return host.Plain("use another host")
}

// devicesInPlacement reports that Placement has too few free devices for a host.
func (j *judge) devicesInPlacement(result *Judged, d Devices, h Host, free int) {
	seen := fmt.Sprintf("%s:%d is requested, %d free", d.Class, d.Count, free)
	switch {
	case d.Missing:
		result.fail("reports no "+d.Aliases+" to Placement", fmt.Sprintf("Placement does not have %s: no nova-compute reports such a device", d.Class),
			host.Textf("%s on the compute nodes, and restart nova-compute",
				host.NewCommand("nova configure").Flag("role", "compute").Flag("placement").Elsewhere()))
		return
	case d.Tree[h.Provider] == 0:
		result.fail("reports no devices to Placement", seen+", and the host reports no PCI device",
			host.Textf("on %s: %s, and restart nova-compute", h.Name,
				host.NewCommand("nova configure").Flag("role", "compute").Flag("placement").Elsewhere()))
		return
	}
	reserved := 0
	for name, i := range d.Detail {
		if strings.HasPrefix(name, h.Provider+"/") && i.Reserved >= i.Total {
			reserved++
		}
	}
	if reserved > 0 {
		result.fail("has reserved "+d.Aliases, fmt.Sprintf("%s; %d are reserved, as one-time-use devices are after a guest", seen, reserved),
			host.Plain("clean the devices, then set reserved to 0: openstack resource provider inventory list PROVIDER"))
		return
	}
	lack := short{d.Aliases, free, d.Count}
	result.fail(lack.reason(), seen, host.Textf("delete, shelve or move a guest: openstack server list --all-projects --host %s; "+
		"without one there, %s", h.Name, host.NewCommand("repair-migration").Flag("host", h.Name)))
}

// hasDevices reports whether Placement has enough free devices of the request on a host.
func (p *Placement) hasDevices(h Host) bool {
	return p.judgesDevices() && !slices.ContainsFunc(p.Devices, func(d Devices) bool { return d.Free[h.Provider] < d.Count })
}

// judgesDevices returns whether Placement's answer covers the devices of the request.
func (p *Placement) judgesDevices() bool {
	return p != nil && len(p.Devices) > 0 && !slices.ContainsFunc(p.Devices, func(d Devices) bool { return d.Free == nil })
}
