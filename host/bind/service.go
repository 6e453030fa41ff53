package bind

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// nvidia is the name of NVIDIA's driver of GPUs.
const nvidia = "nvidia"

// Errors of services that keep functions open.
var (
	// ErrStoppable means that --stop-services stops the process that has a function open, or
	// switches off the persistence mode of a GPU.
	ErrStoppable = host.WithHint(errors.New("can be stopped"), "use --live --stop-services")
	// errDependent means that a service cannot be stopped, or not without another one.
	errDependent = host.WithHint(host.WithCode(errors.New("cannot be stopped"), host.CodeService, ""),
		host.Textf("stop it by hand, or use '%s' and reboot instead", host.NewCommand("host prepare")))
	// errNotRestartable means that a service could be stopped but not be started again.
	errNotRestartable = host.WithHint(host.WithCode(errors.New("could not be started again"), host.CodeService, ""),
		"systemctl status shows its unit; unmask it, or stop it by hand if it is not needed any more")
	// errPersistent means that a GPU is in persistence mode.
	errPersistent = host.WithHint(host.WithCode(errors.New("is in persistence mode, in which unbinding nvidia hangs"), host.CodePersistence, ""),
		"nvidia-smi -i ADDRESS -pm 0 switches it off")
)

// stoppable is an error that --stop-services avoids.
type stoppable struct {
	error
}

// Unwrap returns the error.
func (s *stoppable) Unwrap() error { return s.error }

// Is reports that the error is an ErrStoppable, too.
func (*stoppable) Is(target error) bool { return target == ErrStoppable }

// Refusal returns the code of the error, and the options that avoid it.
func (s *stoppable) Refusal() (code host.Code, allow string) {
	var refused interface {
		Refusal() (host.Code, string)
	}
	if errors.As(s.error, &refused) {
		code, _ = refused.Refusal()
	}
	return code, "--live --stop-services"
}

// held returns the error of a holder. stay reports whether GPUs stay with the host.
func held(h guard.Holder, stay bool) error {
	switch {
	case h.Service && slices.Contains(driver.Owned(stay), h.Unit):
		return &stoppable{h}
	case h.Service && h.Unit == driver.FabricManager:
		return host.WithHint(h,
			host.Textf("it connects the GPUs that remain with the host: name all GPUs of the board, or use '%s' and reboot instead", host.NewCommand("host prepare")))
	}
	return h
}

// stops reports whether a holder is a process of a service that is stopped.
func stops(s driver.Services, h guard.Holder) bool {
	return h.Service && slices.Contains(s.Stop, h.Unit)
}

// stopped returns the holders of a plan's functions whose services are stopped.
func stopped(p driver.Plan, uses machine.Uses) []guard.Holder {
	return host.Filter(uses.Holders, func(h guard.Holder) bool { return stops(p.Services, h) && leaves(p, h.Address) })
}

// leaves reports whether a plan unbinds a function from its driver.
func leaves(p driver.Plan, a pci.Address) bool {
	return slices.ContainsFunc(p.Changes, func(c driver.Change) bool {
		return c.Address == a && c.Before.Driver != "" && c.Before.Driver != c.After.Driver
	})
}

// stay returns the GPUs that a plan leaves bound to the driver nvidia.
func (n node) stay(p driver.Plan) []pci.Address {
	return n.Devices.Where(func(d *pci.Device) bool { return d.DriverName() == nvidia && !leaves(p, d.Address) })
}

// services returns the services to stop and to start for a plan, and the GPUs whose persistence
// mode changes. Services that are stopped are started again if a GPU stays with the host.
func (n node) services(p driver.Plan, uses machine.Uses) (driver.Services, error) {
	stay := n.stay(p)
	owned := driver.Owned(len(stay) > 0)
	wanted := map[string]bool{}
	for _, h := range uses.Holders {
		if h.Service && leaves(p, h.Address) && slices.Contains(owned, h.Unit) {
			wanted[h.Unit] = true
		}
	}
	errs := dependents(wanted, owned, uses)
	s := driver.Services{Stop: host.Filter(owned, func(name string) bool { return wanted[name] })}
	modes := uses.Persistence.Value
	s.Off = host.Filter(driver.Addresses(p.Changes), func(a pci.Address) bool { return leaves(p, a) && modes[a] })
	s.Were = slices.Clone(s.Off)
	if len(stay) == 0 {
		return s, errors.Join(errs...)
	}
	s.Start = host.Reversed(s.Stop)
	// The daemon that is started again enables the mode of all GPUs or of the first alone
	// (kubernetes-sigs/dra-driver-nvidia-gpu issue 1037).
	for _, a := range stay {
		if modes[a] && slices.Contains(s.Stop, driver.Persistenced) {
			s.Were, s.On = append(s.Were, a), append(s.On, a)
		}
	}
	return s, errors.Join(errs...)
}

// dependents adds to the wanted units those that systemd stops with them. It returns errors for
// units that may not be stopped, or that could not be started again.
func dependents(wanted map[string]bool, owned []string, uses machine.Uses) (errs []error) {
	queue := slices.DeleteFunc(slices.Clone(owned), func(name string) bool { return !wanted[name] })
	if uses.Units.Err != nil {
		return []error{uses.Units.Err}
	}
	units := uses.Units.Value
	for ; len(queue) > 0 && uses.Running; queue = queue[1:] {
		name := queue[0]
		u, ok := units[name]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s: %w: its state is unknown", name, errDependent))
			continue
		case u.Load != "loaded":
			errs = append(errs, fmt.Errorf("%s: %w: its unit is %s", name, errNotRestartable, u.Load))
		case !u.CanStart:
			errs = append(errs, fmt.Errorf("%s: %w: its unit refuses it", name, errNotRestartable))
		case !u.CanStop:
			errs = append(errs, fmt.Errorf("%s: %w: its unit refuses it", name, errDependent))
		}
		for _, other := range u.Needs {
			o, ok := units[other]
			switch {
			case wanted[other], ok && !o.Runs():
			case slices.Contains(owned, other):
				wanted[other] = true
				queue = append(queue, other)
			default:
				errs = append(errs, fmt.Errorf("%s: %w without %s, which requires it and runs", name, errDependent, other))
			}
		}
	}
	return errs
}

// persistent returns an error if a GPU that leaves the driver nvidia stays in persistence mode, and
// a warning if that is unknown.
func persistent(a pci.Address, s driver.Services, uses machine.Uses) (warning string, err error) {
	const unknown = "cannot determine whether GPUs are in persistence mode, in which unbinding nvidia hangs: "
	modes := uses.Persistence
	on, listed := modes.Value[a]
	switch {
	case !uses.Running:
		return unknown + "only the running machine shows it", nil
	case errors.Is(modes.Err, host.ErrNoProgram):
		return unknown + "nvidia-smi is not installed", nil
	case modes.Err != nil:
		return "", unknownMode(a, modes.Err)
	case modes.Value == nil:
		return "", unknownMode(a, errors.New("nvidia-smi was not run"))
	case !listed:
		return "", unknownMode(a, errors.New("nvidia-smi does not list it"))
	case on && !slices.Contains(s.Off, a):
		return "", &stoppable{fmt.Errorf("%s: %w", a, errPersistent)}
	}
	return "", nil
}

// unknownMode returns the error of a GPU whose persistence mode could not be read.
func unknownMode(a pci.Address, cause error) error {
	return host.WithHint(fmt.Errorf("%s: cannot determine whether it is in persistence mode, in which unbinding nvidia hangs: %w", a, cause),
		host.Textf("run nvidia-smi by hand; bind a GPU that does not answer with '%s' and a reboot", host.NewCommand("host prepare")))
}
