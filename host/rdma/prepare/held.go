package prepare

import (
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// HeldVF is the error of a VF that is in use while it would have to go.
type HeldVF struct {
	*gate.Held
	PF pci.Address
}

func (e *HeldVF) Error() string {
	return fmt.Sprintf("VF %s of %s is in use: %s", e.Address, e.PF, e.By)
}

// Hint returns how to end the use.
func (e *HeldVF) Hint() string { return e.Held.Hint() }

// errGuests is the error of VFs of which it is unknown whether a guest has them.
func errGuests(pf pci.Address, why string) error {
	err := fmt.Errorf("%s: cannot determine which guests use its VFs: %s", pf, why)
	return host.WithCode(host.WithHint(err, "run gpustack as root, in the host's namespaces; 'gpustack host guests' shows what cannot be read"),
		host.CodeGuestsUnknown, "")
}

// held returns an error for each of the VFs of a function that is in use.
func held(root host.Root, devices pci.Devices, uses machine.Uses, pf pci.Address, vfs []pci.Address) (errs []error) {
	if len(vfs) == 0 {
		return nil
	}
	if why := uses.Unknown(); why != "" && uses.Running {
		errs = append(errs, errGuests(pf, why))
	}
	found, err := gate.HeldOf(root, devices, uses, vfs...)
	for _, h := range found {
		errs = append(errs, &HeldVF{h, pf})
	}
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// Permit returns an error if a plan of files changes the record so that VFs go which are in use. It
// is asked before rdma prepare or its undo changes anything ([gpustack/host/change.Files]).
func Permit(root host.Root, plan edit.Plan) error {
	before, after, err := Records(plan)
	if err != nil || before == nil {
		return err
	}
	var going []rdma.Prepared
	for _, a := range before.Adapters {
		if now := after.At(a.Address); now == nil || len(now.VFs) != len(a.VFs) || now.Whole != a.Whole || now.Use != a.Use {
			going = append(going, a)
		}
	}
	if len(going) == 0 {
		return nil
	}
	devices, _, err := pci.Scan(root, pci.Options{})
	if errors.Is(err, pci.ErrNoPCI) {
		return nil // an image: nothing runs there
	}
	if err != nil {
		return err
	}
	uses, err := machine.ObserveUses(root, devices, root.Path("/") == "/")
	if err != nil {
		return err
	}
	m := Machine{Devices: devices}
	var errs []error
	for _, a := range going {
		vfs := m.vfsOf(a.Address)
		if a.Whole && devices.At(a.Address) != nil {
			vfs = append(vfs, a.Address)
		}
		errs = append(errs, held(root, devices, uses, a.Address, vfs)...)
	}
	return errors.Join(errs...)
}

// Records returns the record before and after a plan, nil where there is none.
func Records(plan edit.Plan) (before, after *rdma.Record, err error) {
	for _, c := range plan {
		if c.Name != rdma.RecordFile {
			continue
		}
		if before, err = parse(c.Before); err == nil {
			after, err = parse(c.After)
		}
	}
	return before, after, err
}

func parse(f *edit.File) (*rdma.Record, error) {
	if f == nil {
		return nil, nil
	}
	return rdma.ParseRecord(f.Content)
}
