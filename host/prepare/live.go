package prepare

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Errors of functions whose driver cannot be changed on the running machine.
var (
	ErrLive     = errors.New("on a running host may hang")
	ErrVFs      = errors.New("has virtual functions enabled")
	ErrNoGroup  = errors.New("is in no IOMMU group and cannot be assigned to a guest")
	ErrNoModule = errors.New("not available in the running kernel")
	ErrBlind    = errors.New("cannot determine which guests use these devices")
	ErrNeeded   = errors.New("the host needs it")
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
	return e.Address.String() + ": " + e.who()
}

// who uses it, and how.
func (e *InUse) who() string {
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

// Live is what changes drivers on the running machine.
type Live struct {
	driver.Plan
	Functions []pci.Address // all that were selected, and all that go with them
	Warnings  []string
}

// Uses is who uses functions at this moment.
type Uses struct {
	Running bool // the tree is the running machine's: what cannot be told is an error
	Holders []guard.Holder
	Guests  guest.Report
}

// ObserveUses looks who uses functions.
func ObserveUses(root host.Root, devices []pci.Device, running bool) (Uses, error) {
	holders, err := guard.Holders(root, devices)
	return Uses{running, holders, guest.Observe(root, guest.NovaConf{}, time.Now())}, err
}

// ObserveLive reads what counts for binding functions now: of the machine's kernels the running
// one, and neither boot loader nor initramfs. running is what only the running machine shows.
func ObserveLive(root host.Root, running guard.Running) (Node, error) {
	n, err := ObserveRelease(root)
	if n.Devices == nil {
		return Node{}, err
	}
	err = errors.Join(err, n.observeNeeds(root, running))
	return n, err
}

// ObserveRelease reads what counts for returning functions to the host now: ObserveLive without
// what keeps functions from guests, which must not keep them from the host.
func ObserveRelease(root host.Root) (Node, error) {
	devices, warnings, err := pci.Scan(root, pci.Options{})
	if err != nil {
		return Node{}, err
	}
	n := Node{Devices: devices, Warnings: warnings}
	var makers []string
	for i := range devices {
		n.Warnings = append(n.Warnings, devices[i].Warnings...)
		if v := devices[i].VendorID; v != nil {
			makers = append(makers, fmt.Sprintf("%08X", uint16(*v)))
		}
	}
	const release = "/proc/sys/kernel/osrelease"
	data, releaseErr := root.ReadFile(release)
	switch {
	case host.IsAbsent(releaseErr):
		releaseErr = nil
		n.Warnings = append(n.Warnings, release+": not there, so that which modules there are is not known")
	case releaseErr != nil:
		releaseErr = fmt.Errorf("%s: %w", release, host.Cause(releaseErr))
	default:
		var m modprobe.Modules
		m, releaseErr = modprobe.ReadModules(root, strings.TrimSpace(string(data)), slices.Compact(slices.Sorted(slices.Values(makers)))...)
		n.Kernels = []modprobe.Modules{m}
	}
	var recordErr error
	n.Recorded, recordErr = ReadContract(root)
	return n, errors.Join(releaseErr, recordErr)
}

// named tells whether the options name functions: then those are meant, and not what is
// recorded.
func (o Options) named() bool {
	return len(o.Add)+len(o.Vendors) > 0
}

// withoutRecord returns the node and the options where functions are named: what was allowed
// and which side gets the NVSwitches remain as recorded.
func (n Node) withoutRecord(opts Options) (Node, Options) {
	if r := n.Recorded; r != nil && opts.named() {
		opts.Allow = append(slices.Clone(opts.Allow), r.Allowed...)
		opts.Allow = slices.DeleteFunc(opts.Allow, func(a pci.Address) bool { return n.device(a) == nil && slices.Contains(r.Allowed, a) })
		if opts.Driver == "" {
			opts.Driver = r.Driver
		}
		if opts.NVSwitch == "" && r.NVSwitch == SwitchesToHost {
			opts.NVSwitch = r.NVSwitch
		}
		// What goes to guests by the record is separated from nothing that is named.
		for _, f := range r.Functions {
			if d := n.device(f.Address); d != nil && (d.IsNVSwitch() || d.IsBoardGPU()) {
				opts.Allow = append(opts.Allow, f.Address)
			}
		}
		n.Recorded = nil
	}
	return n, opts
}

// Bind plans to give functions to guests now: those that opts name, else those recorded,
// else every NVIDIA display function, with all that go with them. live permits drivers
// to be made to let go that may never do so.
func (n Node) Bind(root host.Root, opts Options, uses Uses, live bool) (Live, error) {
	record := n.Recorded
	ways := n.bindAttempt(root, opts)
	n, opts = n.withoutRecord(opts)
	s, err := n.choose(opts)
	if err != nil {
		return Live{}, ways.refused(s, split(err))
	}
	if refusals, _ := n.refusals(s); len(refusals) > 0 {
		return Live{}, ways.refused(s, refusals)
	}
	l := Live{Functions: s.all, Warnings: n.Warnings}
	var goals []driver.Goal
	var errs []error
	stub := false
	for _, a := range s.all {
		d := n.device(a)
		want := n.driverNow(d, opts)
		held := text(d.Driver)
		if held == want || want == Stub && held == VFIO && record.holdsWith(a, Stub) && uses.guest(a) != nil {
			continue // so it is, or libvirt has taken it from pci-stub for a guest
		}
		if d.IOMMUGroup == nil {
			errs = append(errs, fmt.Errorf("%s: %w", a, ErrNoGroup))
		}
		goals = append(goals, driver.Goal{Address: a, State: driver.State{Driver: driver.Name(want), Override: driver.Name(want)}})
		stub = stub || want == Stub
	}
	if stub {
		l.Warnings = append(l.Warnings, "when a guest stops, libvirt hands functions that pci-stub has only by driver_override to the host's drivers; vfio-pci keeps them")
	}
	var planErr error
	l.Plan, planErr = driver.New(root, n.Devices, goals, false)
	errs = append(errs, planErr)
	for _, name := range l.Load {
		if len(n.Kernels) > 0 && !n.Kernels[0].Loadable(name) {
			errs = append(errs, fmt.Errorf("driver %s: %w", name, ErrNoModule))
		}
	}
	warnings, err := n.Refuse(l.Plan, uses, live)
	l.Warnings = append(l.Warnings, warnings...)
	return l, errors.Join(append(errs, err)...)
}

// bindAttempt returns what looks for options that Bind accepts: it has no record of its own,
// and selects just what is named.
func (n Node) bindAttempt(root host.Root, opts Options) attempt {
	return attempt{
		node: n, root: root, opts: opts,
		choose: func(o Options) (selection, error) {
			named, o := n.withoutRecord(o)
			return named.choose(o)
		},
		try: func(o Options) []error {
			named, o := n.withoutRecord(o)
			s, err := named.choose(o)
			if err != nil {
				return split(err)
			}
			refusals, _ := named.refusals(s)
			return refusals
		},
		exact: func(functions []pci.Address) Options {
			return Node{Devices: n.Devices}.only(opts, functions)
		},
	}
}

// driverNow is the driver that is to hold a function: what is recorded, or, where VFIO
// has one of its own for just such a device, that.
func (n Node) driverNow(d *pci.Device, opts Options) string {
	want := opts.Driver
	if r := n.Recorded; r != nil && want == "" {
		for _, f := range r.Functions {
			if f.Address == d.Address {
				return f.Driver
			}
		}
		want = r.Driver
	}
	if want == "" {
		want = VFIO
	}
	if variant := n.variant(d); want == VFIO && variant != "" {
		return variant
	}
	return want
}

// Release plans to return functions to the host now, to the drivers that they had before they
// were bound: those that opts name, else those recorded and those in taken, else every NVIDIA
// GPU. A function whose driver is unknown gets the one that the kernel has for it, or any that
// binds it.
func (n Node) Release(root host.Root, opts Options, uses Uses, taken map[pci.Address]driver.State) (Live, error) {
	n, opts = n.withoutRecord(opts)
	if !opts.named() {
		var present []pci.Address
		for a := range taken {
			if n.device(a) != nil {
				present = append(present, a)
			}
		}
		if n.Recorded != nil {
			// A function that has changed since was not bound: the others are returned.
			rest, changed := n.unchanged()
			present = append(present, rest...)
			for _, err := range changed {
				n.Warnings = append(slices.Clone(n.Warnings), fmt.Sprintf("left out: %v", err))
			}
			if n.Recorded = nil; len(present) == 0 {
				plan, err := driver.New(root, n.Devices, nil, true)
				return Live{Plan: plan, Functions: []pci.Address{}, Warnings: n.Warnings}, err
			}
		}
		opts = n.only(opts, present)
	}
	s, err := n.choose(opts)
	if err != nil {
		return Live{}, err
	}
	l := Live{Functions: s.all, Warnings: n.Warnings}
	drivers, err := readDrivers(root)
	if err != nil {
		return Live{}, err
	}
	var goals []driver.Goal
	for _, a := range s.all {
		d := n.device(a)
		goal := driver.Goal{Address: a}
		was, known := taken[a]
		switch held := text(d.Driver); {
		case held != "" && !pci.LeavesAlone(held):
			goal.Driver = driver.Name(held) // and no other is set to be the only one
		case held == "" && d.DriverOverride == nil:
			continue
		case known:
			goal.State = was
		default:
			goal.Driver = driver.Name(n.hostDriver(d, drivers))
			goal.Any = goal.Driver == ""
		}
		goals = append(goals, goal)
	}
	var planErr, refusals error
	l.Plan, planErr = driver.New(root, n.Devices, goals, true)
	warnings, refusals := n.Refuse(l.Plan, uses, true)
	l.Warnings = append(l.Warnings, warnings...)
	return l, errors.Join(planErr, refusals)
}

// readDrivers returns the drivers that the kernel has now, each with the module that it
// is of: often, not always, of the same name (Linux, module_add_driver).
func readDrivers(root host.Root) (map[string]string, error) {
	const dir = "/sys/bus/pci/drivers"
	names, err := root.ReadDir(dir)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	modules := map[string]string{}
	for _, name := range names {
		modules[name] = modprobe.Normal(name)
		if usual := usuallyBuiltin[name]; usual != "" {
			modules[name] = usual
		}
		d, err := root.OpenDir(path.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(dir, name), host.Cause(err))
		}
		target, err := d.Readlink("module")
		d.Close() //nolint:errcheck // only read from
		switch {
		case err == nil:
			modules[name] = modprobe.Normal(path.Base(target))
		case !host.IsAbsent(err): // a part of the kernel has none
			return nil, fmt.Errorf("%s: %w", path.Join(dir, name, "module"), err)
		}
	}
	return modules, nil
}

// hostDriver is the driver, of those that the kernel has now, that the function's alias
// leads to, or "".
func (n Node) hostDriver(d *pci.Device, drivers map[string]string) string {
	if d.Modalias == nil || len(n.Kernels) == 0 {
		return ""
	}
	for _, module := range n.Kernels[0].Match(*d.Modalias) {
		for name, of := range drivers {
			if of == module {
				return name
			}
		}
	}
	return ""
}

// guest returns the guest that has a function, or nil.
func (u Uses) guest(a pci.Address) *InUse {
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

// blind tells why it is not known which guests have which functions, or "". What was read
// of a source that could not be read whole does not count: a list may lack a guest.
func (u Uses) blind() string {
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

// Refuse names the functions of a plan that cannot change hands now, because somebody
// uses them, and warns where that cannot be told of a tree.
func (n Node) Refuse(p driver.Plan, uses Uses, live bool) (warnings []string, err error) {
	if len(p.Changes) == 0 {
		return nil, nil
	}
	var errs []error
	switch blind := uses.blind(); {
	case blind != "" && uses.Running:
		errs = append(errs, fmt.Errorf("%w: %s", ErrBlind, blind))
	case blind != "":
		warnings = append(warnings, fmt.Sprintf("%v: %s", ErrBlind, blind))
	}
	for _, c := range p.Changes {
		d := n.device(c.Address)
		if d == nil || c.Before.Driver == "" || c.Before.Driver == c.After.Driver {
			continue // nothing has to let go
		}
		if used := uses.guest(c.Address); used != nil {
			errs = append(errs, used)
		}
		for _, h := range uses.Holders {
			if h.Address == c.Address {
				errs = append(errs, &InUse{Address: h.Address, PID: h.PID, Command: h.Command, File: h.File, Unit: h.Unit})
			}
		}
		if err := n.virtualized(d, n.physical()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Address, err))
		}
		if held := string(c.Before.Driver); !live && mayHang(d, held) {
			errs = append(errs, fmt.Errorf("%s: unbinding %s %w", c.Address, held, ErrLive))
		}
	}
	return warnings, errors.Join(errs...)
}

// mayHang tells whether a driver of the host's is one that is known not to return from
// letting a function go: those of GPUs, and NVIDIA's.
func mayHang(d *pci.Device, held string) bool {
	return !pci.LeavesAlone(held) && (d.IsGPU() || strings.HasPrefix(held, "nvidia"))
}

// Needed names the functions of a plan that the host needs, where they would go to
// guests.
func (n Node) Needed(p driver.Plan) error {
	var errs []error
	for _, c := range p.Changes {
		for _, need := range n.Needs {
			if need.Address == c.Address && !p.Release {
				errs = append(errs, &Refusal{Address: c.Address, Reason: ErrNeeded.Error() + ": " + need.Reason, Absolute: need.Absolute, Err: ErrNeeded})
			}
		}
	}
	return errors.Join(errs...)
}
