package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/journal"
	"gpustack/host/pci"
)

// Record is what the journal keeps of a plan.
type Record struct {
	Boot      string   `json:"boot_id"` // which the changes end with
	Release   bool     `json:"release"` // to the host, else to guests
	Functions []Change `json:"functions"`
}

// ParseRecord reads what an entry of kind drivers holds.
func ParseRecord(e journal.Entry) (Record, error) {
	var r Record
	d := json.NewDecoder(bytes.NewReader(e.Drivers))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("entry %d: its drivers: %w", e.ID, err)
	}
	return r, nil
}

// bootFile holds what no two boots have in common (proc_sys_kernel(5)).
const bootFile = "/proc/sys/kernel/random/boot_id"

func bootID(root host.Root) (string, error) {
	data, err := root.ReadFile(bootFile)
	if err != nil {
		return "", fmt.Errorf("%s: %w", bootFile, host.Cause(err))
	}
	return strings.TrimSpace(string(data)), nil
}

// Current tells whether the machine runs since the record was made: a boot takes all of
// it back. A tree that runs nothing is another machine.
func (r Record) Current(root host.Root) (bool, error) {
	boot, err := bootID(root)
	if host.IsAbsent(errors.Unwrap(err)) {
		return false, nil
	}
	return boot == r.Boot, err
}

// Taken returns what held functions before they were given to guests, of those that the
// journal has in this boot.
func Taken(root host.Root, entries []journal.Entry) (map[pci.Address]State, error) {
	taken := map[pci.Address]State{}
	for _, e := range entries {
		if e.Kind != journal.KindDrivers || e.Status != journal.Done {
			continue
		}
		r, err := ParseRecord(e)
		if err != nil {
			return nil, err
		}
		if current, err := r.Current(root); err != nil || !current {
			if err != nil {
				return nil, err
			}
			continue
		}
		for _, c := range r.Functions {
			if !r.Release && !pci.LeavesAlone(string(c.Before.Driver)) {
				taken[c.Address] = c.Before
			}
		}
	}
	return taken, nil
}

// Back is the plan that takes an entry back: none where the machine has been started
// anew since, which took it back. It names every function that stands in the way.
func Back(root host.Root, e journal.Entry) (Plan, error) {
	r, err := ParseRecord(e)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Release: !r.Release, Load: []string{}, Changes: []Change{}, Groups: []int{}}
	if current, err := r.Current(root); err != nil || !current {
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
	return p, p.follow(root)
}

// Undo takes an entry back. Where a function cannot be, the entry stays as it is for
// the next run. When ctx ends, the running step ends first, and then the functions are bound
// again as they were: the entry is as it was, and the error wraps the cause of ctx.
func (b Binder) Undo(ctx context.Context, e journal.Entry) (journal.Entry, error) {
	if cause := context.Cause(ctx); cause != nil {
		return e, fmt.Errorf("%w, nothing was changed", cause)
	}
	r, err := ParseRecord(e)
	if err != nil {
		return e, err
	}
	p, err := Back(b.Root, e)
	if err != nil {
		return e, err
	}
	was := e
	if e, err = b.Journal.Update(e, journal.Undoing, r); err != nil {
		return e, err
	}
	done, err := b.make(ctx, p)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		if back := b.takeBack(p.Changes[:done]); back != nil {
			return e, errors.Join(err, back)
		}
		return was, errors.Join(fmt.Errorf("%w, entry %d stays as it was", rolledBack(ctx, err, p), e.ID), b.Journal.Revert(was))
	}
	if err != nil {
		return e, err
	}
	return b.Journal.Update(e, journal.Undone, r)
}

// Recover puts right what killed runs left, in this boot: a group of which some
// functions are changed and some are not goes to the host, one that is changed whole, so
// that a guest may have it already, or not at all, stays. It returns the entries it dealt
// with, as they are now; one of which nothing is left is gone, and still applying. When ctx
// ends, the running group is settled first, and the rest is left for the next run.
func (b Binder) Recover(ctx context.Context) ([]journal.Entry, error) {
	entries, err := journal.List(b.Root)
	if err != nil {
		return nil, err
	}
	var dealt []journal.Entry
	for _, e := range entries {
		if e.Kind != journal.KindDrivers || e.Status == journal.Done || e.Status == journal.Undone {
			continue
		}
		if e, err = b.recover(ctx, e); err != nil {
			if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
				return dealt, fmt.Errorf("%w, the next run recovers entry %d", err, e.ID)
			}
			return dealt, fmt.Errorf("entry %d, which was cut off: %w", e.ID, err)
		}
		dealt = append(dealt, e)
	}
	return dealt, nil
}

func (b Binder) recover(ctx context.Context, e journal.Entry) (journal.Entry, error) {
	r, err := ParseRecord(e)
	if err != nil {
		return e, err
	}
	left := r
	left.Functions = []Change{}
	if current, err := r.Current(b.Root); err != nil {
		return e, err
	} else if current {
		for _, cards := range r.groups() {
			if err := context.Cause(ctx); err != nil {
				return e, err
			}
			changed, err := b.settle(cards, r.Release)
			if err != nil {
				return e, err
			}
			if changed {
				left.Functions = append(left.Functions, cards...)
			}
		}
	}
	switch {
	case len(left.Functions) > 0:
		return b.Journal.Update(e, journal.Done, left)
	case e.Status == journal.Undoing:
		return b.Journal.Update(e, journal.Undone, r)
	}
	return e, b.Journal.Forget(e)
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

// settle puts right what is left of the changes of a group, and tells whether they
// stand in the end. What has gone since needs nothing.
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
	for _, c := range slices.Backward(changes) {
		if !release {
			c = c.inverse()
		}
		// A driver of somebody else's may keep what it has taken.
		if err := b.bring(c); err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrChanged) {
			return false, err
		}
	}
	return release, nil
}
