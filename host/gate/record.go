package gate

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Records is what is recorded of functions that leave the host. Each part is nil if nothing is.
type Records struct {
	Guests     *machine.Contract
	Containers *machine.Containers
	RDMA       *rdma.Record
}

// ReadRecords returns what is recorded on a machine.
func ReadRecords(root host.Root) (r Records, err error) {
	var rdmaErr error
	r.Guests, r.Containers, err = machine.ReadRecord(root)
	r.RDMA, rdmaErr = rdma.ReadRecord(root)
	return r, errors.Join(err, rdmaErr)
}

// Parse returns the records in the contents of their files, nil for a file that does not exist.
func (r Records) Parse(name string, f *edit.File) (Records, error) {
	var err error
	switch name {
	case machine.ContractFile:
		if r.Guests, r.Containers = nil, nil; f != nil {
			r.Guests, r.Containers, err = machine.ParseRecord(f.Content)
		}
	case rdma.RecordFile:
		if r.RDMA = nil; f != nil {
			r.RDMA, err = rdma.ParseRecord(f.Content)
		}
	}
	return r, err
}

// Changed returns the records before and after a plan of files, and whether it changes one.
func Changed(root host.Root, plan edit.Changes) (before, after Records, changed bool, err error) {
	for _, c := range plan {
		changed = changed || c.Name == machine.ContractFile || c.Name == rdma.RecordFile
	}
	if !changed {
		return before, after, false, nil
	}
	before, err = ReadRecords(root)
	after = before
	errs := []error{err}
	for _, c := range plan {
		var beforeErr, afterErr error
		before, beforeErr = before.Parse(c.Name, c.Before)
		after, afterErr = after.Parse(c.Name, c.After)
		errs = append(errs, beforeErr, afterErr)
	}
	return before, after, true, errors.Join(errs...)
}

// Allowed returns the functions that --allow has named for what is recorded.
func (r Records) Allowed() (a Allowed) {
	for _, function := range host.Value(r.Guests).Allowed {
		if f := r.Guests.At(function); f != nil {
			a.Recorded = append(a.Recorded, f.Identity())
		}
	}
	for _, function := range host.Value(r.RDMA).Allowed {
		if p := r.RDMA.At(function); p != nil {
			a.Recorded = append(a.Recorded, p.Identity())
		}
	}
	return a
}

// ReadAllowed returns the functions that --allow has named on a machine. A journal that cannot be
// read is no error: see [Records.ReadAllowed].
func ReadAllowed(root host.Root) (Allowed, error) {
	r, err := ReadRecords(root)
	return r.ReadAllowed(root), err
}

// ReadAllowed returns the functions that --allow has named on the machine that has the records: for
// them, for changes that are being made, undone or recovered, and for the undo of a change that has
// restored a record. That the journal cannot be read is in the result: it must not keep from leaving
// what needs no --allow.
func (r Records) ReadAllowed(root host.Root) Allowed {
	a := r.Allowed()
	entries, err := change.List(root)
	errs := []error{err}
	for _, e := range entries {
		standing, err := restored(root, e)
		errs = append(errs, err)
		if standing || e.IsOpen() {
			a.Recorded = append(a.Recorded, e.Allowed...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		a.Unread = fmt.Errorf("%w: %w", ErrAllowUnread, err)
	}
	return a
}

// restored reports whether an entry is undone with --allow, and a record is still the one that the
// undo has restored.
func restored(root host.Root, e change.Entry) (bool, error) {
	if e.Status != change.Undone || len(e.Allowed) == 0 {
		return false, nil
	}
	for _, f := range e.Files {
		if f.Before == nil || f.Name != machine.ContractFile && f.Name != rdma.RecordFile {
			continue
		}
		now, err := edit.Read(root, f.Name)
		if err != nil || f.Before.Is(now) {
			return err == nil, err
		}
	}
	return false, nil
}

// Leaves returns the functions that leave the host, or return to it, by a change of records. VFs
// that exist are what leaves: each is a function of its own. made are the functions that the steps
// of this boot have changed (steps.Made): of these VFs the host has nothing to lose.
func Leaves(devices pci.Devices, made []pci.Address, before, after Records) (leaving []Leaving) {
	if after.Guests != nil {
		s := Selection{Selected: after.Guests.Selected, Kind: AtBoot}
		for _, f := range after.Guests.Functions {
			if d := devices.At(f.Address); !isSame(before.Guests.At(f.Address), f) && d != nil && !pci.LeavesAlone(d.DriverName()) {
				s.All = append(s.All, f.Address)
			}
		}
		leaving = append(s.Leaving(devices), matched(devices, before.Guests, after.Guests)...)
	}
	for _, f := range after.Containers.All() {
		if before.Containers.At(f.Address) == nil && devices.At(f.Address) != nil {
			leaving = append(leaving, Leaving{Address: f.Address, Kind: Role})
		}
	}
	if all := adapters(before.RDMA, after.RDMA); len(all) > 0 {
		vfs := devices.VFs()
		for _, a := range all {
			leaving = append(leaving, leavesOf(devices, vfs[a], made, a, before.RDMA.At(a), after.RDMA.At(a))...)
		}
	}
	return leaving
}

// matched returns the functions that are not recorded and that leave by ids of a record which the one
// before does not have: host prepare plans none, but such a function may have come since.
func matched(devices pci.Devices, before, after *machine.Contract) (leaving []Leaving) {
	had, ids := before.IDs(), after.IDs()
	for i := range devices {
		d := &devices[i]
		if d.VendorID == nil || d.ProductID == nil || after.At(d.Address) != nil || pci.LeavesAlone(d.DriverName()) {
			continue
		}
		if product := d.VendorID.String() + ":" + d.ProductID.String(); slices.Contains(ids, product) && !slices.Contains(had, product) {
			leaving = append(leaving, Leaving{Address: d.Address, Kind: AtBoot, IDs: product})
		}
	}
	return leaving
}

// isSame reports whether a function was recorded before, as the same device.
func isSame(before *machine.Function, after machine.Function) bool {
	if before == nil {
		return false
	}
	now := after.Identity()
	return before.Identity().Compare(&now) == pci.NoDifference
}

// adapters returns the adapters of two records.
func adapters(records ...*rdma.Record) (all []pci.Address) {
	for _, r := range records {
		if r != nil {
			all = append(all, host.Map(r.Adapters, func(p rdma.Prepared) pci.Address { return p.Address })...)
		}
	}
	return pci.Unique(all)
}

// leavesOf returns what leaves by a change of the record of an adapter; nil is none. vfs are its
// VFs that exist. A record that ends takes those that this boot has made, and leaves others as they
// are. A record that begins gives others that have a host driver another identity and another use at
// the next boot.
func leavesOf(devices pci.Devices, vfs, made []pci.Address, a pci.Address, before, after *rdma.Prepared) (leaving []Leaving) {
	d := devices.At(a)
	if d == nil || before != nil && after != nil && len(before.VFs) == len(after.VFs) && before.Whole == after.Whole && before.Use == after.Use {
		return nil
	}
	for _, vf := range vfs {
		ours := slices.Contains(made, a) || slices.Contains(made, vf)
		switch {
		case after == nil && ours || after != nil && (len(after.VFs) != len(vfs) || !stays(devices.At(vf), after)):
			leaving = append(leaving, Leaving{Address: vf, Kind: Removed})
		case before == nil && after != nil && !ours && !pci.LeavesAlone(devices.At(vf).DriverName()):
			leaving = append(leaving, Leaving{Address: vf, Kind: AtBoot, Whole: true})
		}
	}
	switch {
	case after == nil:
	case after.Whole && after.Use == rdma.ForContainers:
		leaving = append(leaving, Leaving{Address: a, Kind: Role})
	case after.Whole && !pci.LeavesAlone(d.DriverName()):
		leaving = append(leaving, Leaving{Address: a, Kind: AtBoot, Whole: true})
	case len(after.VFs) > 0 && len(vfs) == 0:
		leaving = append(leaving, Leaving{Address: a, Kind: Making})
	}
	if before != nil && before.Whole && pci.LeavesAlone(d.DriverName()) {
		leaving = append(leaving, Leaving{Address: a, Kind: Returned})
	}
	return leaving
}

// stays reports whether a VF keeps its driver with a record that has as many VFs as exist.
func stays(vf *pci.Device, p *rdma.Prepared) bool {
	return slices.ContainsFunc(p.VFs, func(r rdma.PreparedVF) bool { return r.Address == vf.Address && r.Driver == vf.DriverName() })
}

// Permit returns whether a plan of files may change what is recorded: the functions for which that
// needs --allow, and an error that names every use of a function that would leave the host, and every
// function that would have two roles. It is asked before the files change, and before the change is
// undone: what --allow named for a record that no longer stands is allowed no more. made is
// steps.Made.
func Permit(root host.Root, plan edit.Changes, made func(host.Root) ([]pci.Address, error), allowed Allowed) ([]pci.Identity, error) {
	before, after, changed, err := Changed(root, plan)
	// A change that leaves nothing recorded only returns functions, at the next boot. Of adapters it
	// removes VFs now.
	if err != nil || !changed || after.Guests == nil && after.Containers == nil && before.RDMA == nil && after.RDMA == nil {
		return nil, err
	}
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return nil, err
	}
	if err := errors.Join(slices.Concat(newConflicts(devices, before, after), Lost(before, after))...); err != nil {
		return nil, err
	}
	ours, err := made(root)
	leaving := Leaves(devices, ours, before, after)
	if err != nil || len(leaving) == 0 {
		return nil, err
	}
	h, uses, err := Observe(root, devices, leaving)
	if err != nil {
		return nil, fmt.Errorf("cannot determine what uses %s: %w", leaving[0].Address, err)
	}
	lifted, err := h.Leave(uses, allowed.And(before.Allowed()), leaving...)
	return h.Identities(lifted), err
}
