package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/pci"
)

// InUse is the error for a function that a process or a guest uses.
type InUse struct {
	Address pci.Address
	PID     int
	Command string
	File    string // the file that a process has open, or "" for a guest
	Unit    string // the systemd unit of the process, or "" for none
	Guest   string // the guest's uuid or name, or ""
}

func (e *InUse) Error() string {
	return e.Address.String() + ": " + e.Who()
}

// Hint returns how to end the use. nvidia-persistenced and DCGM keep GPUs open for as long as they
// run.
func (e *InUse) Hint() string {
	switch {
	case e.File == "":
		return "'gpustack host guests' shows all guests; stop or migrate the guest first"
	case strings.HasSuffix(e.Unit, ".service") && !strings.HasPrefix(e.Unit, "user@"):
		return "systemctl stop " + e.Unit + ", and start it again afterwards if GPUs remain with the host"
	case strings.HasSuffix(e.Unit, ".scope"):
		return "end it: it runs in " + e.Unit + ", a container or a session"
	}
	return fmt.Sprintf("end process %d", e.PID)
}

// Who returns which process or guest uses the function, and how.
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
	return "assigned to guest " + who
}

// Uses are the processes and guests that use functions at this moment.
type Uses struct {
	Running bool // the tree is the running machine's: unknown uses are an error
	Holders []guard.Holder
	Guests  guest.Report
}

// ObserveUses determines which processes and guests use functions.
func ObserveUses(root host.Root, devices pci.Devices, running bool) (Uses, error) {
	holders, err := guard.Holders(root, devices)
	return Uses{running, holders, guest.Observe(root, guest.NovaConf{}, time.Now())}, err
}

// Guest returns the guest that uses a function, or nil.
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

// Unknown returns why it cannot be determined which guests use which functions, or "". A source
// that was read in part counts as unread: its list may lack a guest.
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
			return fmt.Sprintf("%s (pid %d) has functions that are not known", h.Command, h.PID)
		}
	}
	return ""
}
