package cleanup

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host/guest"
	"gpustack/host/pci"
)

// Use is how a guest uses a device.
type Use struct {
	Guest string // its uuid, or else its process; "" if no guest is known to use the device
	// Named says that the process's arguments or the guest's domain name the device. A guest
	// that only has the device's IOMMU group open does not use the device, but no other guest
	// can (Linux, Documentation/driver-api/vfio.rst).
	Named bool
}

// reported is a Proof made of guest reports and of hosts declared off.
type reported struct {
	reports map[string]hostReport
	off     []string
	now     func() time.Time
}

// hostReport is a report with an index, so that a question about one of many devices does not
// read the whole report.
type hostReport struct {
	guest.Report
	uses       map[pci.Address]Use
	ofGuest    map[string]part
	ofFunction map[pci.Address]part
}

// part has the positions in a report's lists of what concerns one guest or function.
type part struct {
	guests, holders, domains []int
}

// NewProof returns a Proof made of guest reports and of the hosts that the operator has declared
// off. now is the clock that the reports' ages are measured with.
//
// Errors: several machines have reported as one host; a report names no host; a host is declared
// off, but has a report.
func NewProof(reports []guest.Report, off []string, now func() time.Time) (Proof, error) {
	newest, err := guest.Newest(reports)
	errs := []error{err}
	for _, host := range off {
		if _, ok := newest[host]; ok {
			errs = append(errs, fmt.Errorf("host %s is declared off, but a guest report of it was given", host))
		}
	}
	indexed := map[string]hostReport{}
	for host, r := range newest {
		indexed[host] = index(r)
	}
	return reported{indexed, off, now}, errors.Join(errs...)
}

// uses returns the devices that guests use, by a report.
func uses(r guest.Report) map[pci.Address]Use {
	all := map[pci.Address]Use{}
	add := func(a pci.Address, u Use) {
		if known, ok := all[a]; !ok || u.Named && !known.Named {
			all[a] = u
		}
	}
	who := func(uuid *string, pid int, command string) string {
		if uuid != nil {
			return *uuid
		}
		return fmt.Sprintf("of pid %d (%s)", pid, command)
	}
	domains := map[string][]pci.Address{}
	for _, d := range r.Domains {
		domains[KeyOf(d.UUID)] = append(domains[KeyOf(d.UUID)], d.Functions...)
	}
	for _, h := range r.Holders {
		user := who(h.UUID, h.PID, h.Command)
		for _, a := range h.Asked {
			add(a, Use{user, true})
		}
		for _, a := range h.Functions {
			add(a, Use{user, h.UUID != nil && slices.Contains(domains[KeyOf(*h.UUID)], a)})
		}
	}
	for _, g := range r.Guests {
		for _, a := range g.Asked {
			add(a, Use{who(g.UUID, g.PID, g.Command), true})
		}
	}
	return all
}

func index(r guest.Report) hostReport {
	x := hostReport{r, uses(r), map[string]part{}, map[pci.Address]part{}}
	add := func(uuid *string, functions []pci.Address, add func(*part)) {
		if uuid != nil {
			p := x.ofGuest[KeyOf(*uuid)]
			add(&p)
			x.ofGuest[KeyOf(*uuid)] = p
		}
		for _, a := range functions {
			p := x.ofFunction[a]
			add(&p)
			x.ofFunction[a] = p
		}
	}
	for k, g := range r.Guests {
		add(g.UUID, g.Asked, func(p *part) { p.guests = append(p.guests, k) })
	}
	for k, h := range r.Holders {
		add(h.UUID, h.Functions, func(p *part) { p.holders = append(p.holders, k) })
	}
	for k, d := range r.Domains {
		add(&d.UUID, d.Functions, func(p *part) { p.domains = append(p.domains, k) })
	}
	return x
}

// about returns the report reduced to what concerns a guest and a function.
func (x hostReport) about(uuid string, function pci.Address) guest.Report {
	r, a, b := x.Report, x.ofGuest[KeyOf(uuid)], x.ofFunction[function]
	r.Guests = pick(r.Guests, a.guests, b.guests)
	r.Holders = pick(r.Holders, a.holders, b.holders)
	r.Domains = pick(r.Domains, a.domains, b.domains)
	return r
}

// pick returns the elements at some positions, each once.
func pick[T any](list []T, some, others []int) []T {
	at := slices.Concat(some, others)
	slices.Sort(at)
	var picked []T
	for _, k := range slices.Compact(at) {
		picked = append(picked, list[k])
	}
	return picked
}

func (p reported) claim(host string, since time.Time) guest.Claim {
	return guest.Claim{Host: host, Since: since, Now: p.now()}
}

func (p reported) ask(host string, judge func(hostReport) guest.Answer) (bool, string) {
	r, ok := p.reports[host]
	if !ok {
		return false, noReport(host)
	}
	a := judge(r)
	return a.Proven, strings.Join(a.Reasons, ", ")
}

func (p reported) Absent(host, instance, address string, since time.Time) (bool, string) {
	return p.unused(host, instance, address, since, guest.Report.Absent)
}

// unused returns whether a report proves by judge that a guest does not use a device. A host that
// is off runs no guest.
func (p reported) unused(host, instance, address string, since time.Time, judge func(guest.Report, guest.Claim) guest.Answer) (bool, string) {
	if p.Off(host) {
		return true, ""
	}
	a, err := pci.ParseAddress(address)
	if err != nil {
		return false, err.Error()
	}
	return p.ask(host, func(r hostReport) guest.Answer {
		c := p.claim(host, since)
		c.Guest, c.Functions = instance, []pci.Address{a}
		return judge(r.about(instance, a), c)
	})
}

func (p reported) Restarted(host string, since time.Time) (bool, string) {
	return p.ask(host, func(r hostReport) guest.Answer { return r.NovaComputeRestarted(p.claim(host, since)) })
}

func (p reported) Reported(host string, since time.Time) (bool, string) {
	return p.ask(host, func(r hostReport) guest.Answer {
		c := p.claim(host, since)
		c.Guest = "ffffffff-ffff-ffff-ffff-ffffffffffff" // no guest's: only the report itself is judged
		return r.about(c.Guest, pci.Address{}).Absent(c)
	})
}

func (p reported) NotRunning(host, instance, address string, since time.Time) (bool, string) {
	return p.unused(host, instance, address, since, guest.Report.NotRunning)
}

func (p reported) Present(host, instance string, running bool, since time.Time) (bool, string) {
	return p.ask(host, func(r hostReport) guest.Answer {
		c := p.claim(host, since)
		c.Guest = instance
		return r.about(instance, pci.Address{}).Present(c, running)
	})
}

func (p reported) Stopped(host string, since time.Time) (bool, string) {
	if p.Off(host) {
		return true, ""
	}
	return p.ask(host, func(r hostReport) guest.Answer { return r.NovaComputeDown(p.claim(host, since)) })
}

func (p reported) Off(host string) bool {
	return slices.Contains(p.off, host)
}

func (p reported) Holder(host, address string, since time.Time) Use {
	r, ok := p.reports[host]
	a, err := pci.ParseAddress(address)
	if !ok || err != nil || !r.Collected.After(since) {
		return Use{}
	}
	return r.uses[a]
}

func (p reported) Hosts() []string {
	hosts := append(slices.Sorted(maps.Keys(p.reports)), p.off...)
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// HeldBy is a device of a host that a guest uses.
type HeldBy struct {
	Host, Address string
	Use
}

// HeldIn returns the devices that guests use, by their hosts' reports.
func HeldIn(reports []guest.Report) []HeldBy {
	var list []HeldBy
	for _, r := range reports {
		if r.NovaHost == nil {
			continue
		}
		for a, use := range uses(r) {
			list = append(list, HeldBy{*r.NovaHost, a.String(), use})
		}
	}
	return list
}
