package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Requester makes the requests that virtual functions need. It is [Live], except in tests.
type Requester interface {
	Write(w Write) error
	Request(r Request) (Answer, error)
	Load(ctx context.Context, driver string) error
}

// Errors of virtual functions.
var (
	// ErrNoSRIOV means that the driver of a function does not create virtual functions.
	ErrNoSRIOV = host.WithHint(errors.New("its driver cannot create VFs at run time"),
		"of mlx4_core VFs are created by its module parameters num_vfs and probe_vf, at boot only")
	// errVFs means that the kernel accepted a number of virtual functions and has others.
	errVFs = host.WithHint(errors.New("the kernel accepted the write but the VFs did not appear"), "the kernel's log says why: journalctl -k, or dmesg")
)

// VFs is the state of a physical function's virtual ones.
type VFs struct {
	Count     int           `json:"num_vfs"`
	Autoprobe host.Bool     `json:"autoprobe"` // Unknown before Linux 4.12
	Addresses []pci.Address `json:"-"`         // by index
}

// attribute is the path of an attribute of a function.
func attribute(a pci.Address, name string) string {
	return path.Join(devicesDir, a.String(), name)
}

// ReadVFs reads the virtual functions of a physical one (Linux,
// Documentation/ABI/testing/sysfs-bus-pci).
func ReadVFs(root host.Root, a pci.Address) (VFs, error) {
	var v VFs
	file := attribute(a, "sriov_numvfs")
	data, err := root.ReadFile(file)
	if err == nil {
		v.Count, err = strconv.Atoi(strings.TrimSpace(string(data)))
	}
	if host.IsAbsent(err) {
		err = ErrNoSRIOV
		if ok, existsErr := root.Exists(path.Dir(file)); existsErr == nil && !ok {
			err = ErrGone
		}
		return v, fmt.Errorf("%s: %w", a, err)
	}
	if err != nil {
		return v, host.OfFile(file, err)
	}
	switch data, err = root.ReadFile(attribute(a, "sriov_drivers_autoprobe")); {
	case err == nil:
		v.Autoprobe = host.BoolOf(strings.TrimSpace(string(data)) == "1")
	case !host.IsAbsent(err):
		return v, err
	}
	for i := range v.Count {
		link := attribute(a, "virtfn"+strconv.Itoa(i))
		at, err := root.Real(link)
		var vf pci.Address
		if err == nil {
			vf, err = pci.ParseAddress(path.Base(at))
		}
		if err != nil {
			return v, host.OfFile(link, err)
		}
		v.Addresses = append(v.Addresses, vf)
	}
	return v, nil
}

// SetVFs writes the number of virtual functions, which destroys all existing ones first: callers
// ensure that none is in use. It waits until the new ones are there. The kernel rejects a number
// other than 0 while there are VFs (Linux, drivers/pci/iov.c, sriov_numvfs_store).
func SetVFs(ctx context.Context, root host.Root, k Requester, a pci.Address, n int) error {
	if err := k.Write(Write{attribute(a, "sriov_numvfs"), strconv.Itoa(n)}); err != nil {
		return explainVFs(err)
	}
	return Wait(ctx, func() error {
		now, err := ReadVFs(root, a)
		if err == nil && now.Count != n {
			err = fmt.Errorf("%s: %w: sriov_numvfs is %d, not %d", a, errVFs, now.Count, n)
		}
		return err
	})
}

// explainVFs returns the error of a write to sriov_numvfs with its cause.
func explainVFs(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT): // upstream's mlx4_core has no sriov_configure
		return fmt.Errorf("%w: %w", ErrNoSRIOV, err)
	case errors.Is(err, unix.ERANGE):
		return host.WithHint(err, "the adapter's firmware permits fewer VFs: sriov_totalvfs")
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		return host.WithHint(err, "the firmware of the machine reserves too little memory or too few bus numbers for VFs: enable SR-IOV there, or add pci=realloc to the kernel arguments")
	}
	return err
}

// SetAutoprobe sets whether drivers of the host bind new virtual functions by themselves.
func SetAutoprobe(root host.Root, k Requester, a pci.Address, probe bool) error {
	value := "0"
	if probe {
		value = "1"
	}
	if err := k.Write(Write{attribute(a, "sriov_drivers_autoprobe"), value}); err != nil {
		return err
	}
	now, err := ReadVFs(root, a)
	if err == nil && now.Autoprobe != host.BoolOf(probe) {
		err = fmt.Errorf("%s: the kernel accepted sriov_drivers_autoprobe %s but did not change it", a, value)
	}
	return err
}

// Bring binds a function to the driver of a state, whatever driver it has: each write is read back.
// Callers ensure that the function is not in use.
func Bring(ctx context.Context, root host.Root, k Requester, a pci.Address, to State, settle time.Duration) error {
	now, err := Read(root, a)
	if err != nil || now == to {
		return err
	}
	if to.Driver != "" && now.Driver != to.Driver {
		file := path.Join(driversDir, string(to.Driver))
		ok, err := root.Exists(file)
		if err != nil {
			return err
		}
		if !ok {
			if err := k.Load(ctx, string(to.Driver)); err != nil {
				return err
			}
		}
	}
	b := Binder{Root: root, Kernel: writes{k}, Settle: settle}
	for _, s := range steps(a, now, to, false) {
		if err := b.do(a, s); err != nil {
			return fmt.Errorf("%s: %s: %w", a, s.does, err)
		}
	}
	return nil
}

// writes is a Kernel for the writes of Binder.do.
type writes struct{ Requester }

func (writes) TryGroup(int) error                            { return errors.ErrUnsupported }
func (writes) Ready() error                                  { return errors.ErrUnsupported }
func (writes) Run(context.Context, []string) ([]byte, error) { return nil, errors.ErrUnsupported }

// Wait calls ready until it returns nil or ctx ends, and returns its last error. The effects of
// requests appear in sysfs with a delay.
func Wait(ctx context.Context, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * poll):
		}
	}
}
