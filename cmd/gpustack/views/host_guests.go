package views

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/guest"
	"gpustack/host/pci"
)

// PrintGuests prints a line for each guest and each group or device that it uses, then other users
// of groups and devices, then errors.
func PrintGuests(u *term.UI, r guest.Report) {
	u.Printf("%s\n", term.Printable(guestsLine(r)))
	rows := guestRows(r)
	tableBelow(u, []string{"GUEST", "NAME", "STATE", "PID", "COMMAND", "VFIO/VDPA", "FUNCTIONS"}, rows)
	if rows == nil && r.Complete {
		u.Printf("\nno guest, and no process uses a function\n")
	}
	u.Printf("\n")
	for _, n := range r.NovaCompute {
		since := either(n.Started != nil, host.Value(n.Started).Format(time.RFC3339), "an unknown time")
		u.Printf("nova-compute runs since %s, pid %d\n", since, n.PID)
	}
	if r.NovaCompute != nil && len(r.NovaCompute) == 0 {
		u.Printf("nova-compute does not run\n")
	}
	if r.Clock != nil && !r.Clock.Synchronized && r.Token == nil {
		u.Printf("the clock is not synchronized: repair-migration needs a report with a token\n")
	}
	if r.Doubtful != nil {
		u.Printf("%s\n", u.Paint(term.Red, term.Printable(strings.Join(r.Doubtful.Because, "; "))+": no network function is proved to be unused"))
	}
	for _, s := range r.Unread() {
		u.Printf("%s\n", u.Paint(term.Red, fmt.Sprintf("not readable: %s: %s", s.Name, term.Printable(s.Detail))))
	}
}

// guestsLine returns a line with the machine's name and the time of the observation.
func guestsLine(r guest.Report) string {
	return fmt.Sprintf("%s (by %s), machine %s, %s", Text(r.NovaHost), Text(r.NovaHostFrom), Text(r.MachineID), r.Collected.Format(time.RFC3339))
}

// guestRows returns a row for each running guest and each of its groups and devices, for each other
// user of one, and for each domain that is not running.
func guestRows(r guest.Report) [][]string {
	held := map[int][]guest.Holder{}
	for _, h := range r.Holders {
		held[h.PID] = append(held[h.PID], h)
	}
	domains := map[string]guest.Domain{}
	for _, d := range r.Domains {
		domains[d.UUID] = d
	}
	var rows [][]string
	for _, g := range r.Guests {
		row := []string{Text(g.UUID), Text(g.Name), "runs", strconv.Itoa(g.PID), g.Command, "-", "-"}
		if len(g.Asked) > 0 {
			row[6] = listAddresses(g.Asked) + " (by its arguments)"
		}
		if g.UUID != nil {
			if of := domains[*g.UUID].Functions; len(g.Asked) == 0 && len(of) > 0 {
				row[6] = listAddresses(of) + " (by its domain)"
			}
			delete(domains, *g.UUID)
		}
		if len(held[g.PID]) == 0 {
			rows = append(rows, row)
		}
		for _, h := range held[g.PID] {
			rows = append(rows, append(row[:5:5], openName(h), listAddresses(h.Functions)))
			row = []string{"", "", "", "", "", "", ""}
		}
		delete(held, g.PID)
	}
	for _, h := range r.Holders {
		if _, left := held[h.PID]; left {
			rows = append(rows, []string{"-", "-", "no guest", strconv.Itoa(h.PID), h.Command, openName(h), listAddresses(h.Functions)})
		}
	}
	for _, d := range r.Domains {
		if _, left := domains[d.UUID]; left {
			state := either(d.Running, "runs, no process", "defined")
			rows = append(rows, []string{d.UUID, d.Name, state, "-", "-", "-", listAddresses(d.Functions)})
		}
	}
	return rows
}

// openName returns the name of the group or device that a holder has open.
func openName(h guest.Holder) string {
	if name := cmp.Or(h.Device, h.VDPA); name != nil {
		return *name
	}
	return Text(h.Group)
}

// listAddresses joins addresses. Unknown ones are a question mark.
func listAddresses(addresses []pci.Address) string {
	if addresses == nil {
		return "?"
	}
	return orDash(pci.Joined(addresses, " "))
}
