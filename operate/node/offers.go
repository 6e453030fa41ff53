package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
	"gpustack/nova"
	"gpustack/nova/devspec"
	"gpustack/nova/novacheck"
)

// recorded returns the functions of a machine that have a role, by its record.
func recorded(m machine.Machine) nova.Recorded {
	guests := m.Contract.Value.There(m.Devices.Value)
	return nova.Recorded{
		Given: guests.Addresses(), Selected: host.Value(guests).Selected, Returning: m.Unbooted.Value, Containers: m.Containers.Addresses(),
		Needed: gate.New(m).Needed(),
	}
}

// judgeOffers returns what nova check finds about the functions that the nova-computes of a machine
// offer. The machine was observed by [machine.ObserveCheck]. A failure of Nova's configuration is a
// warning here: the machine itself is ready for it. The value is nil if the machine runs no
// nova-compute. Where the journal cannot be read, no line counts as written by gpustack. configure
// offers what is prepared, or without a nova-compute prints how.
func judgeOffers(root host.Root, m machine.Machine, journal change.Seen) (found machine.Look[[]host.Finding], configure host.Command) {
	r := recorded(m)
	adapters, recordErr := rdma.ReadRecord(root)
	made, madeErr := steps.Made(root)
	r.VFs, r.Left = adapters.VFs(rdma.ForGuests, m.Devices.Value), adapters.Left(m.Devices.Value, made)
	offered, err := nova.ReadOffered(root, m.Devices.Value, r, nil)
	err = errors.Join(err, recordErr, madeErr)
	here := nova.ComputeNode{Devices: m.Devices.Value, Written: nova.Written(journal.Entries), Recorded: r}
	if configure = offered.Configure(here); err == nil && len(offered.Files) == 0 {
		configure = configure.Flag("release", "RELEASE").Flag("render", "ini")
	}
	if err != nil || len(offered.Files) == 0 || !m.Devices.Seen() || !m.Contract.Seen() {
		return machine.Saw[[]host.Finding](nova.DefaultConf, nil, err), configure
	}
	// Without lines of others, which no command of gpustack removes, and those of recorded functions that
	// are gone: the check functions has their remedy.
	offered.Lacking = host.Filter(offered.Lacking, func(l devspec.Reported) bool {
		return here.Wrote(l.Line) && !slices.ContainsFunc(r.Given, func(a pci.Address) bool { return a.String() == l.Spec.Single })
	})
	waits := check.RebootRequired(m) == host.Yes // functions that the boot binds are offered after it
	here.Selected = slices.DeleteFunc(slices.Clone(here.Selected), func(a pci.Address) bool {
		d := m.Devices.Value.At(a)
		return d == nil || waits && !pci.LeavesAlone(d.DriverName()) && len(offered.Of([]pci.Address{a})) == 0
	})
	findings := novacheck.Prepared(offered, here)
	for i := range findings {
		findings[i].Status = host.Warn
	}
	if findings == nil && len(here.Selected) > 0 {
		findings = []host.Finding{{Status: host.Pass, Seen: fmt.Sprintf("%s offers %s to guests", offered.Files[0], host.Numbered(len(here.Selected), "selected function"))}}
	}
	return machine.Saw(nova.DefaultConf, findings, nil), configure
}

// ofLeaving returns a warning that names the functions which leave the host by a plan of files.
func ofLeaving(root host.Root, devices pci.Devices, plan edit.Changes) []string {
	before, after, _, err := gate.Changed(root, plan)
	if err != nil {
		return nil // the plan's own
	}
	leaving := host.Filter(gate.Leaves(devices, nil, before, after), func(l gate.Leaving) bool { return l.Kind == gate.AtBoot })
	if leaving == nil {
		return nil
	}
	return []string{"functions that leave the host at the next boot: " + pci.Joined(host.Map(leaving, func(l gate.Leaving) pci.Address { return l.Address }), " ")}
}

// ofReturned returns warnings of functions that a plan of files returns to the host: which guests
// have them, and each line of Nova's configuration that offers them. devices are not observed while a write to sysfs of an
// earlier run may be stuck.
func ofReturned(root host.Root, devices machine.Look[pci.Devices], plan edit.Changes) []string {
	before, after, changed, err := gate.Changed(root, plan)
	if err != nil || !changed {
		return nil // an error of the record is the plan's own
	}
	had, has := before.RDMA.VFs(rdma.ForGuests, devices.Value), append(after.Guests.Addresses(), after.RDMA.VFs(rdma.ForGuests, devices.Value)...)
	returned := host.Filter(append(before.Guests.Addresses(), had...), func(a pci.Address) bool { return !slices.Contains(has, a) })
	if returned == nil {
		return nil
	}
	return append(usedReturned(root, returned), offeredReturned(root, devices, after.Guests, returned, plan)...)
}

// usedReturned returns a warning for each guest that has functions which return to the host at the
// next boot.
func usedReturned(root host.Root, returned []pci.Address) (warnings []string) {
	uses := machine.Uses{Guests: guest.ObserveUses(root)}
	if why := uses.Unknown(); why != nil && root.IsMachine() {
		warnings = append(warnings, gate.GuestsUnknown("functions that return to the host", why).Error())
	}
	guests, has := uses.ByGuests(), map[string][]pci.Address{}
	for _, a := range returned {
		if g := guests[a]; g != nil {
			has[g.Who()] = append(has[g.Who()], a)
		}
	}
	for _, who := range slices.Sorted(maps.Keys(has)) {
		warnings = append(warnings, fmt.Sprintf("%s: %s: stop the guest before the reboot", gate.Shortened(has[who]), who))
	}
	return warnings
}

// offeredReturned returns a warning for each line of Nova's configuration, as the plan leaves it, that
// offers functions which return to the host. remains is what is recorded for guests then, nil for nothing: functions that are
// among it return until the next boot.
func offeredReturned(root host.Root, devices machine.Look[pci.Devices], remains *machine.Contract, returned []pci.Address, plan edit.Changes) []string {
	const unknown = "cannot determine whether Nova still offers functions that return to the host: "
	r := nova.Recorded{Given: remains.Addresses(), Selected: host.Value(remains).Selected}
	switch {
	case devices.File == "":
		return []string{unknown + "functions are not read while an earlier run's write to sysfs may be stuck in the kernel"}
	case !devices.Seen() && !errors.Is(devices.Err, pci.ErrNoPCI):
		return []string{unknown + devices.Err.Error()}
	}
	offered, err := nova.ReadOffered(root, devices.Value, r, plan)
	if err != nil {
		return []string{unknown + err.Error()}
	}
	var warnings []string
	for _, functions := range nova.ByLine(offered.Of(returned)) {
		var names []string
		remedy := offered.Withdraw(functions, r.Given)
		for _, f := range functions {
			names = append(names, f.Device.Address.String())
			if remains.At(f.Device.Address) != nil {
				remedy = host.Textf("drain the host until the next boot; to return the functions for good: %s", host.NewCommand("host prepare").Flag("remove", names...))
			}
		}
		warnings = append(warnings, fmt.Sprintf("%s still offers %s to guests: %s", functions[0].Line.Where(), strings.Join(names, ", "), remedy))
	}
	return warnings
}

// offeredBack returns a warning for each device_spec by which an undo offers functions again that a
// driver of the host has.
func offeredBack(root host.Root, devices []pci.Device, undo edit.Changes) (warnings []string) {
	judged := func(planned edit.Changes) []host.Finding {
		offered, err := nova.ReadOffered(root, devices, nova.Recorded{}, planned)
		if err != nil {
			return nil // the undo refuses a file that it cannot read
		}
		return novacheck.Prepared(offered, nova.ComputeNode{Devices: devices})
	}
	now := judged(nil)
	for _, f := range judged(undo) {
		if f.Status == host.Fail && !slices.ContainsFunc(now, func(n host.Finding) bool { return n.Seen == f.Seen }) {
			warnings = append(warnings, fmt.Sprintf("%s, after the undo: %s: %s", f.File, f.Seen, f.Effect))
		}
	}
	return warnings
}
