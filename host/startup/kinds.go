package startup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/gate"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Errors of steps.
var (
	// errOther means that another adapter is where the record expects one.
	errOther = host.WithHint(errors.New("is not the recorded function"),
		host.Textf("'%s' shows the adapters; '%s' records this one, '--remove ADDRESS' forgets the other",
			host.NewCommand("rdma scan"), host.NewCommand("rdma prepare")))
	// errHost means that an adapter is not bound to the driver that was recorded.
	errHost = host.WithHint(errors.New("is not bound to its recorded driver"), "the kernel's log says why: journalctl -k, or dmesg")
	// errMoved means that VFs have other addresses than recorded.
	errMoved = host.WithHint(errors.New("has another address than recorded"), host.Textf("run '%s' for the adapter again", host.NewCommand("rdma prepare")))
	// ErrChangedSince means that VFs are neither as this boot made them nor as they were before.
	ErrChangedSince = host.WithHint(errors.New("was changed since by another program"), host.Textf("'%s' shows the VFs; set sriov_numvfs by hand, or reboot",
		host.NewCommand("rdma scan")))
)

// free asks the gate, immediately before functions are unbound or removed: it returns an error that
// names every use of one, of the host, of guests and of processes, unless --allow has lifted it. A
// function without a driver cannot be in use, so on a fresh boot nothing is read. One that is bound
// to a driver for guests is not the host's: only a guest can use it.
func (m machine) free(kind gate.Kind, addresses ...pci.Address) error {
	_, err := m.leave(gate.Leaving{Kind: kind}, addresses...)
	return err
}

// leave is free for functions that leave in one way, and returns those that leave by --allow.
func (m machine) leave(way gate.Leaving, addresses ...pci.Address) (lifted []pci.Identity, err error) {
	var leaving []gate.Leaving
	for _, a := range addresses {
		s, err := driver.Read(m.root, a)
		if err != nil && !errors.Is(err, driver.ErrGone) {
			return nil, err
		}
		l := way
		if l.Address = a; pci.LeavesAlone(string(s.Driver)) {
			l = gate.Leaving{Address: a, Kind: gate.Returned}
		}
		if s.Driver != "" {
			leaving = append(leaving, l)
		}
	}
	return m.ask(leaving...)
}

// ask returns an error unless functions may leave the host now, and those that leave by --allow.
func (m machine) ask(leaving ...gate.Leaving) (lifted []pci.Identity, err error) {
	if len(leaving) == 0 {
		return nil, nil
	}
	return gate.Leave(m.root, true, m.allowed, leaving...)
}

// is returns an error unless the recorded function is at its address, with the bridges above it: the
// steps must not touch another one.
func (m machine) is(a pci.Identity) error {
	now, err := pci.ReadIdentity(m.root, a.Address)
	if err != nil {
		return err
	}
	switch a.Compare(now) {
	case pci.NoDifference:
		return nil
	case pci.Missing:
		return fmt.Errorf("%s: %w", a.Address, driver.ErrGone)
	case pci.IDsUnread:
		return fmt.Errorf("%s: vendor and product id cannot be read", a.Address)
	case pci.OtherProduct:
		return fmt.Errorf("%s: %w: it is %s:%s, not %s:%s", a.Address, errOther, now.VendorID, now.ProductID, a.VendorID, a.ProductID)
	case pci.OtherBoard:
		return fmt.Errorf("%s: %w: it is on another board", a.Address, errOther)
	case pci.OtherSlot:
	}
	return fmt.Errorf("%s: %w: the bridges above it are %v, not %v", a.Address, errOther, now.Path, a.Path)
}

// bound returns an error unless an adapter is the recorded one and has its host driver.
func (m machine) bound(a rdma.Prepared) error {
	if err := m.is(a.Identity()); err != nil {
		return err
	}
	s, err := driver.Read(m.root, a.Address)
	if err == nil && a.Driver != "" && string(s.Driver) != a.Driver {
		err = fmt.Errorf("%s: %w: %s instead of %s", a.Address, errHost, s.Driver, a.Driver)
	}
	return err
}

// wait waits until ready returns nil, no longer than devices have to appear. Another adapter does
// not become the recorded one.
func wait(ctx context.Context, m machine, ready func() error) error {
	ctx, cancel := context.WithDeadline(ctx, m.appear)
	defer cancel()
	var other error
	err := driver.Wait(ctx, func() error {
		err := ready()
		if errors.Is(err, errOther) {
			other = err
			return nil
		}
		return err
	})
	return errors.Join(err, other)
}

// netns is the step that sets how RDMA devices belong to network namespaces.
type netns struct{}

type netnsBefore struct {
	Mode string `json:"mode"`
}

// look finds the mode set by the option of module ib_core, as a rule: later it can hardly change.
func (netns) look(ctx context.Context, m machine) (before any, reached bool, err error) {
	var mode string
	err = wait(ctx, m, func() error {
		if mode, err = driver.Netns(m.root); err == nil && mode == "" {
			err = errNoCore
		}
		return err
	})
	return netnsBefore{mode}, mode == driver.NetnsExclusive, err
}

var errNoCore = host.WithHint(errors.New("the module ib_core is not loaded"), "modprobe ib_uverbs")

func (netns) carryOut(_ context.Context, m machine) error {
	return driver.SetNetnsMode(m.root, m.kernel, driver.NetnsExclusive)
}

func (netns) goes(machine, json.RawMessage) ([]pci.Address, error) { return nil, nil }

func (netns) revert(_ context.Context, m machine, raw json.RawMessage) error {
	var before netnsBefore
	if err := json.Unmarshal(raw, &before); err != nil {
		return err
	}
	mode, err := driver.Netns(m.root)
	if err != nil || mode == "" || mode == before.Mode {
		return err
	}
	return driver.SetNetnsMode(m.root, m.kernel, before.Mode)
}

// vfs is the step that creates the VFs of an adapter.
type vfs struct{ adapter rdma.Prepared }

type vfsBefore struct {
	driver.VFs
	Eswitch string `json:"eswitch"` // "" where the adapter shows none
	Made    []int  `json:"made"`    // the numbers of VFs that runs of this boot have created
	// Each are the VFs that the step destroys, by index: new ones have neither identity nor driver.
	Each []vfBefore `json:"each"`
}

type vfBefore struct {
	driver.VFOptions
	driver.State
}

func (v vfs) look(ctx context.Context, m machine) (before any, reached bool, err error) {
	b := vfsBefore{Made: []int{len(v.adapter.VFs)}, Each: []vfBefore{}}
	err = wait(ctx, m, func() error {
		if err := m.bound(v.adapter); err != nil {
			return err
		}
		b.VFs, err = driver.ReadVFs(m.root, v.adapter.Address)
		if err == nil {
			b.Eswitch, err = driver.Eswitch(m.root, v.adapter.Address)
		}
		if err == nil && v.adapter.Eswitch != "" && b.Eswitch == "" {
			err = fmt.Errorf("%s: %w", v.adapter.Address, driver.ErrNoInterface)
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	reached = b.Count == len(v.adapter.VFs) && (v.adapter.Eswitch == "" || v.adapter.Eswitch == b.Eswitch)
	if reached {
		return b, true, v.addresses(m)
	}
	for i, a := range b.Addresses {
		var each vfBefore
		if each.State, err = driver.Read(m.root, a); err == nil && v.adapter.LinkLayer != "" {
			each.VFOptions, err = driver.ReadIdentity(m.root, m.kernel, v.adapter.Address, i)
		}
		if err != nil {
			return nil, false, err
		}
		b.Each = append(b.Each, each)
	}
	return b, false, nil
}

func (v vfs) again(raw json.RawMessage) (any, error) {
	var b vfsBefore
	err := json.Unmarshal(raw, &b)
	b.Made = append(b.Made, len(v.adapter.VFs))
	return b, err
}

// differs leaves a number alone that was set by hand since, unless the record has changed too.
func (v vfs) differs(m machine, raw json.RawMessage) ([]pci.Address, bool, error) {
	now, before, _, err := v.unmade(m, raw)
	if err != nil && !errors.Is(err, ErrChangedSince) {
		return nil, false, err
	}
	want, made := len(v.adapter.VFs), before.Made
	changed := len(made) == 0 || made[len(made)-1] != want
	if now.Count == want || !changed && !slices.Contains(made, now.Count) {
		return nil, false, nil
	}
	return now.Addresses, true, err
}

// addresses returns an error unless the VFs have the recorded addresses.
func (v vfs) addresses(m machine) error {
	now, err := driver.ReadVFs(m.root, v.adapter.Address)
	if err != nil {
		return err
	}
	var errs []error
	for i, vf := range v.adapter.VFs {
		if i >= len(now.Addresses) || now.Addresses[i] != vf.Address {
			errs = append(errs, fmt.Errorf("VF %d of %s: %w: %s", i, v.adapter.Address, errMoved, vf.Address))
		}
	}
	return errors.Join(errs...)
}

func (v vfs) carryOut(ctx context.Context, m machine) error {
	if err := m.setVFs(ctx, v.adapter.Address, len(v.adapter.VFs), v.adapter.Eswitch, false); err != nil {
		return err
	}
	return v.addresses(m)
}

// setVFs destroys the VFs of an adapter, unless one is in use, sets the mode of its eswitch, which
// can change only then, and creates n new ones.
func (m machine) setVFs(ctx context.Context, a pci.Address, n int, eswitch string, probe bool) error {
	now, err := driver.ReadVFs(m.root, a)
	if err == nil {
		err = m.free(gate.Removed, now.Addresses...)
	}
	if err == nil && now.Count != 0 {
		err = driver.SetVFs(ctx, m.root, m.kernel, a, 0)
	}
	if err != nil {
		return err
	}
	if eswitch != "" {
		mode, err := driver.Eswitch(m.root, a)
		if err == nil && mode != eswitch {
			err = driver.SetEswitch(ctx, m.root, m.kernel, a, eswitch)
		}
		if err != nil {
			return err
		}
	}
	if now.Autoprobe.Known() && now.Autoprobe != host.BoolOf(probe) {
		if err := driver.SetAutoprobe(m.root, m.kernel, a, probe); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	if err := m.mayMake(a); err != nil {
		return err
	}
	return driver.SetVFs(ctx, m.root, m.kernel, a, n)
}

// mayMake returns an error if VFs would remove the RDMA device of a bond that is in use. Of an
// adapter without a bond nothing is read.
func (m machine) mayMake(a pci.Address) error {
	bond, err := rdma.ReadBond(m.root, a)
	if err != nil || bond == nil {
		return err
	}
	_, err = m.ask(gate.Leaving{Address: a, Kind: gate.Making})
	return err
}

// unmade returns the number of VFs and what was before, or false if the state is that of before.
func (v vfs) unmade(m machine, raw json.RawMessage) (now driver.VFs, before vfsBefore, pending bool, err error) {
	if err := json.Unmarshal(raw, &before); err != nil {
		return now, before, false, err
	}
	now, err = driver.ReadVFs(m.root, v.adapter.Address)
	if errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrNoSRIOV) {
		return now, before, false, nil // without its driver it has no VFs
	}
	if err != nil {
		return now, before, false, err
	}
	mode, err := driver.Eswitch(m.root, v.adapter.Address)
	if err != nil {
		return now, before, false, err
	}
	probe := now.Autoprobe.Known() && before.Autoprobe.Known() && now.Autoprobe != before.Autoprobe
	pending = now.Count != before.Count || before.Eswitch != "" && mode != "" && mode != before.Eswitch || probe
	if pending && !slices.Contains(append(before.Made, 0, before.Count), now.Count) {
		err = fmt.Errorf("%s: sriov_numvfs %w: it is %d, this boot made it %v", v.adapter.Address, ErrChangedSince, now.Count, before.Made)
	}
	return now, before, pending, err
}

func (v vfs) goes(m machine, raw json.RawMessage) ([]pci.Address, error) {
	now, before, pending, err := v.unmade(m, raw)
	if !pending || now.Count == before.Count {
		return nil, err
	}
	return now.Addresses, err
}

func (v vfs) revert(ctx context.Context, m machine, raw json.RawMessage) error {
	now, before, pending, err := v.unmade(m, raw)
	if err != nil || !pending {
		return err
	}
	probe := before.Autoprobe != host.No
	if now.Count == before.Count && now.Autoprobe.Known() && now.Autoprobe != host.BoolOf(probe) {
		if err := driver.SetAutoprobe(m.root, m.kernel, v.adapter.Address, probe); err != nil {
			return err
		}
		if _, _, pending, err = v.unmade(m, raw); err != nil || !pending {
			return err
		}
	}
	if err := m.setVFs(ctx, v.adapter.Address, before.Count, before.Eswitch, probe); err != nil || before.Count == 0 {
		return err
	}
	if now, err = driver.ReadVFs(m.root, v.adapter.Address); err != nil {
		return err
	}
	var errs []error
	for i, each := range before.Each {
		if i >= len(now.Addresses) {
			break
		}
		if each.VFOptions != (driver.VFOptions{}) {
			errs = append(errs, driver.SetIdentity(m.root, m.kernel, v.adapter.Address, i, each.VFOptions))
		}
		errs = append(errs, driver.Bring(ctx, m.root, m.kernel, now.Addresses[i], each.State, m.settle))
	}
	return errors.Join(errs...)
}

// identity is the step that gives a VF its GUIDs or its MAC address.
type identity struct {
	adapter rdma.Prepared
	vf      rdma.PreparedVF
	want    driver.VFOptions
}

type identityBefore struct {
	PF    pci.Address `json:"pf"`
	Index int         `json:"index"`
	driver.VFOptions
	Made driver.VFOptions `json:"made"`
}

func (i identity) look(ctx context.Context, m machine) (before any, reached bool, err error) {
	var now driver.VFOptions
	err = wait(ctx, m, func() error {
		now, err = driver.ReadIdentity(m.root, m.kernel, i.adapter.Address, i.vf.Index)
		return err
	})
	lacks := now.Lacks(i.want)
	if m.done { // a kernel before Linux 5.5 does not show GUIDs: it has confirmed them
		lacks = now.Shown(lacks)
	}
	return identityBefore{i.adapter.Address, i.vf.Index, now, i.want}, lacks == driver.VFOptions{}, err
}

func (i identity) carryOut(ctx context.Context, m machine) error {
	if err := m.free(gate.Removed, i.vf.Address); err != nil {
		return err
	}
	// A host driver reads the identity of a VF only when it binds the VF.
	s, err := driver.Read(m.root, i.vf.Address)
	if err == nil && s.Driver != "" && !pci.LeavesAlone(string(s.Driver)) {
		err = driver.Bring(ctx, m.root, m.kernel, i.vf.Address, driver.State{Override: s.Override}, m.settle)
	}
	if err != nil {
		return err
	}
	return driver.SetIdentity(m.root, m.kernel, i.adapter.Address, i.vf.Index, i.want)
}

func (i identity) again(raw json.RawMessage) (any, error) {
	var b identityBefore
	err := json.Unmarshal(raw, &b)
	b.Made = i.want
	return b, err
}

func (i identity) differs(_ machine, raw json.RawMessage) ([]pci.Address, bool, error) {
	var b identityBefore
	if err := json.Unmarshal(raw, &b); err != nil || b.Made == i.want {
		return nil, false, err
	}
	return []pci.Address{i.vf.Address}, true, nil
}

func (i identity) goes(m machine, raw json.RawMessage) ([]pci.Address, error) {
	pending, _, err := i.unmade(m, raw)
	if !pending {
		return nil, err
	}
	return []pci.Address{i.vf.Address}, err
}

// unmade reports whether the VF still is the same and has the identity that this boot gave it.
func (i identity) unmade(m machine, raw json.RawMessage) (bool, identityBefore, error) {
	var b identityBefore
	if err := json.Unmarshal(raw, &b); err != nil {
		return false, b, err
	}
	now, err := driver.ReadVFs(m.root, b.PF)
	if errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrNoSRIOV) {
		return false, b, nil
	}
	if err != nil || b.Index >= len(now.Addresses) || now.Addresses[b.Index] != i.vf.Address {
		return false, b, err
	}
	identity, err := driver.ReadIdentity(m.root, m.kernel, b.PF, b.Index)
	return err == nil && identity.Lacks(b.VFOptions) != driver.VFOptions{}, b, err
}

func (i identity) revert(_ context.Context, m machine, raw json.RawMessage) error {
	pending, b, err := i.unmade(m, raw)
	if err != nil || !pending {
		return err
	}
	if err := m.free(gate.Removed, i.vf.Address); err != nil {
		return err
	}
	return driver.SetIdentity(m.root, m.kernel, b.PF, b.Index, b.VFOptions)
}

// binding is the step that binds a VF, a whole adapter, or a function for guests to its driver.
type binding struct {
	adapter rdma.Prepared
	address pci.Address
	driver  string
	is      *pci.Identity // of what is recorded with its identity, nil for a VF
}

type bindingBefore struct {
	driver.State
	Made string `json:"made"`
}

func (b binding) goal() driver.State {
	return driver.State{Driver: driver.Name(b.driver), Override: driver.Name(b.driver)}
}

func (b binding) look(ctx context.Context, m machine) (before any, reached bool, err error) {
	var s driver.State
	err = wait(ctx, m, func() error {
		if b.is != nil {
			if err := m.is(*b.is); err != nil {
				return err
			}
		}
		s, err = driver.Read(m.root, b.address)
		return err
	})
	return bindingBefore{s, b.driver}, s == b.goal(), err
}

func (b binding) carryOut(ctx context.Context, m machine) error {
	way := gate.Leaving{Kind: gate.Now, Guests: true, Whole: b.adapter.Whole}
	if b.is == nil {
		way.Kind = gate.Removed // a VF, whose host driver loses it
	}
	if _, err := m.leave(way, b.address); err != nil {
		return err
	}
	release, err := gate.HoldDisks(m.root, m.claim, b.address)
	if err != nil {
		return err
	}
	return errors.Join(driver.Bring(ctx, m.root, m.kernel, b.address, b.goal(), m.settle), release())
}

func (b binding) again(raw json.RawMessage) (any, error) {
	var before bindingBefore
	err := json.Unmarshal(raw, &before)
	before.Made = b.driver
	return before, err
}

func (b binding) differs(_ machine, raw json.RawMessage) ([]pci.Address, bool, error) {
	var before bindingBefore
	if err := json.Unmarshal(raw, &before); err != nil || before.Made == b.driver {
		return nil, false, err
	}
	return []pci.Address{b.address}, true, nil
}

func (b binding) goes(m machine, raw json.RawMessage) ([]pci.Address, error) {
	_, pending, err := b.unmade(m, raw)
	if !pending {
		return nil, err
	}
	return []pci.Address{b.address}, err
}

func (b binding) unmade(m machine, raw json.RawMessage) (before bindingBefore, pending bool, err error) {
	if err := json.Unmarshal(raw, &before); err != nil {
		return before, false, err
	}
	now, err := driver.Read(m.root, b.address)
	if errors.Is(err, driver.ErrGone) || errors.Is(err, unix.ENOENT) {
		return before, false, nil
	}
	return before, err == nil && now != before.State, err
}

func (b binding) revert(ctx context.Context, m machine, raw json.RawMessage) error {
	before, pending, err := b.unmade(m, raw)
	if err != nil || !pending {
		return err
	}
	if err := m.free(gate.Now, b.address); err != nil {
		return err
	}
	return driver.Bring(ctx, m.root, m.kernel, b.address, before.State, m.settle)
}
