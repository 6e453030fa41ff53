package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Services are the services that keep GPUs open, and the persistence mode of GPUs, which change
// together with drivers: the driver nvidia does not return from unbinding a GPU that is in use.
type Services struct {
	Stop  []string      `json:"stop"`            // units that run and are stopped before drivers change, in order
	Off   []pci.Address `json:"persistence_off"` // GPUs whose persistence mode is then switched off
	Start []string      `json:"start"`           // units started after drivers have changed, in order
	On    []pci.Address `json:"persistence_on"`  // GPUs whose persistence mode is then switched on
	// Were are the GPUs that were in persistence mode: undo switches it on again.
	Were []pci.Address `json:"persistent"`
}

// Persistenced is the unit of the daemon that keeps GPUs in persistence mode, those that it has
// open (nvidia-persistenced(1)).
const Persistenced = "nvidia-persistenced.service"

// Owned returns the units that may be stopped while GPUs leave the host, in the order in which
// they are stopped. They serve GPUs only, and other programs go on without them. The fabric
// manager is one of them if no GPU stays with the host: it connects all GPUs of a board.
func Owned(gpusStay bool) []string {
	units := []string{"dcgm-exporter.service", "nvidia-dcgm-exporter.service", "nvidia-dcgm.service", "dcgm.service", Persistenced}
	if !gpusStay {
		units = append(units, FabricManager)
	}
	return units
}

// FabricManager is the unit of NVIDIA's fabric manager.
const FabricManager = "nvidia-fabricmanager.service"

// none reports whether no service and no persistence mode changes.
func (s Services) none() bool {
	return len(s.Stop)+len(s.Off)+len(s.Start)+len(s.On) == 0
}

// units returns all units that are stopped or started, in the order in which they are started.
func (s Services) units() []string {
	return host.Union(slices.Clone(s.Start), host.Reversed(s.Stop)...)
}

// inverse returns the services that change when the change is undone.
func (s Services) inverse() Services {
	i := Services{Start: host.Reversed(s.Stop), Stop: host.Reversed(s.Start), On: slices.Clone(s.Were)}
	// Those that the change has switched on, and that were off before.
	i.Off = slices.DeleteFunc(slices.Clone(s.On), func(a pci.Address) bool { return slices.Contains(s.Were, a) })
	return i
}

// listed returns the services without nil, which would be null in JSON.
func (s Services) listed() Services {
	for _, units := range []*[]string{&s.Stop, &s.Start} {
		*units = append([]string{}, *units...)
	}
	for _, gpus := range []*[]pci.Address{&s.Off, &s.On, &s.Were} {
		*gpus = append([]pci.Address{}, *gpus...)
	}
	return s
}

// Before returns the programs that run before drivers change, as arguments.
func (s Services) Before() [][]string {
	argv := append([][]string{}, host.Map(s.Stop, func(u string) []string { return systemctl("stop", u) })...)
	return append(argv, host.Map(s.Off, func(a pci.Address) []string { return persistence(a, false) })...)
}

// Afterwards returns the programs that run after drivers have changed, as arguments.
func (s Services) Afterwards() [][]string {
	argv := append([][]string{}, host.Map(s.Start, func(u string) []string { return systemctl("start", u) })...)
	return append(argv, host.Map(s.On, func(a pci.Address) []string { return persistence(a, true) })...)
}

// systemctl returns the program that begins to stop or start a unit. With --no-block it does not
// wait for the unit, whose state is read instead: there is a deadline then.
func systemctl(verb, unit string) []string {
	return []string{"systemctl", verb, "--no-block", unit}
}

// persistence returns the program that switches the persistence mode of a GPU (nvidia-smi(1)).
func persistence(a pci.Address, on bool) []string {
	mode := "0"
	if on {
		mode = "1"
	}
	return []string{"nvidia-smi", "-i", a.String(), "-pm", mode}
}

// Errors of services.
var (
	errNotStopped = host.WithHint(errors.New("did not stop in time"),
		host.Textf("systemctl status shows what it waits for; raise --service-timeout, or use '%s' and reboot instead", host.NewCommand("host prepare")))
	errNotStarted = host.WithHint(errors.New("did not start"),
		"systemctl status and journalctl -u say why; a unit that is masked is not started")
	ErrNoSystemd = host.WithHint(errors.New("not found, so no service can be stopped"),
		"run gpustack on the host, outside of containers")
	errUnit        = host.WithHint(errors.New("not a unit as systemctl shows one"), "run systemctl show by hand to see what it prints")
	errPersistence = host.WithHint(errors.New("the persistence mode of its GPUs is unknown"), "run nvidia-smi -q -d PERFORMANCE by hand")
)

// Unit is the state of a systemd unit.
type Unit struct {
	Name     string // its id, which differs from the name that was asked for if that is an alias
	Load     string // "loaded", "masked", "not-found"
	Active   string // "active", "activating", "deactivating", "inactive", "failed"
	Sub      string // "running", "stop-sigterm"
	Job      bool   // a job of the unit is waiting or running
	CanStop  bool
	CanStart bool
	Needs    []string // units that systemd stops with it
}

// Runs reports whether the unit has processes, as far as systemd knows.
func (u Unit) Runs() bool {
	return u.Active != "inactive" && u.Active != "failed"
}

func (u Unit) state() string {
	return u.Active + " (" + u.Sub + ")"
}

// needed are the properties that name the units which systemd stops together with a unit
// (systemd.unit(5), Mapping of unit properties to their inverses).
var needed = []string{"RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo"}

// Program runs a program of the machine.
type Program func(ctx context.Context, argv []string) ([]byte, error)

// ReadUnits returns the states of units and of all units that systemd stops with them, by name.
func ReadUnits(ctx context.Context, run Program, names []string) (map[string]Unit, error) {
	units := map[string]Unit{}
	for names = slices.Clone(names); len(names) > 0; {
		argv := append([]string{"systemctl", "show", "--property=Id,LoadState,ActiveState,SubState,Job,CanStop,CanStart," + strings.Join(needed, ","),
			"--"}, names...)
		out, err := run(ctx, argv)
		if errors.Is(err, host.ErrNoProgram) {
			return nil, fmt.Errorf("systemctl: %w", ErrNoSystemd)
		}
		if err != nil {
			return nil, err
		}
		shown, err := parseUnits(string(out))
		if err == nil && len(shown) != len(names) {
			err = fmt.Errorf("%w: %d of %d are shown", errUnit, len(shown), len(names))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(argv[:2], " "), err)
		}
		for i, u := range shown {
			units[names[i]] = u
		}
		names = nil
		for _, u := range shown {
			for _, n := range u.Needs {
				if _, ok := units[n]; !ok && !slices.Contains(names, n) {
					names = append(names, n)
				}
			}
		}
	}
	return units, nil
}

// parseUnits parses what systemctl show prints of units, in their order: a line for each property,
// and an empty line between units.
func parseUnits(text string) ([]Unit, error) {
	var units []Unit
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		u := Unit{Needs: []string{}}
		for line := range strings.SplitSeq(strings.TrimSpace(block), "\n") {
			name, value, ok := strings.Cut(line, "=")
			switch {
			case !ok:
				return nil, fmt.Errorf("%w: %q", errUnit, line)
			case name == "Id":
				u.Name = value
			case name == "LoadState":
				u.Load = value
			case name == "ActiveState":
				u.Active = value
			case name == "SubState":
				u.Sub = value
			case name == "Job":
				u.Job = value != "" && value != "0"
			case name == "CanStop":
				u.CanStop = value == "yes"
			case name == "CanStart":
				u.CanStart = value == "yes"
			case slices.Contains(needed, name):
				u.Needs = host.Union(u.Needs, strings.Fields(value)...)
			}
		}
		if u.Name == "" || u.Load == "" || u.Active == "" {
			return nil, fmt.Errorf("%w: Id %q, LoadState %q, ActiveState %q", errUnit, u.Name, u.Load, u.Active)
		}
		units = append(units, u)
	}
	return units, nil
}

// ReadPersistence returns for the GPUs of NVIDIA's driver whether they are in persistence mode. The
// error is host.ErrNoProgram if nvidia-smi is not installed.
func ReadPersistence(ctx context.Context, run Program) (map[pci.Address]bool, error) {
	argv := []string{"nvidia-smi", "--query-gpu=pci.bus_id,persistence_mode", "--format=csv,noheader"}
	out, err := run(ctx, argv)
	if err != nil {
		return nil, err
	}
	modes := map[pci.Address]bool{}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		bus, mode, _ := strings.Cut(line, ",")
		mode = strings.TrimSpace(mode)
		a, err := pci.ParseAddress(strings.TrimSpace(bus))
		if err != nil || mode != "Enabled" && mode != "Disabled" {
			return nil, fmt.Errorf("nvidia-smi: %w: %q", errPersistence, line)
		}
		modes[a] = mode == "Enabled"
	}
	return modes, nil
}

// readUnit returns the state of one unit.
func (b Binder) readUnit(ctx context.Context, name string) (Unit, error) {
	units, err := ReadUnits(ctx, b.Kernel.Run, []string{name})
	return units[name], err
}

// pollUnit is the interval at which the state of a unit is read.
const pollUnit = 100 * time.Millisecond

// stop stops a unit and waits until it has stopped. Its processes may still run if the unit does
// not wait for them: the GPUs are checked later.
func (b Binder) stop(ctx context.Context, name string) error {
	if _, err := b.Kernel.Run(ctx, systemctl("stop", name)); err != nil {
		return err
	}
	return b.await(ctx, name, func(u Unit, late bool) (bool, error) {
		stopped := !u.Runs() && !u.Job
		if late && !stopped {
			return false, fmt.Errorf("%s: %w (%s): %s", name, errNotStopped, b.Service, u.state())
		}
		return stopped, nil
	})
}

// start starts a unit and waits until it runs. A unit that is still stopping is left to systemd,
// which starts it once it has stopped.
func (b Binder) start(ctx context.Context, name string) error {
	if _, err := b.Kernel.Run(ctx, systemctl("start", name)); err != nil {
		return err
	}
	return b.await(ctx, name, func(u Unit, late bool) (bool, error) {
		switch {
		case u.Active == "active" && !u.Job, u.Active == "deactivating" && u.Job:
			return true, nil
		case u.Active == "failed", !u.Runs() && !u.Job, late:
			return false, fmt.Errorf("%s: %w: %s", name, errNotStarted, u.state())
		}
		return false, nil
	})
}

// await reads a unit until done, or the end of ctx.
func (b Binder) await(ctx context.Context, name string, done func(u Unit, late bool) (bool, error)) error {
	for end := time.Now().Add(b.Service); ; {
		u, err := b.readUnit(context.WithoutCancel(ctx), name)
		if err != nil {
			return err
		}
		late := time.Now().After(end)
		if ok, err := done(u, late); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollUnit):
		}
	}
}

// restore starts the units of a change that an interrupted run has left stopped, and switches
// persistence mode on again, if the driver nvidia has a GPU: without one, they would fail. It
// returns what it could not restore because the operator has removed or masked it since.
func (b Binder) restore(ctx context.Context, s *Services) (left []string, err error) {
	devices, _, err := pci.Scan(b.Root, pci.Options{})
	if err != nil {
		return nil, err
	}
	driven := func(a pci.Address) bool {
		d := devices.At(a)
		return d != nil && d.DriverName() == "nvidia"
	}
	if !slices.ContainsFunc(devices, func(d pci.Device) bool { return driven(d.Address) }) {
		s.Start, s.On = nil, nil
		return nil, nil
	}
	s.Start = s.units()
	for _, name := range s.Start {
		u, err := b.readUnit(ctx, name)
		switch {
		case errors.Is(err, ErrNoSystemd):
			left = append(left, name+" stays stopped: systemctl is not installed")
			continue
		case err != nil:
			return left, err
		case u.Load != "loaded":
			left = append(left, name+" stays stopped: it is "+u.Load)
			continue
		case u.Active == "active" && !u.Job:
			continue // with a job, a systemctl of the killed run may still stop it
		}
		if err := b.start(ctx, name); err != nil {
			return left, err
		}
	}
	s.On = host.Union(nil, host.Filter(slices.Concat(s.Were, s.On), driven)...)
	for _, a := range s.On {
		_, err := b.Kernel.Run(ctx, persistence(a, true))
		if errors.Is(err, host.ErrNoProgram) {
			left = append(left, fmt.Sprintf("%s stays out of persistence mode: nvidia-smi is not installed", a))
			continue
		}
		if err != nil {
			return left, err
		}
	}
	return left, nil
}

// idle waits until no process has a function open that the driver nvidia is to be unbound from:
// a process may have opened it since the plan was made, or outlive its service. except, if not nil,
// reports holders that do not count.
func (b Binder) idle(ctx context.Context, functions []pci.Address, except func(guard.Holder) bool) error {
	for end := time.Now().Add(b.Settle); ; {
		devices, _, err := pci.Scan(b.Root, pci.Options{})
		if err != nil {
			return err
		}
		holders, err := guard.Holders(b.Root, devices)
		if err != nil {
			return err
		}
		var errs []error
		for _, h := range holders {
			if slices.Contains(functions, h.Address) && (except == nil || !except(h)) {
				errs = append(errs, h)
			}
		}
		if len(errs) == 0 || time.Now().After(end) {
			return errors.Join(errs...)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollUnit):
		}
	}
}

// Idle returns the functions that no process may have open when the plan is carried out: those
// that the driver nvidia is unbound from.
func (p Plan) Idle() []pci.Address {
	idle := host.Filter(p.Changes, func(c Change) bool {
		return c.Before.Driver != c.After.Driver && strings.HasPrefix(string(c.Before.Driver), "nvidia") // else unbinding does not wait
	})
	return append([]pci.Address{}, Addresses(idle)...)
}
