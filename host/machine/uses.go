package machine

import (
	"fmt"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/pci"
)

// InUse is a function that somebody uses, and who does.
type InUse struct {
	Address pci.Address
	PID     int
	Command string
	File    string // that a process has open, or "" for a guest
	Unit    string // systemd's that the process belongs to, or "" for none
	Guest   string // its uuid or name, or ""
}

func (e *InUse) Error() string {
	return e.Address.String() + ": " + e.Who()
}

// Who says who uses the function, and how.
func (e *InUse) Who() string {
	who := fmt.Sprintf("%s (pid %d)", e.Command, e.PID)
	if e.Unit != "" {
		who = fmt.Sprintf("%s (pid %d, %s)", e.Command, e.PID, e.Unit)
	}
	if e.File != "" {
		return who + " has " + e.File + " open"
	}
	if e.Guest != "" {
		who = e.Guest + ", " + who
	}
	return "a guest has it: " + who
}

// Uses is who uses functions at this moment.
type Uses struct {
	Running bool // the tree is the running machine's: what cannot be told is an error
	Holders []guard.Holder
	Guests  guest.Report
}

// ObserveUses looks who uses functions.
func ObserveUses(root host.Root, devices pci.Devices, running bool) (Uses, error) {
	holders, err := guard.Holders(root, devices)
	return Uses{running, holders, guest.Observe(root, guest.NovaConf{}, time.Now())}, err
}

// Guest returns the guest that has a function, or nil.
func (u Uses) Guest(a pci.Address) *InUse {
	name := func(uuid, name *string) string {
		if uuid != nil {
			return *uuid
		}
		return text(name)
	}
	for _, h := range u.Guests.Holders {
		if slices.Contains(h.Functions, a) {
			return &InUse{Address: a, PID: h.PID, Command: h.Command, Guest: name(h.UUID, h.Name)}
		}
	}
	for _, g := range u.Guests.Guests {
		if slices.Contains(g.Asked, a) {
			return &InUse{Address: a, PID: g.PID, Command: g.Command, Guest: name(g.UUID, g.Name)}
		}
	}
	return nil
}

// Unknown says why it is not known which guests have which functions, or "". What was read
// of a source that could not be read whole does not count: a list may lack a guest.
func (u Uses) Unknown() string {
	seen := u.Guests.Holders != nil && u.Guests.Guests != nil
	for _, s := range u.Guests.Unread() {
		if s.Name == "processes" || s.Name == "vfio" || !seen && s.Name == "groups" {
			return s.Name + ": " + s.Detail
		}
	}
	if !seen {
		return "not everything could be read"
	}
	for _, h := range u.Guests.Holders {
		if h.Functions == nil {
			return fmt.Sprintf("%s (pid %d) has some that are not known", h.Command, h.PID)
		}
	}
	return ""
}
