package cleanup

import (
	"cmp"
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
	// Process says that a process of the host uses the device, and none of a guest: for a port of
	// type virtio-forwarder it has the VF, and the guest a socket of that process.
	Process bool
}

// reported is a Proof made of guest reports and of hosts declared off.
type reported struct {
	reports map[string]hostReport
	off     []string
	now     time.Time // by the database's clock
}

// hostReport is a report with the devices that guests use by it.
type hostReport struct {
	guest.Report
	uses   map[pci.Address]Use
	others []hostReport // all reports of the host: what an older one shows in use counts too
}

// NewProof returns a Proof made of guest reports and of the hosts that the operator has declared
// off. It proves nothing by reports before it is given a time, by At.
//
// Errors: several machines have reported as one host; a report names no host; a host is declared
// off, but has a report.
func NewProof(reports []guest.Report, off []string) (Proof, error) {
	newest, err := guest.Newest(reports)
	errs := []error{err}
	for _, host := range off {
		if _, ok := newest[host]; ok {
			errs = append(errs, fmt.Errorf("host %s is declared off, but a guest report of it was given", host))
		}
	}
	indexed := map[string]hostReport{}
	for host, r := range newest {
		x := hostReport{Report: r, uses: uses(r)}
		for _, other := range reports {
			if other.NovaHost != nil && *other.NovaHost == host {
				x.others = append(x.others, hostReport{Report: other, uses: uses(other)})
			}
		}
		indexed[host] = x
	}
	return reported{indexed, off, time.Time{}}, errors.Join(errs...)
}

// NoProof returns the Proof of nothing: no host has reported.
func NoProof() Proof { return reported{} }

func (p reported) Spelled(names map[string]string) (Proof, error) {
	spell := func(name string) string { return cmp.Or(names[name], name) }
	if !slices.ContainsFunc(p.Hosts(), func(name string) bool { return spell(name) != name }) {
		return p, nil
	}
	var reports []guest.Report
	var off []string
	for _, name := range p.Hosts() {
		host := spell(name)
		for _, x := range p.reports[name].others {
			x.NovaHost = &host
			reports = append(reports, x.Report)
		}
		if p.Off(name) {
			off = append(off, host)
		}
	}
	return NewProof(reports, off)
}

func (p reported) At(now time.Time) Proof {
	p.now = now
	return p
}

// uses returns the devices that guests use, by a report.
func uses(r guest.Report) map[pci.Address]Use {
	all := map[pci.Address]Use{}
	add := func(a pci.Address, u Use) {
		if known, ok := all[a]; !ok || u.Named && !known.Named {
			all[a] = u
		}
	}
	by := func(uuid *string, pid int, command string, named bool) Use {
		if uuid != nil {
			return Use{Guest: *uuid, Named: named}
		}
		return Use{Guest: fmt.Sprintf("of pid %d (%s)", pid, command), Named: named, Process: true}
	}
	domains := map[string][]pci.Address{}
	for _, d := range r.Domains {
		domains[KeyOf(d.UUID)] = append(domains[KeyOf(d.UUID)], d.Functions...)
		for _, a := range d.Functions {
			if d.Running { // with a network interface for itself, it has no file of the function open
				add(a, Use{Guest: d.UUID, Named: true})
			}
		}
	}
	for _, h := range r.Holders {
		for _, a := range h.Asked {
			add(a, by(h.UUID, h.PID, h.Command, true))
		}
		for _, a := range h.Functions {
			add(a, by(h.UUID, h.PID, h.Command, h.UUID != nil && slices.Contains(domains[KeyOf(*h.UUID)], a)))
		}
	}
	for _, g := range r.Guests {
		for _, a := range g.Asked {
			add(a, by(g.UUID, g.PID, g.Command, true))
		}
	}
	return all
}

func (p reported) claim(host string, since time.Time) guest.Claim {
	return guest.Claim{Host: host, Since: since, Now: p.now}
}

func (p reported) ask(host string, judge func(hostReport) guest.Answer) (bool, string) {
	r, ok := p.reports[host]
	if !ok {
		return false, "no guest report of " + host + " was given"
	}
	a := judge(r)
	return a.Proven, strings.Join(a.Reasons, ", ")
}

func (p reported) Absent(host, instance string, devices []Device, since time.Time) (bool, string) {
	return p.unused(host, instance, devices, since, guest.Report.Absent)
}

// unused returns whether a report proves by judge that no guest uses devices, and that a guest does
// not run. A host that is off runs no guest.
func (p reported) unused(host, instance string, devices []Device, since time.Time, judge func(guest.Report, guest.Claim) guest.Answer) (bool, string) {
	if p.Off(host) {
		return true, ""
	}
	c := p.claim(host, since)
	c.Guest = instance
	var parents []pci.Address
	for _, d := range devices {
		a, err := pci.ParseAddress(d.Address)
		if err != nil {
			return false, err.Error()
		}
		c.Functions = append(c.Functions, a)
		c.Relatives = c.Relatives || d.SRIOV()
		if !d.virtual() {
			continue
		}
		// The host may have the VF no more, and its PF assigned to a guest.
		if a, err = pci.ParseAddress(*d.Parent); err != nil {
			return false, err.Error()
		}
		parents = append(parents, a)
	}
	return p.ask(host, func(r hostReport) guest.Answer {
		answer := judge(r.Report, c)
		answer.Reasons = append(answer.Reasons, r.showing(parents)...)
		for _, other := range r.others {
			if !other.Before(since) {
				answer.Reasons = append(answer.Reasons, other.using(c.Functions)...)
			}
		}
		slices.Sort(answer.Reasons)
		answer.Reasons = slices.Compact(answer.Reasons)
		answer.Proven = len(answer.Reasons) == 0
		return answer
	})
}

func (p reported) Restarted(host string, since time.Time) (bool, string) {
	return p.ask(host, func(r hostReport) guest.Answer { return r.NovaComputeRestarted(p.claim(host, since)) })
}

func (p reported) Reported(host string, since time.Time) (bool, string) {
	return p.ask(host, func(r hostReport) guest.Answer {
		c := p.claim(host, since)
		c.Guest = "ffffffff-ffff-ffff-ffff-ffffffffffff" // no guest's: only the report itself is judged
		return r.Absent(c)
	})
}

func (p reported) NotRunning(host, instance string, devices []Device, since time.Time) (bool, string) {
	return p.unused(host, instance, devices, since, guest.Report.NotRunning)
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

func (p reported) Holder(host, address string, since time.Time) (use Use) {
	a, err := pci.ParseAddress(address)
	if err != nil {
		return use
	}
	for _, r := range p.reports[host].others {
		if u := r.uses[a]; !r.Before(since) && u.Guest != "" && (use.Guest == "" || u.Named && !use.Named) {
			use = u
		}
	}
	return use
}

func (p reported) Has(host, instance, address string) bool {
	r, ok := p.reports[host]
	a, err := pci.ParseAddress(address)
	if !ok || err != nil {
		return false
	}
	if use := r.uses[a]; use.Named && KeyOf(use.Guest) == KeyOf(instance) {
		return true
	}
	return slices.ContainsFunc(r.Domains, func(d guest.Domain) bool {
		return KeyOf(d.UUID) == KeyOf(instance) && slices.Contains(d.Functions, a)
	})
}

// using returns which of the functions and their families guests use, by a report.
func (x hostReport) using(functions []pci.Address) (all []string) {
	for _, f := range functions {
		for _, a := range x.Family(f) {
			if use := x.uses[a]; use.Guest != "" {
				all = append(all, fmt.Sprintf("%s: guest %s uses %s, by a report of %s", *x.NovaHost, use.Guest, a, x.Collected.UTC().Format(time.RFC3339)))
			}
		}
	}
	return all
}

// showing returns what a report shows of functions themselves, without their families.
func (x hostReport) showing(functions []pci.Address) []string {
	r := x.Report
	r.VirtualFunctions = nil
	return r.Shows("", functions)
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

// Held returns the devices that guests use, by all reports.
func (p reported) Held() (list []HeldBy) {
	for host, r := range p.reports {
		for _, other := range r.others {
			for a, use := range other.uses {
				list = append(list, HeldBy{host, a.String(), use})
			}
		}
	}
	return list
}
