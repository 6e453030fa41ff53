package selection

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Refusal is the error for a function that must not be assigned to guests, with the reason.
type Refusal struct {
	Address  pci.Address
	Reason   string
	Absolute bool      // --allow cannot lift it
	Err      error     // the error that it wraps, or nil
	Code     host.Code // "" for that of Err
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: %s", r.Address, r.Reason)
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error {
	return r.Err
}

// Refusal returns the code of the reason, and the option that lifts the refusal or "".
func (r *Refusal) Refusal() (code host.Code, allow string) {
	code = r.Code
	var wrapped interface {
		Refusal() (host.Code, string)
	}
	if errors.As(r.Err, &wrapped) {
		reason, option := wrapped.Refusal()
		code, allow = cmp.Or(code, reason), option
	}
	if !r.Absolute {
		allow = "--allow " + r.Address.String()
	}
	return code, allow
}

// Refuse returns the absolute refusal of a function for a known reason.
func Refuse(a pci.Address, err error) *Refusal {
	return &Refusal{Address: a, Reason: err.Error(), Absolute: true, Err: err}
}

// Separation is the error for a selection that contains only some of the GPUs and NVSwitches of a
// board, which work only together.
type Separation struct {
	Go, Remain []pci.Address // the selected functions of the board, and the others
	unread     bool          // the NVSwitches could not be determined
}

func (s *Separation) Error() string {
	if s.unread {
		return fmt.Sprintf("NVSwitches of the selected GPUs may be managed by %s, whose vital product data cannot be read: choose which side gets the NVSwitches",
			listed(s.Remain))
	}
	return fmt.Sprintf("GPUs and NVSwitches of one board would be separated: %s selected, %s not: choose which side gets the NVSwitches",
		shortened(s.Go), shortened(s.Remain))
}

// Refusal returns the code, and the option that chooses a side.
func (s *Separation) Refusal() (code host.Code, allow string) {
	return host.CodeNVSwitch, "--nvswitch"
}

func listed(addresses []pci.Address) string {
	var words []string
	for _, a := range addresses {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// Errors of functions of hosts that share a GPU between guests.
var (
	ErrVFs = host.WithHint(host.WithCode(errors.New("has virtual functions enabled"), host.CodeVirtualFunctions, ""),
		"once no guest has one, write 0 to the function's sriov_numvfs")
	ErrMediated = host.WithHint(host.WithCode(errors.New("has mediated devices"), host.CodeMediated, ""),
		"remove its mediated devices first: /sys/bus/mdev/devices/UUID/remove")
	// ErrForContainers is the refusal of a function that container prepare has recorded.
	ErrForContainers = host.WithHint(host.WithCode(errors.New("is for containers"), host.CodeRole, ""),
		"take it from containers first: gpustack container prepare --remove ADDRESS")
	errVF        = host.WithCode(errors.New("is a virtual function of a GPU"), host.CodeVirtualFunctions, "")
	errSRIOV     = host.WithCode(errors.New("cannot determine whether it has virtual functions or is one"), host.CodeVirtualFunctions, "")
	errSwitches  = host.WithCode(errors.New("is an NVSwitch, and --nvswitch host keeps it with the host"), host.CodeNVSwitch, "--nvswitch guest")
	errVPDUnread = host.WithCode(errors.New("may manage the NVSwitches of this machine: its vital product data cannot be read"), host.CodeNVSwitch, "")
)

// Virtualized returns an error if a function is shared by guests, through enabled virtual
// functions or through mediated devices. pfs maps each physical function to its number of virtual
// functions (see [pci.Devices.VFs]).
func (n Node) Virtualized(d *pci.Device, pfs map[pci.Address]int) error {
	vfs := pfs[d.Address]
	if d.SRIOV.NumVFs != nil {
		vfs = max(vfs, *d.SRIOV.NumVFs)
	}
	switch {
	case vfs > 0:
		return fmt.Errorf("%w (%d)", ErrVFs, vfs)
	case d.SRIOVUnread():
		return errSRIOV
	case n.Mediated[d.Address] > 0:
		return fmt.Errorf("%w (%d)", ErrMediated, n.Mediated[d.Address])
	}
	return nil
}

// Shared returns the refusals of functions that several guests share. Functions that are already
// bound to a driver for passthrough are exempt, because nothing is unbound.
func (n Node) Shared(s Selection) (refusals []error) {
	const vGPU = ": vGPU hosts are not prepared this way"
	pfs := n.Devices.VFs()
	for _, a := range s.All {
		d := n.Devices.At(a)
		if pci.LeavesAlone(d.DriverName()) {
			continue
		}
		err := n.Virtualized(d, pfs)
		if err == nil && d.IsVF() && d.IsNVIDIAGPU() {
			err = errVF
		}
		if err == nil {
			continue
		}
		reason := err.Error() + ": unbinding its driver would remove them"
		switch {
		case errors.Is(err, errSRIOV):
			reason = err.Error()
		case d.IsGPU():
			reason = err.Error() + vGPU
		}
		refusals = append(refusals, &Refusal{Address: a, Reason: reason, Absolute: true, Err: err})
	}
	return refusals
}

// Refusals returns the refusals of a selection, and those that --allow lifts.
func (n Node) Refusals(s Selection) (refusals []error, lifted []*Refusal) {
	selected, allowed, needed := pci.Set(s.All), pci.Set(s.Allowed), n.needed()
	add := func(r *Refusal) {
		if r.Absolute || !allowed[r.Address] {
			refusals = append(refusals, r)
		} else {
			lifted = append(lifted, r)
		}
	}
	for _, need := range n.Needs {
		if selected[need.Address] {
			add(&Refusal{Address: need.Address, Absolute: need.Absolute, Reason: "the host needs it: " + need.Reason, Code: need.Code})
		}
	}
	ofCards, joins := n.Devices.Card(s.Selected), n.Joins(s)
	for _, a := range s.All {
		d := n.Devices.At(a)
		switch {
		case !ofCards(d) && joins(d):
			for _, r := range n.adapterUses(a) {
				add(r)
			}
		case !needed[a] && !ofCards(d):
			add(&Refusal{Address: a, Code: host.CodeGroup,
				Reason: fmt.Sprintf("shares IOMMU group %d with a selected device but is not part of it", *d.IOMMUGroup)})
		}
		if n.Containers.At(a) != nil {
			refusals = append(refusals, Refuse(a, ErrForContainers))
		}
		switch {
		case s.NVSwitch == machine.SwitchesToHost && d.IsNVSwitch():
			add(Refuse(a, errSwitches))
		case d.VPDUnread():
			add(&Refusal{Address: a, Reason: errVPDUnread.Error(), Err: errVPDUnread})
		}
	}
	if separation := n.separation(s); separation != nil {
		refusals = append(refusals, separation)
	}
	return refusals, lifted
}

// separation returns an error if the selection contains only part of a board, or nil. GPUs for
// guests require a choice of the side that gets the NVSwitches. --allow for single functions
// replaces that choice, as in releases before --nvswitch.
func (n Node) separation(s Selection) *Separation {
	if s.NVSwitch == machine.SwitchesToHost {
		return nil
	}
	ofSelection, allowed := pci.Set(s.All), pci.Set(s.Allowed)
	var r, unknown Separation
	gpus, switches := false, false
	for i := range n.Devices {
		d := &n.Devices[i]
		selected := ofSelection[d.Address]
		gpus = gpus || selected && d.IsBoardGPU()
		switches = switches || selected && d.IsNVSwitch()
		switch {
		case selected && (d.IsBoardGPU() || d.IsNVSwitch()):
			r.Go = append(r.Go, d.Address)
		case selected || allowed[d.Address]:
		case d.VPDUnread():
			unknown.Remain = append(unknown.Remain, d.Address)
		case d.IsBoardGPU() || d.IsNVSwitch():
			r.Remain = append(r.Remain, d.Address)
		}
	}
	if !gpus && !switches {
		return nil
	}
	r.Remain = slices.DeleteFunc(r.Remain, func(a pci.Address) bool {
		isSwitch := n.Devices.At(a).IsNVSwitch()
		return isSwitch && !gpus || !isSwitch && !switches
	})
	switch {
	case len(r.Remain) > 0:
		return &r
	case gpus && len(unknown.Remain) > 0:
		unknown.unread = true
		return &unknown
	}
	return nil
}

// used returns how functions are in use. A process that may use any GPU, by a node that serves all
// of them, is not counted: it loses nothing if it uses another.
func used(uses machine.Uses) map[pci.Address]string {
	used := map[pci.Address]string{}
	for _, h := range slices.Backward(uses.Holders) { // the first one counts
		if !h.Shared && h.PID != 0 {
			used[h.Address] = h.Who()
		}
	}
	for a, guest := range uses.ByGuests() {
		used[a] = guest.Who()
	}
	return used
}

// IsNew reports whether a function is not recorded.
func (n Node) IsNew(a pci.Address) bool {
	return n.Recorded.At(a) == nil
}

// InUse returns the refusals of functions that are in use now and not recorded yet, which their
// users would lose at the next boot.
func (n Node) InUse(uses machine.Uses, s Selection) (refusals []error, lifted []*Refusal) {
	allowed, used := pci.Set(s.Allowed), used(uses)
	for _, a := range s.All {
		by := used[a]
		if by == "" || !n.IsNew(a) {
			continue
		}
		r := &Refusal{Address: a, Reason: "is in use: " + by, Code: host.CodeInUse}
		if allowed[a] {
			lifted = append(lifted, r)
		} else {
			refusals = append(refusals, r)
		}
	}
	return refusals, lifted
}

// label returns a name that operators recognize, such as "NIC eno1 (mlx5_core)", from a function's
// network interfaces or disks, or else its address.
func (n Node) label(root host.Root, a pci.Address) string {
	d := n.Devices.At(a)
	names, err := root.ReadDir(path.Join(machine.DevicesDir, a.String(), "net"))
	if err != nil || len(names) == 0 {
		names = disks(root, a)
	}
	if len(names) == 0 {
		return d.Label()
	}
	label := d.Kind() + " " + strings.Join(names, " ")
	if d.Driver != nil {
		label += " (" + *d.Driver + ")"
	}
	return label
}

// disks returns the names of the disks below a function. Errors are ignored because the names are
// only used in messages.
func disks(root host.Root, a pci.Address) (names []string) {
	const blockDir = "/sys/class/block"
	all, err := root.ReadDir(blockDir)
	if err != nil {
		return nil
	}
	dir, err := root.OpenDir(blockDir)
	if err != nil {
		return nil
	}
	defer dir.Close() //nolint:errcheck // only read from
	for _, name := range all {
		target, err := dir.Readlink(name)
		partition, existsErr := root.Exists(path.Join(blockDir, name, "partition"))
		if err == nil && existsErr == nil && !partition && strings.Contains(target, "/"+a.String()+"/") {
			names = append(names, name)
		}
	}
	return names
}

// Leaving returns warnings about functions that the host loses because --allow lifts their
// refusal, unless they are recorded already.
func (n Node) Leaving(root host.Root, lifted []*Refusal) (warnings []string) {
	reasons := map[pci.Address][]string{}
	var leaving []pci.Address
	for _, r := range lifted {
		if !n.IsNew(r.Address) {
			continue
		}
		if reasons[r.Address] == nil {
			leaving = append(leaving, r.Address)
		}
		reasons[r.Address] = append(reasons[r.Address], r.Reason)
	}
	for _, a := range leaving {
		warnings = append(warnings, fmt.Sprintf("%s: the %s leaves the host at the next boot (allowed; otherwise refused: %s)",
			a, n.label(root, a), strings.Join(reasons[a], "; ")))
	}
	return warnings
}

// needed returns the functions that the host needs.
func (n Node) needed() map[pci.Address]bool {
	needed := map[pci.Address]bool{}
	for _, need := range n.Needs {
		needed[need.Address] = true
	}
	return needed
}
