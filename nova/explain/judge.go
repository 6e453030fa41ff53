package explain

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/pools"
)

// Link is a part of the chain from a flavor to a host that builds its guest.
type Link string

// Links, in the order in which they are judged. They are part of the output (docs/json.md).
const (
	Flavor     Link = "flavor"
	ImageLink  Link = "image"
	Alias      Link = "alias"
	DeviceSpec Link = "device_spec"
	Rows       Link = "rows"
	NUMA       Link = "numa"
	Placing    Link = "placement"
	Service    Link = "service"
	Zone       Link = "availability_zone"
	Filters    Link = "filters"
)

// Status is the judgement of a link.
type Status string

// Statuses of links.
const (
	Pass       Status = "pass"
	Warn       Status = "warn" // builds work, but something else does not
	Fail       Status = "fail"
	NotChecked Status = "not_checked"
)

// Verdict is whether a host, or any host, can build a guest.
type Verdict string

// Verdicts.
const (
	Can     Verdict = "can"     // the guest can be built (a report: by at least one host), or has a host
	Cannot  Verdict = "cannot"  // a link fails (a report: on every host)
	Unknown Verdict = "unknown" // no link fails, but one that decides was not checked
)

// Judged is the judgement of a link for a host.
type Judged struct {
	Link   Link   `json:"link"`   // which link of the chain (docs/explain.md)
	Status Status `json:"status"` // the result
	// why, without details of the host; "" for a link that passes or was not checked
	Reason string `json:"reason"`
	Seen   string `json:"seen"` // what was read, for people
	From   string `json:"from"` // where it was read; "" if nothing was
	// a command that fixes it, or the option that checks the link; "" for a link that passes
	Remedy host.Text `json:"remedy"`
}

func (r *Judged) fail(reason, seen string, remedy host.Text) {
	r.Status, r.Reason, r.Seen, r.Remedy = Fail, reason, seen, remedy
}

func (r *Judged) notChecked(seen string, remedy host.Text) {
	r.Status, r.Seen, r.Remedy = NotChecked, seen, remedy
}

// Judgement is the judgement of a host.
type Judgement struct {
	Host    string   `json:"host"`              // the host of nova-compute
	Node    *string  `json:"node"`              // its hypervisor_hostname; nil if unknown
	Zone    *string  `json:"availability_zone"` // nil if unknown
	Verdict Verdict  `json:"verdict"`           // whether this host can build the guest
	Failing *Link    `json:"first_failing"`     // the first link that fails; nil for none
	Links   []Judged `json:"links"`             // in the order in which they are judged
}

// first returns the first link that fails, nil if none does.
func (h Judgement) first() *Judged {
	i := slices.IndexFunc(h.Links, func(l Judged) bool { return l.Status == Fail })
	if i < 0 {
		return nil
	}
	return &h.Links[i]
}

// judge holds what all hosts are judged by.
type judge struct {
	facts    Facts
	request  nova.Request // empty for a flavor without devices
	requests []pools.Request
	aliases  aliases
	filters  []enabledFilters
	memberOf map[string][]int // indexes of aggregates, by host
	common   []Judged         // flavor, image and alias, which are the same for all hosts
}

// newJudge judges the links that are the same for all hosts.
func newJudge(f Facts) *judge {
	j := &judge{facts: f, filters: f.readFilters(), memberOf: map[string][]int{}}
	for i, a := range f.Aggregates {
		for _, host := range a.Hosts {
			j.memberOf[host] = append(j.memberOf[host], i)
		}
	}
	var first Judged
	first, j.request = f.judgeFlavor()
	f.rejected(&first)
	j.common = append(j.common, first)
	if f.Image != nil {
		j.common = append(j.common, f.judgeImage())
	}
	if len(j.request) > 0 {
		j.aliases = f.readAliases(j.request)
		j.requests = j.aliases.requests(j.request, f.policy())
		j.common = append(j.common, j.aliases.judge(j.request))
	}
	return j
}

// rejected fails the link of the flavor if Nova's code rejects the request on every host.
func (f Facts) rejected(result *Judged) {
	if f.Answer == nil || len(f.Answer.Rejects) == 0 || result.Status != Pass {
		return
	}
	first := f.Answer.Rejects[0]
	if f.Image != nil {
		result.From += ", image " + f.Image.Name
	}
	result.From += ", Nova " + f.Answer.Version
	result.fail("is not reached: Nova rejects the flavor", fmt.Sprintf("%s rejects the request: %s", first.Filter, first.Message),
		host.Textf("correct the extra spec or the property: openstack flavor show %s", f.Flavor.Name))
}

// judgeFlavor judges the flavor itself, and returns the devices that it requests.
func (f Facts) judgeFlavor() (Judged, nova.Request) {
	result := Judged{Link: Flavor, Status: Pass, From: "flavor " + f.Flavor.Name}
	text, there := f.Flavor.ExtraSpecs[nova.RequestKey]
	var request nova.Request
	if there {
		var err error
		if request, err = nova.ParseRequest(text); err != nil {
			result.fail("is not reached: the flavor is malformed", fmt.Sprintf("%s=%s: %s", nova.RequestKey, text, strings.ReplaceAll(err.Error(), "\n", ", ")),
				host.Textf("openstack flavor set --property %s=ALIAS:COUNT %s", nova.RequestKey, f.Flavor.Name))
			return result, nil
		}
	}
	switch {
	case f.Flavor.Disabled:
		result.fail("is not reached: the flavor is disabled", "an administrator has disabled the flavor",
			host.Textf("create another one with the same properties: %s", host.NewCommand("flavor create")))
	case !f.Flavor.Public && f.Projects != nil && f.Project != "" && !slices.Contains(f.Projects, f.Project):
		// An administrator may use it nevertheless (nova/objects/flavor.py).
		result.Status, result.Reason = Warn, "is not reached by other projects"
		result.Seen = "the flavor is private, and project " + f.Project + " may not use it unless its user is an administrator"
		result.Remedy = host.Textf("openstack flavor set --project %s %s", f.Project, f.Flavor.Name)
	case !there:
		result.Seen = "requests no PCI device"
	default:
		result.Seen = "requests " + request.String()
	}
	return result, request
}

// judgeImage judges the requirements of the image, which nova-api checks before it looks for a host
// (nova/compute/api.py, _validate_flavor_image_nostatus).
func (f Facts) judgeImage() Judged {
	i := f.Image
	result := Judged{Link: ImageLink, Status: Pass, Seen: "the flavor has what the image requires", From: "image " + i.Name}
	const gib = 1 << 30
	isSmall := f.Flavor.Disk > 0 && !f.Volume
	bytes, isKnown := i.Disk()
	switch {
	case i.Status != "" && i.Status != "active":
		result.fail("is not reached: the image is "+i.Status, "nova-api rejects the image, which is "+i.Status,
			host.Textf("finish the upload, or reactivate the image: openstack image set --activate %s", i.ID))
	case i.MinRAM > f.Flavor.RAM:
		result.fail("is not reached: the image requires more memory", fmt.Sprintf("the image requires %d MiB of memory, and the flavor has %d", i.MinRAM,
			f.Flavor.RAM),
			host.Plain("use a larger flavor"))
	case isSmall && i.MinDisk > f.Flavor.Disk:
		result.fail("is not reached: the image requires a larger disk", fmt.Sprintf("the image requires a disk of %d GiB, and the flavor has %d", i.MinDisk,
			f.Flavor.Disk),
			host.Plain("use a flavor with a larger disk"))
	case isSmall && i.Size != nil && *i.Size > int64(f.Flavor.Disk)*gib:
		result.fail("is not reached: the image requires a larger disk", fmt.Sprintf("the image has %d bytes, and the disk of the flavor %d GiB", *i.Size,
			f.Flavor.Disk),
			host.Plain("use a flavor with a larger disk"))
	case isSmall && isKnown && bytes > int64(f.Flavor.Disk)*gib:
		result.fail("is not reached: the image requires a larger disk", fmt.Sprintf("the image has %d bytes, and the disk of the flavor %d GiB", bytes,
			f.Flavor.Disk),
			host.Plain("use a flavor with a larger disk"))
	}
	return result
}

// host judges all links of a host.
func (j *judge) host(h Host) Judgement {
	result := Judgement{Host: h.Name, Verdict: Unknown, Links: slices.Clone(j.common)}
	if h.Node != "" {
		result.Node = &h.Node
	}
	if h.Service != nil && h.Service.Zone != "" {
		result.Zone = &h.Service.Zone
	}
	var free, offered []pools.Pool
	if len(j.request) > 0 {
		j.onCompute(&result, h)
		var spec, rows Judged
		var isPending bool
		spec, offered, isPending = j.deviceSpec(h)
		rows, free = j.rows(h)
		if isPending && spec.Status == Fail && h.isUp() {
			j.notYet(&spec, rows, h)
		}
		result.Links = append(result.Links, spec, rows)
	}
	if len(j.request) > 0 {
		result.Links = append(result.Links, j.numa(h, free, offered))
	}
	result.Links = append(result.Links, j.placement(h), j.service(h), j.zone(h), j.filter(h))
	if first := result.first(); first != nil {
		result.Verdict, result.Failing = Cannot, &first.Link
		return result
	}
	if !j.isOpen(result.Links) {
		result.Verdict = Can
	}
	return result
}

// isOpen reports whether a link that can reject the guest was not checked. Free devices show that
// device_spec offers them, and Placement counts them as the rows do. The image of a server that
// cannot be read may require anything.
func (j *judge) isOpen(links []Judged) bool {
	return slices.ContainsFunc(links, func(l Judged) bool {
		return l.Status == NotChecked && l.Link != DeviceSpec && (l.Link != Rows || !j.facts.Placement.judgesDevices())
	}) || slices.ContainsFunc(j.facts.Omitted, func(o Omission) bool { return o.Link == ImageLink })
}

// isUp reports whether nova-compute of the host runs.
func (h Host) isUp() bool { return h.Service != nil && h.Service.Up }

// notRead is added to what was seen in a file with which nova-compute does not start, and runs.
const notRead = "; nova-compute runs, and has not read the file yet"

// notYet makes a warning of a failure that nova-compute, which runs, has only after its next start.
func (j *judge) notYet(spec *Judged, rows Judged, h Host) {
	switch {
	case spec.Reason == startsNot:
		spec.Seen += notRead
	case rows.Status == Pass:
		spec.Seen += "; nova-compute, which runs, still has enough free devices"
	case rows.Status == NotChecked && j.facts.Placement.hasDevices(h):
		spec.Seen += "; Placement, to which nova-compute has reported devices, still has enough"
	default:
		return
	}
	spec.Status = Warn
}

// onCompute replaces the judgement of the aliases by that of the compute node's file, if that is
// worse.
func (j *judge) onCompute(result *Judgement, h Host) {
	side, _ := j.side(h)
	if side == nil || side.Role.Controls() && slices.Equal(side.API().Files, side.Compute().Files) {
		return
	}
	i := slices.IndexFunc(result.Links, func(l Judged) bool { return l.Link == Alias })
	var hosts []nova.Host
	if h.Devices != nil {
		hosts = append(hosts, *h.Devices)
	}
	worse := j.aliases.onCompute(j.request, *side, j.facts.Release, hosts...)
	if worse != nil && worse.Status == Fail && h.isUp() {
		worse.Status = Warn
		worse.Seen += notRead
	}
	if worse != nil && result.Links[i].Status == Pass {
		result.Links[i] = *worse
	}
}
