package cleanup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host/guest"
	"gpustack/host/pci"
)

// reported is the proof that reports of hosts and the operator's word make.
type reported struct {
	reports map[string]guest.Report
	off     []string
	now     func() time.Time
}

// NewProof makes a proof of what hosts have reported, and of those of which the
// operator says that they are off. now is the clock that reports are held against.
//
// Errors: reports of one host by several machines, of none, and of one that is off.
func NewProof(reports []guest.Report, off []string, now func() time.Time) (Proof, error) {
	newest, err := guest.Newest(reports)
	errs := []error{err}
	for _, host := range off {
		if _, ok := newest[host]; ok {
			errs = append(errs, fmt.Errorf("host %s is said to be off, and has reported", host))
		}
	}
	return reported{newest, off, now}, errors.Join(errs...)
}

func (p reported) claim(host string, since time.Time) guest.Claim {
	return guest.Claim{Host: host, Since: since, Now: p.now()}
}

func (p reported) ask(host string, judge func(guest.Report) guest.Answer) (bool, string) {
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
	return p.ask(host, func(r guest.Report) guest.Answer {
		c := p.claim(host, since)
		c.Guest, c.Functions = instance, []pci.Address{a}
		return r.Absent(c)
	})
}

func (p reported) Restarted(host string, since time.Time) (bool, string) {
	return p.ask(host, func(r guest.Report) guest.Answer { return r.NovaComputeRestarted(p.claim(host, since)) })
}

func (p reported) Reported(host string, since time.Time) (bool, string) {
	return p.ask(host, func(r guest.Report) guest.Answer {
		c := p.claim(host, since)
		c.Guest = "ffffffff-ffff-ffff-ffff-ffffffffffff" // nobody's: only the report itself is judged
		return r.Absent(c)
	})
}

func (p reported) Stopped(host string, since time.Time) (bool, string) {
	if p.Off(host) {
		return true, ""
	}
	return p.ask(host, func(r guest.Report) guest.Answer { return r.NovaComputeDown(p.claim(host, since)) })
}

func (p reported) Off(host string) bool {
	return slices.Contains(p.off, host)
}

func (p reported) Holder(host, address string, since time.Time) string {
	r, ok := p.reports[host]
	a, err := pci.ParseAddress(address)
	if !ok || err != nil || !r.Collected.After(since) {
		return ""
	}
	for _, h := range r.Holders {
		if slices.Contains(h.Functions, a) || slices.Contains(h.Asked, a) {
			if h.UUID != nil {
				return *h.UUID
			}
			return fmt.Sprintf("of pid %d (%s)", h.PID, h.Command)
		}
	}
	return ""
}

// HeldIn lists what reports say is held.
func HeldIn(reports []guest.Report) []HeldBy {
	var list []HeldBy
	for _, r := range reports {
		if r.NovaHost == nil {
			continue
		}
		for _, h := range r.Holders {
			for _, a := range slices.Concat(h.Functions, h.Asked) {
				if held := (HeldBy{*r.NovaHost, a.String()}); !slices.Contains(list, held) {
					list = append(list, held)
				}
			}
		}
	}
	return list
}
