package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/pci"
)

// InUse is the error for a function that a guest uses.
type InUse struct {
	Address pci.Address
	PID     int
	Command string
	Guest   string // the guest's uuid or name, or ""
}

func (e *InUse) Error() string {
	return e.Address.String() + ": " + e.Who()
}

// Refusal returns the code of the error: no option lifts it.
func (*InUse) Refusal() (code host.Code, allow string) { return host.CodeInUse, "" }

// Hint returns how to end the use.
func (e *InUse) Hint() string { return e.HintText().String() }

// HintText returns the hint with its command as a part.
func (*InUse) HintText() host.Text {
	return host.Textf("'%s' shows all guests; stop or migrate the guest first", host.NewCommand("host guests"))
}

// Who returns which guest uses the function.
func (e *InUse) Who() string {
	who := fmt.Sprintf("%s (pid %d)", e.Command, e.PID)
	if e.Guest != "" {
		who = e.Guest + ", " + who
	}
	return "assigned to guest " + who
}

// Uses are the processes and guests that use functions at this moment.
type Uses struct {
	Running bool // the tree is the running machine's: unknown uses are an error
	Holders []guard.Holder
	Guests  guest.Report
	// Units are the states of the services that may be stopped, and of all that systemd stops with
	// them, by name. Persistence says whether GPUs of the driver nvidia are in persistence mode.
	Units       Look[map[string]driver.Unit]
	Persistence Look[map[pci.Address]bool]
}

// ObserveUses determines which processes and guests use functions.
func ObserveUses(root host.Root, devices pci.Devices, running bool) (Uses, error) {
	holders, err := guard.Holders(root, devices)
	return Uses{Running: running, Holders: holders, Guests: guest.ObserveUses(root)}, err
}

// ObserveServices adds what programs of the running machine show: if stop is set, the services
// among the holders that may be stopped, and the persistence mode of GPUs. nvidia-smi is started
// only if the driver nvidia has a GPU.
func (u *Uses) ObserveServices(ctx context.Context, run driver.Program, devices pci.Devices, stop bool) {
	var names []string
	for _, h := range u.Holders {
		if h.Service && slices.Contains(driver.Owned(false), h.Unit) && !slices.Contains(names, h.Unit) {
			names = append(names, h.Unit)
		}
	}
	if stop && len(names) > 0 {
		units, err := driver.ReadUnits(ctx, run, names)
		u.Units = Saw("systemctl", units, err)
	}
	if slices.ContainsFunc(devices, func(d pci.Device) bool { return d.DriverName() == "nvidia" }) {
		modes, err := driver.ReadPersistence(ctx, run)
		u.Persistence = Saw("nvidia-smi", modes, err)
	}
}

// ByGuests returns the guest that uses each function which a guest uses.
func (u Uses) ByGuests() map[pci.Address]*InUse {
	used := map[pci.Address]*InUse{}
	add := func(functions []pci.Address, by InUse) {
		for _, a := range functions {
			if used[a] == nil {
				of := by
				of.Address = a
				used[a] = &of
			}
		}
	}
	for _, h := range u.Guests.Holders {
		add(h.Functions, InUse{PID: h.PID, Command: h.Command, Guest: host.Value(cmp.Or(h.UUID, h.Name))})
	}
	for _, g := range u.Guests.Guests {
		add(g.Asked, InUse{PID: g.PID, Command: g.Command, Guest: host.Value(cmp.Or(g.UUID, g.Name))})
	}
	return used
}

// Unknown returns why it cannot be determined which guests use which functions, or nil. A source
// that was read in part counts as unread: its list may lack a guest.
func (u Uses) Unknown() error {
	seen := u.Guests.Holders != nil && u.Guests.Guests != nil
	for _, s := range u.Guests.Unread() {
		if s.Name == "processes" || s.Name == "vfio" || !seen && s.Name == "groups" {
			return s.Err()
		}
	}
	if !seen {
		return errors.New("not everything could be read")
	}
	for _, h := range u.Guests.Holders {
		if h.Functions == nil {
			return fmt.Errorf("%s (pid %d) has functions that are not known", h.Command, h.PID)
		}
	}
	return nil
}
