package find

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/cleanup"
)

// located is a Proof for hosts as a database names them. A report applies to each host whose name
// the database treats as equal to the report's.
type located struct {
	cleanup.Proof
	names map[string][]string // in the proof, by host
}

// about returns whether the proof has a host, by any name.
func (l *located) about(host string) bool {
	return l != nil && len(l.names[host]) > 0
}

// alias adds a name that a migration has for hosts.
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

// contradiction returns an error if a host is declared off under one name and has a report under
// another.
func (l *located) contradiction() error {
	var errs []error
	for _, host := range slices.Sorted(maps.Keys(l.names)) {
		names := l.names[host]
		for _, off := range names {
			for _, report := range names {
				if l.Proof.Off(off) && !l.Proof.Off(report) {
					errs = append(errs, fmt.Errorf("host %s is declared off, but a guest report of it was given as %s: the database treats these names as equal", off, report))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// ask calls ask with the name that the proof has for a host. Two reports of one host, under names
// that the database treats as equal, prove nothing.
func (l *located) ask(host string, ask func(name string) (bool, string)) (bool, string) {
	switch names := l.names[host]; len(names) {
	case 0:
		return ask(host)
	case 1:
		return ask(names[0])
	default:
		return false, fmt.Sprintf("there are guest reports of hosts %s, whose names the database treats as equal", strings.Join(quoted(names), " and "))
	}
}

func (l *located) Absent(host, instance string, devices []cleanup.Device, since time.Time) (bool, string) {
	if l.Off(host) {
		return true, ""
	}
	return l.ask(host, func(name string) (bool, string) { return l.Proof.Absent(name, instance, devices, since) })
}

func (l *located) Restarted(host string, since time.Time) (bool, string) {
	return l.ask(host, func(name string) (bool, string) { return l.Proof.Restarted(name, since) })
}

func (l *located) Reported(host string, since time.Time) (bool, string) {
	return l.ask(host, func(name string) (bool, string) { return l.Proof.Reported(name, since) })
}

func (l *located) NotRunning(host, instance string, devices []cleanup.Device, since time.Time) (bool, string) {
	if l.Off(host) {
		return true, ""
	}
	return l.ask(host, func(name string) (bool, string) { return l.Proof.NotRunning(name, instance, devices, since) })
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

func (l *located) Has(host, instance, address string) bool {
	ok, _ := l.ask(host, func(name string) (bool, string) { return l.Proof.Has(name, instance, address), "" })
	return ok
}

func (l *located) Holder(host, address string, since time.Time) cleanup.Use {
	use := cleanup.Use{}
	for _, name := range append([]string{host}, l.names[host]...) {
		if u := l.Proof.Holder(name, address, since); use.Guest == "" || u.Named && !use.Named {
			use = u
		}
	}
	return use
}
