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
	Guest string // its uuid, or else its process; "" for none that is known
	// Named says that the process's arguments or the guest's domain name the device. A
	// guest that has its IOMMU group open and does not name it does not use it, but
	// keeps it from all others (Linux, Documentation/driver-api/vfio.rst).
	Named bool
}

// reported is the proof that reports of hosts and the operator's word make.
type reported struct {
	reports map[string]hostReport
	off     []string
	now     func() time.Time
}

// hostReport is a report with an index, so that questions about each of many devices do
// not each read all of it.
type hostReport struct {
	guest.Report
	uses       map[pci.Address]Use
	ofGuest    map[string]part
	ofFunction map[pci.Address]part
}

// part is what a report has of a guest or a function, by the positions in its lists.
type part struct {
	guests, holders, domains []int
}

// NewProof makes a proof of what hosts have reported, and of those of which the
// operator says that they are off. now is the clock that reports are compared with.
//
// Errors: reports of one host by several machines, of none, and of one that is off.
func NewProof(reports []guest.Report, off []string, now func() time.Time) (Proof, error) {
	newest, err := guest.Newest(reports)
	errs := []error{err}
	for _, host := range off {
		if _, ok := newest[host]; ok {
			errs = append(errs, offAndReported(host, host))
		}
	}
	indexed := map[string]hostReport{}
	for host, r := range newest {
		indexed[host] = index(r)
	}
	return reported{indexed, off, now}, errors.Join(errs...)
}

func offAndReported(off, report string) error {
	if off == report {
		return fmt.Errorf("host %s is said to be off, and has reported", off)
	}
	return fmt.Errorf("host %s is said to be off, and has reported as %s: the database compares these names as equal", off, report)
}

// uses lists the devices that guests use, by a report.
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
		domains[keyOf(d.UUID)] = append(domains[keyOf(d.UUID)], d.Functions...)
	}
	for _, h := range r.Holders {
		user := who(h.UUID, h.PID, h.Command)
		for _, a := range h.Asked {
			add(a, Use{user, true})
		}
		for _, a := range h.Functions {
			add(a, Use{user, h.UUID != nil && slices.Contains(domains[keyOf(*h.UUID)], a)})
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
			p := x.ofGuest[keyOf(*uuid)]
			add(&p)
			x.ofGuest[keyOf(*uuid)] = p
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

// about is the report with what it has of a guest and a function, and nothing else.
func (x hostReport) about(uuid string, function pci.Address) guest.Report {
	r, a, b := x.Report, x.ofGuest[keyOf(uuid)], x.ofFunction[function]
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
		return r.about(instance, a).Absent(c)
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

// HeldIn lists the devices that guests use, by reports.
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

// located is a proof that is asked about hosts of a database. A report is of the hosts
// that the database calls equal to its name.
type located struct {
	Proof
	names map[string][]string // in the proof, by host
}

// alias makes a name that a migration has for hosts known.
func (l *located) alias(name string, hosts []string) {
	if l == nil || name == "" {
		return
	}
	if _, known := l.names[name]; known || slices.Contains(hosts, name) {
		return
	}
	for _, h := range hosts {
		for _, n := range l.names[h] {
			if !slices.Contains(l.names[name], n) {
				l.names[name] = append(l.names[name], n)
			}
		}
	}
}

// contradiction is an error where a host is said to be off under one name, and has
// reported under another.
func (l *located) contradiction() error {
	var errs []error
	for _, host := range slices.Sorted(maps.Keys(l.names)) {
		names := l.names[host]
		for _, off := range names {
			for _, report := range names {
				if l.Proof.Off(off) && !l.Proof.Off(report) {
					errs = append(errs, offAndReported(off, report))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// ask asks the proof under the name that it has for a host. Two reports of one host,
// under names that are one to the database, prove nothing.
func (l *located) ask(host string, ask func(name string) (bool, string)) (bool, string) {
	switch names := l.names[host]; len(names) {
	case 0:
		return ask(host)
	case 1:
		return ask(names[0])
	default:
		return false, fmt.Sprintf("there are reports of hosts %s, and the database compares these names as equal", strings.Join(quoted(names), " and "))
	}
}

func (l *located) Absent(host, instance, address string, since time.Time) (bool, string) {
	if l.Off(host) {
		return true, ""
	}
	return l.ask(host, func(name string) (bool, string) { return l.Proof.Absent(name, instance, address, since) })
}

func (l *located) Restarted(host string, since time.Time) (bool, string) {
	return l.ask(host, func(name string) (bool, string) { return l.Proof.Restarted(name, since) })
}

func (l *located) Reported(host string, since time.Time) (bool, string) {
	return l.ask(host, func(name string) (bool, string) { return l.Proof.Reported(name, since) })
}

func (l *located) Stopped(host string, since time.Time) (bool, string) {
	if l.Off(host) {
		return true, ""
	}
	return l.ask(host, func(name string) (bool, string) { return l.Proof.Stopped(name, since) })
}

func (l *located) Off(host string) bool {
	return l.Proof.Off(host) || slices.ContainsFunc(l.names[host], l.Proof.Off)
}

func (l *located) Holder(host, address string, since time.Time) Use {
	use := Use{}
	for _, name := range append([]string{host}, l.names[host]...) {
		if u := l.Proof.Holder(name, address, since); use.Guest == "" || u.Named && !use.Named {
			use = u
		}
	}
	return use
}
