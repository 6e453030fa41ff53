// Package bind plans changes of drivers on the running machine: [NewPlan] binds functions for
// guests immediately, [NewRelease] returns them to their host drivers.
//
// It does not read the machine (host/machine) or change drivers (host/driver).
package bind

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/selection"
)

// Errors of functions whose driver cannot be changed on the running machine.
var (
	ErrLive = host.WithHint(host.WithCode(errors.New("on a running host may hang"), host.CodeMayHang, "--live"),
		host.Textf("use '%s' and reboot instead, or --live to unbind it now", host.NewCommand("host prepare")))
	ErrNoGroup = host.WithHint(host.WithCode(errors.New("has no IOMMU group and cannot be assigned to a guest"), host.CodeNoGroup, ""),
		host.Textf("the IOMMU is off: run '%s' and reboot; if that is done, turn it on in the firmware's setup", host.NewCommand("host prepare")))
	errNoModule = host.WithHint(errors.New("not available in the running kernel"),
		"install the package that has it, or reboot into the kernel whose modules are installed")
)

// Mode says what may be done to the host so that functions leave it.
type Mode struct {
	Live         bool // unbind drivers whose unbinding may hang
	StopServices bool // stop the services that keep functions open, and switch off persistence mode
	isTrial      bool // of a command that a refusal may print
}

// Plan is a planned change of drivers on the running machine.
type Plan struct {
	driver.Plan
	Functions []pci.Address  // the selected functions, and the others of their cards and groups
	Holders   []guard.Holder // the processes of services that are stopped
	Warnings  []string
}

// node is a machine of which everything that a change of drivers depends on was read.
type node struct {
	selection.Node
	kernel   *modprobe.Modules // modules of the running kernel; nil if its release is unknown
	warnings []string
}

// newNode returns the machine in the form that plans need. The error names everything that could
// not be read.
func newNode(m machine.Machine) (node, error) {
	if err := errors.Join(m.Obstacles()...); err != nil {
		return node{}, err
	}
	n := node{Node: selection.NewNode(m), warnings: slices.Clone(m.Warnings)}
	for i := range n.Devices {
		n.warnings = append(n.warnings, n.Devices[i].Warnings...)
	}
	if len(m.Kernels.Value) > 0 {
		n.kernel = &m.Kernels.Value[0]
	}
	return n, nil
}

// withoutRecord returns the node and options to use when the options name functions: the recorded
// selection is ignored, but the recorded driver, what --allow named and the side of the NVSwitches
// still apply.
func (n node) withoutRecord(opts selection.Options) (node, selection.Options) {
	if r := n.Recorded; r != nil && opts.Named() {
		opts.Earlier = r
		opts.Driver = cmp.Or(opts.Driver, r.Driver)
		if opts.NVSwitch == "" && r.NVSwitch == machine.SwitchesToHost {
			opts.NVSwitch = r.NVSwitch
		}
		n.Recorded = nil
	}
	return n, opts
}

// judge returns what the gate says of a selection, and an error for each refusal: also for a board
// that is divided and for each function of an RDMA adapter for containers.
func (n node) judge(s gate.Selection, uses machine.Uses, record *machine.Contract, adapters *rdma.Record) (gate.Answer, []error) {
	answer := n.Decide(s, machine.Uses{}, func(pf pci.Address) string { return n.UseOfVFs(uses, pf) }) // refuse names the users
	refusals := host.Split(answer.Err())
	board := s // recorded functions of a board are not separated from the named ones
	board.All = append(slices.Clip(board.All), record.Addresses()...)
	if separation := n.Separation(board); separation != nil {
		refusals = append(refusals, separation)
	}
	for _, a := range s.All {
		if of := (gate.Records{RDMA: adapters}).Adapter(n.Devices, a); of != nil && of.Use == rdma.ForContainers {
			refusals = append(refusals, n.OfAdapter(uses, a, of))
		}
	}
	return answer, refusals
}

// NewPlan plans to bind functions for guests now: those that opts name, else those recorded, else
// every NVIDIA display function, each with all functions of its card and IOMMU group. A plan that
// is refused is returned with the error.
func NewPlan(root host.Root, m machine.Machine, opts selection.Options, uses machine.Uses, mode Mode) (Plan, error) {
	n, err := newNode(m)
	if err != nil {
		return Plan{}, err
	}
	record, containers := n.Recorded, n.Containers
	lent := n.lent(opts)
	n.Containers = containers.Less(lent)
	n, opts = n.withoutRecord(opts)
	s, err := n.Choose(opts)
	s.Kind = gate.Now
	if err != nil {
		return Plan{}, n.Refuse(opts, s, machine.Uses{}, host.Split(err))
	}
	adapters, err := rdma.ReadRecord(root)
	if err != nil {
		return Plan{}, err
	}
	answer, refusals := n.judge(s, uses, record, adapters)
	var errs []error
	var refused []pci.Address // whatever else is done
	for _, err := range refusals {
		if r := (*gate.Refusal)(nil); errors.As(err, &r) && r.Absolute {
			refused = append(refused, r.Address)
		}
	}
	l := Plan{Functions: s.All, Warnings: append(n.warnings, answer.Notes...)}
	for _, r := range answer.Lifted {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s: the %s leaves the host now (allowed; otherwise refused: %s)",
			r.Address, n.Label(n.Devices.At(r.Address)), r.Reason))
	}
	var goals []driver.Goal
	stub, guests := false, uses.ByGuests()
	for _, a := range s.All {
		d := n.Devices.At(a)
		want := n.wantedDriver(d, opts)
		held := d.DriverName()
		if held == want || want == machine.Stub && held == machine.VFIO && host.Value(record.At(a)).Driver == machine.Stub && guests[a] != nil {
			continue // already bound, or libvirt has bound it from pci-stub for a guest
		}
		if d.IOMMUGroup == nil {
			errs = append(errs, fmt.Errorf("%s: %w", a, ErrNoGroup))
			refused = append(refused, a)
		}
		goals = append(goals, driver.Goal{Address: a, State: driver.State{Driver: driver.Name(want), Override: driver.Name(want)}})
		stub = stub || want == machine.Stub
	}
	if stub {
		l.Warnings = append(l.Warnings, "when a guest stops, libvirt returns functions to host drivers if only driver_override binds them to pci-stub; with vfio-pci they stay bound")
	}
	var planErr error
	l.Plan, planErr = driver.New(root, n.Devices, goals, false)
	errs = append(errs, planErr)
	errs = append(errs, host.Map(host.Filter(l.Load, func(name string) bool { return n.kernel != nil && !n.kernel.Loadable(name) }),
		func(name string) error { return fmt.Errorf("driver %s: %w", name, errNoModule) })...)
	if mode.StopServices {
		var servicesErr error
		l.Services, servicesErr = n.services(l.Plan, uses)
		errs = append(errs, servicesErr)
	}
	for _, a := range lent {
		if leaves(l.Plan, a) {
			l.Containers = append(l.Containers, a)
			l.Warnings = append(l.Warnings, stays(a, containers))
		}
	}
	l.Holders = stopped(l.Plan, uses)
	warnings, err := n.refuse(l.Plan, uses, mode.Live, refused...)
	l.Warnings = append(l.Warnings, warnings...)
	if errs = append(errs, err); len(refusals) == 0 {
		return l, errors.Join(errs...)
	}
	if mode.isTrial {
		return l, errors.Join(slices.Concat(refusals, errs)...)
	}
	return l, errors.Join(append([]error{accepted(root, m, n.Refuse(opts, s, machine.Uses{}, refusals), uses, mode)}, errs...)...)
}

// accepted returns a refusal with only those of its commands that are accepted, if need be with
// --live.
func accepted(root host.Root, m machine.Machine, err error, uses machine.Uses, mode Mode) error {
	var refused *selection.Refused
	if !errors.As(err, &refused) {
		return err
	}
	mode.isTrial = true
	var ways []selection.Way
	for _, way := range refused.Ways {
		_, err := NewPlan(root, m, way.Options, uses, mode)
		way.Live = errors.Is(err, ErrLive)
		if !slices.ContainsFunc(host.Split(err), func(err error) bool { return !errors.Is(err, ErrLive) }) {
			ways = append(ways, way)
		}
	}
	refused.Ways = ways
	return refused
}

// wantedDriver returns the driver that a function is to be bound to: the requested or recorded one,
// or a VFIO variant driver for this device.
func (n node) wantedDriver(d *pci.Device, opts selection.Options) string {
	want := opts.Driver
	if r := n.Recorded; r != nil && want == "" {
		if f := r.At(d.Address); f != nil {
			return f.Driver
		}
		want = r.Driver
	}
	if want = cmp.Or(want, machine.VFIO); want == machine.VFIO && n.kernel != nil {
		return cmp.Or(n.kernel.Variant(d.Modalias), want)
	}
	return want
}

// NewRelease plans to return functions to the host immediately, to the drivers that they had before
// they were bound: those that opts name, else the recorded ones and those in taken, else every
// NVIDIA GPU. A function whose former driver is unknown gets the driver that the running kernel has
// for it, or else any that matches. When a GPU returns to the driver nvidia, the services that host
// bind has stopped are started.
//
// With the role of containers, it returns functions that are recorded for containers, all of them
// unless opts name some, and containers are offered them again. GPUs get NVIDIA's driver then.
func NewRelease(root host.Root, m machine.Machine, opts selection.Options, uses machine.Uses, taken map[pci.Address]driver.State, stopped driver.Services,
	to machine.Role) (Plan, error) {
	n, err := newNode(m)
	if err != nil {
		return Plan{}, err
	}
	if to == machine.OfContainer {
		if opts, err = n.toContainers(opts); err != nil {
			return Plan{}, err
		}
	}
	n, opts = n.withoutRecord(opts)
	if !opts.Named() {
		present, warnings := n.bound(taken)
		recorded := n.Recorded != nil
		n.Recorded, n.warnings = nil, append(slices.Clone(n.warnings), warnings...)
		if recorded && len(present) == 0 {
			plan, err := driver.New(root, n.Devices, nil, true)
			return Plan{Plan: plan, Functions: []pci.Address{}, Warnings: n.warnings}, err
		}
		opts = n.Only(opts, present)
	}
	s, err := n.Choose(opts)
	if err != nil {
		return Plan{}, err
	}
	if err := ofGuests(m.Contract.Value, s.All, to); err != nil {
		return Plan{}, err
	}
	l := Plan{Functions: s.All, Warnings: n.warnings}
	drivers, err := readDrivers(root)
	if err != nil {
		return Plan{}, err
	}
	var planErr error
	l.Plan, planErr = driver.New(root, n.Devices, n.returns(s.All, taken, drivers, to), true)
	l.restart(stopped)
	l.offer(n, to)
	warnings, refusals := n.refuse(l.Plan, uses, true)
	l.Warnings = append(l.Warnings, warnings...)
	return l, errors.Join(planErr, refusals)
}

// bound returns the functions that were bound for guests: those in taken, and the recorded ones.
func (n node) bound(taken map[pci.Address]driver.State) (present []pci.Address, warnings []string) {
	for a := range taken {
		if n.Devices.At(a) != nil {
			present = append(present, a)
		}
	}
	if n.Recorded == nil {
		return present, nil
	}
	// A function that has changed since was not bound; return only the others.
	rest, changed := n.Unchanged()
	return append(present, rest...), host.Map(changed, func(err error) string { return fmt.Sprintf("left out: %v", err) })
}

// returns returns the drivers that functions get in the host. taken are those that they had before
// they were bound, drivers those that the kernel has, with their modules.
func (n node) returns(functions []pci.Address, taken map[pci.Address]driver.State, drivers map[string]string, to machine.Role) (goals []driver.Goal) {
	for _, a := range functions {
		d := n.Devices.At(a)
		goal := driver.Goal{Address: a}
		was, known := taken[a]
		switch held := d.DriverName(); {
		case held != "" && !pci.LeavesAlone(held):
			goal.Driver = driver.Name(held) // it keeps this driver, without driver_override
		case held == "" && d.DriverOverride == nil:
			continue
		case to == machine.OfContainer && n.Containers.At(a) != nil && d.IsNVIDIAGPU():
			goal.Driver = nvidia // whichever driver had it: containers need this one
		case known:
			goal.State = was
		default:
			goal.Driver = driver.Name(n.hostDriver(d, drivers))
			goal.Any = goal.Driver == ""
		}
		goals = append(goals, goal)
	}
	return goals
}

// restart plans to start the services that host bind has stopped, if a GPU returns to the driver
// nvidia.
func (l *Plan) restart(stopped driver.Services) {
	returned := driver.Addresses(host.Filter(l.Changes, func(c driver.Change) bool { return c.After.Driver == nvidia }))
	if len(returned) > 0 {
		l.Services.Start = stopped.Start
		l.Services.On = slices.DeleteFunc(slices.Clone(stopped.On), func(a pci.Address) bool { return !slices.Contains(returned, a) })
	}
}

// readDrivers returns the drivers that the kernel has registered, each with its module, whose name
// often but not always is the same (Linux, module_add_driver).
func readDrivers(root host.Root) (map[string]string, error) {
	const dir = "/sys/bus/pci/drivers"
	names, err := host.IfPresent(root.ReadDir(dir))
	if err != nil {
		return nil, err
	}
	modules := map[string]string{}
	for _, name := range names {
		modules[name] = modprobe.Normal(name)
		if usual := modprobe.UsuallyBuiltin(name); usual != "" {
			modules[name] = usual
		}
		d, err := root.OpenDir(path.Join(dir, name))
		if err != nil {
			return nil, err
		}
		target, err := d.Readlink("module")
		d.Close() //nolint:errcheck // only read from
		switch {
		case err == nil:
			modules[name] = modprobe.Normal(path.Base(target))
		case !host.IsAbsent(err): // built-in drivers have no module
			return nil, fmt.Errorf("%s: %w", path.Join(dir, name, "module"), err)
		}
	}
	return modules, nil
}

// hostDriver returns the registered driver whose module matches the function's alias, or "".
func (n node) hostDriver(d *pci.Device, drivers map[string]string) string {
	if d.Modalias == nil || n.kernel == nil {
		return ""
	}
	for _, module := range n.kernel.Match(*d.Modalias) {
		for name, of := range drivers {
			if of == module {
				return name
			}
		}
	}
	return ""
}

// Refuse returns an error that names the functions of a plan which are in use, so that their
// drivers cannot be changed. If a tree does not show that, it returns a warning instead. live
// permits unbinding drivers that may hang.
func Refuse(m machine.Machine, p driver.Plan, uses machine.Uses, live bool) (warnings []string, err error) {
	n, err := newNode(m)
	if err != nil {
		return nil, err
	}
	return n.refuse(p, uses, live)
}

// refuse is Refuse. refused are functions that are refused anyway, which live would not help.
func (n node) refuse(p driver.Plan, uses machine.Uses, live bool, refused ...pci.Address) (warnings []string, err error) {
	if len(p.Changes) == 0 {
		return nil, nil
	}
	var errs []error
	switch blind := uses.Unknown(); {
	case blind != nil && uses.Running:
		errs = append(errs, gate.GuestsUnknown("these devices", blind))
	case blind != nil:
		warnings = append(warnings, gate.GuestsUnknown("these devices", blind).Error())
	}
	vfs, stay := n.Devices.VFs(), len(n.stay(p)) > 0
	for _, c := range p.Changes {
		d := n.Devices.At(c.Address)
		if d == nil || c.Before.Driver == "" || c.Before.Driver == c.After.Driver {
			continue // no driver is unbound
		}
		unbound := string(c.Before.Driver)
		for _, user := range gate.Users(uses, c.Address) {
			if h, ok := user.(guard.Holder); !ok {
				errs = append(errs, user)
			} else if !stops(p.Services, h) {
				errs = append(errs, held(h, stay))
			}
		}
		if live && unbound == nvidia && d.IsGPU() {
			warning, err := persistent(c.Address, p.Services, uses)
			errs = append(errs, err)
			if warning != "" && !slices.Contains(warnings, warning) {
				warnings = append(warnings, warning)
			}
		}
		if slices.Contains(refused, c.Address) {
			continue
		}
		if err := n.Virtualized(d, vfs); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Address, err))
		}
		if !live && mayHang(d, unbound) {
			errs = append(errs, fmt.Errorf("%s: unbinding %s %w", c.Address, unbound, ErrLive))
		}
	}
	return warnings, errors.Join(errs...)
}

// mayHang reports whether unbinding a host driver is known to hang: drivers of GPUs, and NVIDIA's.
func mayHang(d *pci.Device, held string) bool {
	return !pci.LeavesAlone(held) && (d.IsGPU() || strings.HasPrefix(held, "nvidia"))
}

// Needed returns an error that names the functions which a plan would bind for guests although the
// gate refuses them. allow are the functions that --allow names.
func Needed(m machine.Machine, p driver.Plan, allow []pci.Address) error {
	if p.Release {
		return nil
	}
	leaving := host.Map(p.Changes, func(c driver.Change) gate.Leaving {
		return gate.Leaving{Address: c.Address, Kind: gate.Now, Guests: true}
	})
	allowed := gate.Records{Guests: m.Contract.Value}.Allowed().And(gate.Allowed{Functions: allow})
	return gate.New(m).Ask(allowed, leaving...).Err()
}
