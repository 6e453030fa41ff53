package machine

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/guest"
	"gpustack/host/pci"
)

// readRecord reads the journal, the state of the files and functions that the contract records,
// and when the machine was booted.
func (o *observer) readRecord() {
	root, contract := o.root, o.Contract.Value
	o.findUnfinished()
	o.readTimes()
	if contract == nil {
		return
	}
	o.Files = host.Map(contract.Files, func(h Hash) Look[string] { return ReadHash(root, h.Name) })
	o.Paths = map[pci.Address]string{}
	for _, f := range contract.Functions {
		if f.SysfsPath == "" {
			continue
		}
		if place, err := root.Real(AttributeFile(f.Address, "")); err == nil { // otherwise the function is missing
			o.Paths[f.Address] = place
		}
	}
	lines, file, err := host.KernelLog(root, contract.claims())
	o.Claims = Saw(file, lines, err)
}

// readTimes reads when the machine was booted and when its record was written.
func (o *observer) readTimes() {
	entries, err := o.journal.Entries, o.journal.Err
	o.Prepared = Saw(change.Dir, writtenAt(entries), err)
	o.Booted = ReadBootTime(o.root)
	o.Unbooted = Saw(change.Dir, false, err)
	if err == nil && slices.ContainsFunc(entries, takesBoot) {
		o.Unbooted = Saw(o.Booted.File, unbooted(entries, o.Booted.Value), o.Booted.Err)
	}
}

// takesBoot reports whether an entry changed what is recorded for guests in a way that takes effect
// at the next boot.
func takesBoot(e change.Entry) bool {
	return len(e.Programs)+len(e.Left) > 0 && ChangesGuests(e)
}

// ChangesGuests reports whether an entry changed what is recorded for guests. Other entries that
// changed the contract's file changed what is recorded for containers.
func ChangesGuests(e change.Entry) bool {
	return recorded(e) != nil && e.Topic().Subject == change.OfGuests
}

// recorded returns the change of the contract by an entry, nil for none.
func recorded(e change.Entry) *change.File {
	if i := slices.IndexFunc(e.Files, func(f change.File) bool { return f.Name == ContractFile }); i >= 0 {
		return &e.Files[i]
	}
	return nil
}

// unbooted reports whether the record that was in force when the machine was booted is another one
// than that of now.
func unbooted(entries []change.Entry, booted time.Time) bool {
	var now, atBoot string
	different, first := false, true
	same := map[string]string{} // the hash before something else was recorded for containers
	guests := func(s *change.State) string {
		hash := host.Value(s).Hash
		if earlier, ok := same[hash]; ok {
			return earlier
		}
		return hash
	}
	for _, e := range entries {
		f := recorded(e)
		if f != nil && f.After != nil && !ChangesGuests(e) {
			same[f.After.Hash] = guests(f.Before)
		}
		if !takesBoot(e) {
			continue
		}
		if first {
			now, atBoot, first = guests(f.Before), guests(f.Before), false
		}
		inForce := e.Status != change.Undone
		then := !e.Started.After(booted) && (inForce || e.Ended == nil || e.Ended.After(booted))
		if inForce {
			now = guests(f.After)
		}
		if then {
			atBoot = guests(f.After)
		}
		different = different || inForce != then
	}
	return different && now != atBoot
}

// ReadHash returns the hash of a file that a record names, "" for a missing one.
func ReadHash(root host.Root, name string) Look[string] {
	data, err := root.ReadFile(name)
	switch {
	case host.IsAbsent(err):
		return Saw(name, "", nil)
	case err != nil:
		return Saw(name, "", err)
	}
	return Saw(name, host.Hash(data), nil)
}

// findUnfinished finds the open entries of the journal, unless a run that is active now may still
// finish them.
func (o *observer) findUnfinished() {
	open, err := o.journal.Unfinished()
	var cutOff *change.Entry
	for i, e := range open {
		switch {
		case err != nil: // locked
		case change.OnMachine(e):
			cutOff = &open[i]
		default:
			o.OpenElsewhere = append(o.OpenElsewhere, e)
		}
	}
	o.CutOff = Saw(change.Dir, cutOff, err)
}

// claims returns a function that reports whether the kernel logs with a line that a driver for
// passthrough claims a recorded function: through its ids (Linux, drivers/vfio/pci/vfio_pci.c,
// vfio_pci_fill_ids), or any (drivers/pci/pci-stub.c).
func (c Contract) claims() func(line string) bool {
	ids, addresses := map[string]bool{}, map[string]bool{}
	for _, f := range c.Functions {
		ids[f.IDs()] = true
		addresses[f.Address.String()] = true
	}
	return func(line string) bool {
		const length = len("10de:11b4")
		if _, added, ok := strings.Cut(line, "vfio_pci: add ["); ok && len(added) >= length && ids[added[:length]] {
			return true
		}
		_, claimed, ok := strings.Cut(line, "pci-stub ")
		address, _, by := strings.Cut(claimed, ": claimed by stub")
		return ok && by && addresses[address]
	}
}

// writtenAt returns when the last completed entry that recorded something for guests ended, nil
// without one.
func writtenAt(entries []change.Entry) *time.Time {
	for _, e := range slices.Backward(entries) {
		if e.Status == change.Done && ChangesGuests(e) {
			return e.Ended
		}
	}
	return nil
}

// ReadBootTime reads when the machine was booted (proc_stat(5), btime).
func ReadBootTime(root host.Root) Look[time.Time] {
	data, err := root.ReadFile(statFile)
	if err != nil {
		return Saw(statFile, time.Time{}, err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return Saw(statFile, time.Unix(seconds, 0).UTC(), err)
		}
	}
	return Saw(statFile, time.Time{}, errors.New("has no btime"))
}

// inspect inspects the functions that are, or would be, assigned to guests.
func (o *observer) inspect() {
	o.Guests = o.forGuests()
	borrowed := false
	var linked, grouped []pci.Device
	for _, d := range o.Guests {
		f := o.Recorded(d.Address)
		borrowed = borrowed || f != nil && f.MayBeBorrowed(d.DriverName())
		if d.IsGPU() && !d.IsVF() {
			linked = append(linked, d)
		}
		if d.IsGPU() && d.IOMMUGroup != nil {
			grouped = append(grouped, d)
		}
	}
	inspected, warnings := pci.Inspect(o.root, o.Guests)
	bridges, err := o.Devices.Value.SwitchedOff(o.root, grouped)
	if err != nil {
		warnings = append(warnings, strings.Split(err.Error(), "\n")...)
	}
	o.Inspected, o.SwitchedOff = inspected, bridges
	o.warn(warnings...)
	o.Links = pci.ReadPCIeLinks(o.root, linked)
	if !borrowed {
		return
	}
	// libvirt may bind a function to another VFIO driver for a guest, and binds it back when the
	// guest stops.
	report := guest.ObserveUses(o.root)
	o.Open = Saw("/proc", map[int]bool{}, nil)
	for _, s := range report.Unread() {
		if s.Name == "processes" || s.Name == "vfio" {
			o.Open.Err = errors.New(s.Detail)
		}
	}
	for _, h := range report.Holders {
		if h.Group != nil {
			o.Open.Value[*h.Group] = true
		}
	}
}
