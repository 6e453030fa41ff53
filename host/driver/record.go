package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
)

// Record is the journal's record of a plan.
type Record struct {
	Boot      string   `json:"boot_id"` // the changes end with this boot
	Release   bool     `json:"release"` // return to the host, not bind for guests
	Functions []Change `json:"functions"`
	Services  Services `json:"services"`
	// Containers are as of [Plan].
	Containers []pci.Address `json:"containers,omitempty"`
}

// ParseRecord reads the detail of an entry of kind drivers.
func ParseRecord(e change.Entry) (Record, error) {
	var r Record
	if err := host.DecodeJSON(e.Detail(), &r); err != nil {
		return Record{}, fmt.Errorf("entry %d: its drivers: %w", e.ID, err)
	}
	return r, nil
}

// bootFile contains an id that differs for each boot (proc_sys_kernel(5)).
const bootFile = "/proc/sys/kernel/random/boot_id"

func bootID(root host.Root) (string, error) {
	data, err := root.ReadFile(bootFile)
	return strings.TrimSpace(string(data)), err
}

// current reports whether the machine was not rebooted since the record was made: a boot reverts
// the change. In a tree that is not a running machine it returns false.
func (r Record) current(root host.Root) (bool, error) {
	boot, err := bootID(root)
	if host.IsAbsent(errors.Unwrap(err)) {
		return false, nil
	}
	return boot == r.Boot, err
}

// ofThisBoot returns the records of the changes that were made in this boot.
func ofThisBoot(root host.Root, entries []change.Entry) (records []Record, err error) {
	for _, e := range entries {
		if e.Changes != change.KindDrivers || e.Status != change.Done {
			continue
		}
		r, err := ParseRecord(e)
		if err != nil {
			return nil, err
		}
		current, err := r.current(root)
		if err != nil {
			return nil, err
		}
		if current {
			records = append(records, r)
		}
	}
	return records, nil
}

// Taken returns the drivers that functions had before host bind bound them, for the functions that
// the journal records for this boot.
func Taken(root host.Root, entries []change.Entry) (map[pci.Address]State, error) {
	records, err := ofThisBoot(root, entries)
	taken := map[pci.Address]State{}
	for _, r := range records {
		for _, c := range r.Functions {
			if !r.Release && !pci.LeavesAlone(string(c.Before.Driver)) {
				taken[c.Address] = c.Before
			}
		}
	}
	return taken, err
}

// Stopped returns the services that host bind has stopped, and that have not been started since by
// host bind or host release, as far as the journal records it for this boot: they are to be started
// when a GPU returns to the driver nvidia. Were are the GPUs that were in persistence mode.
func Stopped(root host.Root, entries []change.Entry) (s Services, err error) {
	records, err := ofThisBoot(root, entries)
	for _, r := range records {
		s.Start = host.Union(s.Start, host.Reversed(r.Services.Stop)...)
		s.Start = slices.DeleteFunc(s.Start, func(u string) bool { return slices.Contains(r.Services.Start, u) })
		s.On = host.Union(s.On, r.Services.Were...)
	}
	return s, err
}

// back returns the plan that undoes the record, without changes if the machine was rebooted since.
// Its error names every function that prevents it.
func (r Record) back(root host.Root) (Plan, error) {
	p := Plan{Release: !r.Release, Load: []string{}, Changes: []Change{}, Groups: []int{}}
	if current, err := r.current(root); err != nil || !current {
		return p, err
	}
	var errs []error
	for _, c := range slices.Backward(r.Functions) {
		now, err := Read(root, c.Address)
		switch {
		case err != nil:
			errs = append(errs, err)
		case now == c.Before:
		case now == c.After:
			p.Changes = append(p.Changes, c.inverse())
		default:
			errs = append(errs, fmt.Errorf("%s: %w (%s)", c.Address, ErrChanged, now.Driver))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	p.Services = r.Services.inverse()
	return p, p.follow(root)
}

// groups returns the functions by IOMMU group, or by slot where there is none.
func (r Record) groups() [][]Change {
	var groups [][]Change
	for _, c := range r.Functions {
		i := slices.IndexFunc(groups, func(g []Change) bool {
			if c.Group == nil || g[0].Group == nil {
				return c.Group == nil && g[0].Group == nil && c.Address.SameSlot(g[0].Address)
			}
			return *c.Group == *g[0].Group
		})
		if i < 0 {
			groups = append(groups, []Change{c})
		} else {
			groups[i] = append(groups[i], c)
		}
	}
	return groups
}

// useError is the error of the gate.
type useError struct{ error }

// Unwrap returns the error.
func (e *useError) Unwrap() error { return e.error }

// settle completes or reverts the changes of a group that a killed run has left half made, and
// reports whether they are in effect in the end. A function that was removed since needs nothing.
func (b Binder) settle(changes []Change, release bool) (stand bool, err error) {
	before, after := true, true
	for _, c := range changes {
		now, err := Read(b.Root, c.Address)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return false, err
		}
		before = before && now == c.Before
		after = after && c.reached(now)
	}
	if before || after {
		return after, nil
	}
	back := host.Reversed(changes)
	for i, c := range back {
		if !release {
			back[i] = c.inverse()
		}
	}
	if b.Gate != nil {
		_, done, useErr := b.Gate(back)
		if useErr != nil {
			return false, &useError{useErr}
		}
		defer func() { err = errors.Join(err, done()) }()
	}
	for _, c := range back {
		// A function that was bound to a third driver meanwhile remains bound to it.
		if err := b.bring(c); err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrChanged) {
			return false, err
		}
	}
	return release, nil
}
