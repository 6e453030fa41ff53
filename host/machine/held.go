package machine

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Held is the error of a function that is in use while it would have to go.
type Held struct {
	Address pci.Address
	By      string // "assigned to guest …", "… has /dev/infiniband/uverbs3 open"
	hint    string
}

func (e *Held) Error() string { return fmt.Sprintf("%s is in use: %s", e.Address, e.By) }

// Refusal returns the code of the error: no option lifts it.
func (*Held) Refusal() (code host.Code, allow string) { return host.CodeInUse, "" }

// Hint returns how to end the use.
func (e *Held) Hint() string { return e.hint }

// Held returns an error for each function that is in use: by a guest, by a process, or by a network
// namespace that its interface was moved to. It does not say whether all guests are known: see
// Unknown. The error is that of files that cannot be read.
func (u Uses) Held(root host.Root, devices pci.Devices, functions ...pci.Address) (held []*Held, err error) {
	guests := u.ByGuests()
	var errs []error
	for _, a := range functions {
		if by := guests[a]; by != nil {
			held = append(held, &Held{a, by.Who(), by.Hint()})
			continue
		}
		if i := slices.IndexFunc(u.Holders, func(h guard.Holder) bool { return h.Address == a }); i >= 0 {
			held = append(held, &Held{a, u.Holders[i].Who(), u.Holders[i].Hint()})
			continue
		}
		away, err := moved(root, devices.At(a))
		errs = append(errs, err)
		if away {
			held = append(held, &Held{a, "its network interface is in another network namespace",
				"end the container that has it, or unbind it from " + devices.At(a).DriverName()})
		}
	}
	return held, errors.Join(errs...)
}

// moved reports whether the network interface of a function is in another network namespace, as
// that of a container: its host driver has made one, and this namespace does not show it.
func moved(root host.Root, d *pci.Device) (bool, error) {
	const ethernet = 0x0200
	if d == nil || d.Class == nil || *d.Class != ethernet || d.DriverName() == "" || pci.LeavesAlone(d.DriverName()) {
		return false, nil
	}
	dir := path.Join(DevicesDir, d.Address.String(), "net")
	names, err := root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		return false, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	return len(names) == 0, nil
}
