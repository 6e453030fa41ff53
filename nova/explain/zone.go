package explain

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// zone judges the availability zone of a host: nova-api rejects a zone that no host has, and
// nova-scheduler asks Placement for the hosts of the aggregates with it. A zone that no aggregate
// has, as the default one, restricts nothing then (nova/scheduler/request_filter.py,
// map_az_to_placement_aggregate).
func (j *judge) zone(h Host) Judged {
	result := Judged{Link: Zone, From: "compute services"}
	wanted, from := j.facts.Zone, ""
	if wanted == "" {
		wanted, from = j.defaultZone()
	}
	switch {
	case wanted == "":
		result.Status, result.Seen, result.From = Pass, "no availability zone is requested", ""
	case h.Service == nil || h.Service.Zone == "":
		result.From = ""
		result.notChecked("the availability zone of the host is unknown", host.Plain("use an administrator's credentials"))
	case h.Service.Zone == wanted:
		result.Status, result.Seen = Pass, "the host is in availability zone "+wanted
	case j.mapsZones() && j.isZone(wanted) && j.aggregateOf(wanted) == "" && j.facts.Unread[Aggregates] == "":
		result.Status, result.Seen = Pass, fmt.Sprintf("no aggregate has availability zone %s, so that it restricts nothing", wanted)
	default:
		seen := fmt.Sprintf("the host is in availability zone %s, and %s is requested", h.Service.Zone, wanted)
		if from != "" {
			seen += " (default_schedule_zone, " + from + ")"
		}
		result.fail("is not in availability zone "+wanted, seen, j.toZone(h, wanted))
	}
	return result
}

// toZone returns the remedy for a host of another zone. Nova does not add a host of a zone to an
// aggregate with another one (nova/compute/api.py, is_safe_to_update_az).
func (j *judge) toZone(h Host, zone string) host.Text {
	remedy := host.Textf("request --availability-zone %s", h.Service.Zone)
	if name := j.aggregateOf(zone); name != "" && !j.hasZone(h) {
		remedy = host.Textf("%s, or openstack aggregate add host %s %s", remedy, name, h.Name)
	}
	return remedy
}

// hasZone reports whether an aggregate gives the host an availability zone.
func (j *judge) hasZone(h Host) bool {
	return slices.ContainsFunc(j.memberOf[h.Name], func(i int) bool { return j.facts.Aggregates[i].Metadata["availability_zone"] != "" })
}

// mapsZones reports whether nova-scheduler judges zones by Placement: by an option since Rocky, by
// default since Xena, always since 2023.2.
func (j *judge) mapsZones() bool {
	if j.facts.Release >= nova.Bobcat {
		return true
	}
	name := conf.Name{Section: "scheduler", Key: "query_placement_for_availability_zone"}
	isSet := slices.ContainsFunc(j.facts.Sides, func(s nova.Side) bool { return s.Role.Controls() && len(s.Scheduler().Find(name)) > 0 })
	if isSet {
		return j.facts.isOn(nova.Side.Scheduler, name)
	}
	return j.facts.Release >= nova.Xena
}

// isZone reports whether a host has an availability zone: nova-api rejects others.
func (j *judge) isZone(zone string) bool {
	return slices.ContainsFunc(j.facts.Hosts, func(h Host) bool { return h.Service != nil && h.Service.Zone == zone })
}

// defaultZone returns [DEFAULT] default_schedule_zone of nova-api, which applies to requests
// without a zone (nova/conf/availability_zone.py).
func (j *judge) defaultZone() (zone, from string) {
	for _, s := range j.facts.Sides {
		if found := s.API().Find(conf.Name{Section: "DEFAULT", Key: "default_schedule_zone"}); s.Role.Controls() && len(found) > 0 {
			zone, from = found[len(found)-1].Value, found[len(found)-1].File
		}
	}
	return zone, from
}

// aggregateOf returns the name of an aggregate with an availability zone, or "".
func (j *judge) aggregateOf(zone string) string {
	for _, a := range j.facts.Aggregates {
		if a.Metadata["availability_zone"] == zone {
			return a.Name
		}
	}
	return ""
}
