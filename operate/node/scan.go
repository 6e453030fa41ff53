package node

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/hardware"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
	"gpustack/nova"
)

// ScanOptions are the options of a scan.
type ScanOptions struct {
	All      bool
	Filter   pci.Filter
	PCIIDs   string
	Machine  bool // read the facts of the machine, too
	Tree     bool // bridges above are shown, too
	Document bool // read what only documents show, too
}

// lists returns a function that reports whether a device is to be listed, and nil if all are.
func (o ScanOptions) lists(devices []pci.Device) func(*pci.Device) bool {
	switch {
	case !o.Filter.IsZero():
		return o.Filter.Matches
	case o.All:
		return nil
	}
	return pci.Candidates(devices)
}

// ReadScan returns the functions that are to be listed, and all that were read.
func ReadScan(root host.Root, opts ScanOptions) (shown Scan, all []ScannedDevice, err error) {
	functions := pci.Options{PCIIDs: opts.PCIIDs, BARs: opts.Document, Brief: !opts.Document}
	if opts.lists(nil) != nil && !opts.Tree { // a tree shows drivers and states of the bridges above, too
		functions.Needs = opts.lists
	}
	m := machine.ObserveScan(root, functions)
	whole, err := newScan(m)
	if err != nil {
		return Scan{}, nil, err
	}
	defaults := whole.judge(root, m)
	others, err := m.ByOtherMeans(root)
	if err != nil {
		others = append(others, fmt.Sprintf("cannot determine what was prepared by other means: %v", err))
	}
	whole.Warnings = append(whole.Warnings, others...)
	whole.scope(opts, m.Devices.Value)
	if opts.Document {
		name, warnings := nameInNova(root, whole.Host)
		whole.NovaHost, whole.Warnings = name, append(whole.Warnings, warnings...)
	}
	if opts.Machine {
		facts, warnings := hardware.Read(root)
		facts.ID = host.ReadMachineID(root) // no snapshot has it without --identity
		whole.Machine, whole.Warnings = &facts, append(whole.Warnings, warnings...)
	}
	shown, err = whole.narrow(opts, m.Devices.Value, defaults)
	if err != nil {
		return Scan{}, nil, err
	}
	if opts.Document {
		shown.readDrivers(root)
		shown.readContainers(root, m.Devices.Value)
	}
	return shown, whole.Devices, nil
}

// Scan is the output of host scan (docs/json.md).
type Scan struct {
	Schema int     `json:"schema"`
	Host   *string `json:"host"`
	// the host's name in Nova: the option host of nova.conf, otherwise the hostname; null if
	// nova.conf cannot be read, and in a table, for which it is not read
	NovaHost *string        `json:"nova_host"`
	Version  string         `json:"version"`
	Time     time.Time      `json:"time"`
	System   machine.System `json:"system"` // what the machine runs
	Scope    nova.Scope     `json:"scope"`  // which functions are listed
	// Complete is whether every function of the scope is listed: false with a filter, and if the
	// class, an id or the IOMMU group of any function could not be read. Commands that read
	// inventories refuse incomplete ones.
	Complete bool            `json:"complete"`
	Devices  []ScannedDevice `json:"devices"` // the listed functions, by address
	Groups   []iommu.Group   `json:"groups"`  // the IOMMU groups of the listed functions, by number
	GPUs     gpuCount        `json:"gpus"`    // the number of listed GPUs in each state
	Next     *host.Next      `json:"next"`    // the next step; null for none
	// the machine's facts, without serial numbers, UUIDs and MAC addresses; absent without
	// --machine
	Machine *hardware.Facts `json:"machine,omitempty"`
	// files that cannot be read or parsed and belong to no listed function
	Warnings []string `json:"warnings"`
}

// ScannedDevice is a function with its state.
type ScannedDevice struct {
	*pci.Device
	// whether a guest uses it or can use it; null for a bridge
	State *selection.StateName `json:"state"`
	// the guest that uses it: its UUID, otherwise its name or process; null for none
	Guest *string `json:"guest"`
	// Detail is a text for people: what blocks it, why it is unknown, "console", "prepared"
	// (recorded by host prepare), or that its use cannot be determined; "" for nothing, null for a
	// bridge.
	Detail *string `json:"detail"`
	// what it is for; null for a bridge, and while what is recorded cannot be read
	Role *machine.Role `json:"role"`
	// Container is the container that has the function open, as "container 0123456789ab"; ""
	// for none, null if that is unknown, as in a snapshot and for users other than root. Open nodes
	// that serve all GPUs of NVIDIA's driver do not count.
	Container *string `json:"container"`
	// the version of the bound driver, which its module shows: "580.95.05"; null if it shows none
	DriverVersion *string `json:"driver_version"`

	Whole *selection.State `json:"-"`
}

// setState sets the state of a function.
func (d *ScannedDevice) setState(s *selection.State) {
	if d.Whole = s; s != nil {
		d.State, d.Guest, d.Detail = &s.Name, s.Guest, &s.Detail
	}
}

// readDrivers reads the versions of the drivers' modules that have one, each module once: a server
// has hundreds of functions and few drivers.
func (r *Scan) readDrivers(root host.Root) {
	root = root.Once()
	for i := range r.Devices {
		d := &r.Devices[i]
		name := d.DriverName()
		if name == "" {
			continue
		}
		text, err := host.IfPresent(root.ReadFile(path.Join("/sys/module", strings.ReplaceAll(name, "-", "_"), "version")))
		if err != nil {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: cannot determine the version of driver %s: %v", d.Address, name, err))
		} else if version := strings.TrimSpace(string(text)); version != "" {
			d.DriverVersion = &version
		}
	}
}

// readContainers determines which containers have functions open. A node of NVIDIA's driver that
// serves all its GPUs counts for none of them. Without a process, as in a snapshot, and where
// processes cannot be read, as by other users than root, nothing is known.
func (r *Scan) readContainers(root host.Root, devices pci.Devices) {
	if pids, err := host.PIDs(root); err != nil || len(pids) == 0 {
		return
	}
	holders, err := guard.Holders(root, devices)
	if err != nil {
		return
	}
	opened := map[pci.Address]string{}
	for _, h := range holders {
		if name := h.Container; name != "" && !h.Shared && opened[h.Address] == "" {
			opened[h.Address] = name
		}
	}
	for i := range r.Devices {
		name := opened[r.Devices[i].Address]
		r.Devices[i].Container = &name
	}
}

// gpuCount is the number of listed GPUs by state, without virtual functions.
type gpuCount struct {
	// NVIDIA GPUs, on a machine without any those of other vendors, or those of a filter, without
	// virtual functions
	Listed int `json:"listed"`
	// available to the host, and neither their groups nor the console block host prepare
	Preparable int `json:"preparable"`
	Prepared   int `json:"prepared"`    // available to the host, and recorded by host prepare
	GuestReady int `json:"guest_ready"` // in the state "guest-ready"
	InUse      int `json:"in_use"`      // in the state "in use"
	Blocked    int `json:"blocked"`     // in the state "blocked"
	Console    int `json:"console"`     // the host uses them as its console
	Unknown    int `json:"unknown"`     // in the state "unknown"

	bound int // of Unknown: bound to VFIO, and only whether a guest uses them is unknown
}

// forGuests returns the number of GPUs that are assigned to guests, or can be.
func (n gpuCount) forGuests() int { return n.Prepared + n.Bound() }

// Bound returns the number of GPUs that are bound for guests, whether guests use them or not.
func (n gpuCount) Bound() int { return n.GuestReady + n.InUse + n.bound }

// Unseen returns the number of GPUs in the state "unknown" that are not known to be bound for guests.
func (n gpuCount) Unseen() int { return n.Unknown - n.bound }

// newScan returns the report, without states, of a machine that was observed by
// [machine.ObserveScan].
func newScan(m machine.Machine) (Scan, error) {
	if err := m.Devices.Err; err != nil {
		return Scan{}, err
	}
	devices := m.Devices.Value
	scanned := make([]ScannedDevice, len(devices))
	for i := range devices {
		scanned[i].Device = &devices[i]
	}
	return Scan{
		Schema:   1,
		Host:     m.Facts.Hostname,
		System:   machine.NewSystem(m),
		Devices:  scanned,
		Groups:   iommu.Groups(devices),
		Warnings: m.Warnings,
	}, nil
}

// judge sets the state of every function. It determines which guests use functions only if a
// driver for passthrough is bound to one. defaults are the GPUs that host prepare selects without
// options; nil if it has recorded a selection, or if that is unknown.
func (r *Scan) judge(root host.Root, m machine.Machine) (defaults []pci.Address) {
	var uses machine.Uses
	if slices.ContainsFunc(r.Devices, func(d ScannedDevice) bool { return d.Driver != nil && pci.LeavesAlone(*d.Driver) }) {
		uses.Guests = guest.ObserveUses(root)
	}
	if err := m.Contract.Err; err != nil { // only root can read it
		r.Warnings = append(r.Warnings, fmt.Sprintf("cannot determine which GPUs are prepared: %v", err))
	}
	if err := m.Mediated.Err; err != nil {
		r.Warnings = append(r.Warnings, err.Error())
	}
	if err := m.Kernels.Err; err != nil && !errors.Is(err, machine.ErrNoKernel) {
		r.Warnings = append(r.Warnings, fmt.Sprintf("cannot determine which functions no kernel has a driver for: %v", err))
	}
	if m.Contract.Value == nil && m.Contract.Seen() {
		defaults = m.Defaults()
	}
	guests := m.Contract.Value.There(m.Devices.Value)
	for i, s := range selection.NewNode(m).States(r.Groups, r.System.IOMMU.Enabled, uses) {
		r.Devices[i].setState(s)
		if s != nil && m.Contract.Seen() {
			role := machine.RoleOf(guests, m.Containers, r.Devices[i].Address)
			r.Devices[i].Role = &role
		}
	}
	return defaults
}

// scope sets which functions are to be listed, and whether one that belongs to them can be missing:
// it may, if the class, an id or the IOMMU group of any function could not be read.
func (r *Scan) scope(opts ScanOptions, devices pci.Devices) {
	switch {
	case !opts.Filter.IsZero():
		r.Scope = nova.ScopeFiltered
	case opts.All:
		r.Scope = nova.ScopeAll
	default:
		r.Scope = nova.ScopeGPUs
	}
	r.Complete = r.Scope != nova.ScopeFiltered && !slices.ContainsFunc(devices, func(d pci.Device) bool {
		return d.Class == nil || d.VendorID == nil || d.ProductID == nil || d.GroupUnread()
	})
}

// nameInNova returns the name in Nova of the host with a hostname, as host guests does; nil if
// nova.conf cannot be read.
func nameInNova(root host.Root, hostname *string) (name *string, warnings []string) {
	option := nova.ReadHostOption(root, nil)
	switch {
	case option.Err != nil: // nova.conf has passwords: only some users can read it
		return nil, []string{"cannot determine the host's name in Nova: " + strings.ReplaceAll(option.Err.Error(), "\n", "; ")}
	case option.Host != nil:
		return option.Host, nil
	}
	return hostname, nil
}

// narrow returns the report with only the requested devices and their groups, and counts their
// GPUs. Requesting a device that does not exist is an error.
func (r Scan) narrow(opts ScanOptions, devices pci.Devices, defaults []pci.Address) (Scan, error) {
	if err := missing(opts.Filter.Devices, devices); err != nil {
		return Scan{}, err
	}
	all := r.Devices
	if lists := opts.lists(devices); lists != nil {
		groups := map[int]bool{}
		r.Devices = []ScannedDevice{}
		for _, d := range all {
			if !lists(d.Device) {
				r.Warnings = append(r.Warnings, d.Warnings...)
				continue
			}
			r.Devices = append(r.Devices, d)
			if d.IOMMUGroup != nil {
				groups[*d.IOMMUGroup] = true
			}
		}
		r.Groups = slices.DeleteFunc(r.Groups, func(g iommu.Group) bool { return !groups[g.Number] })
	}
	r.count(opts, devices, defaults)
	return r, nil
}

// count counts the listed GPUs: those that the machine has for guests or, with a filter, those that
// it selects. It sets the next command to run.
func (r *Scan) count(opts ScanOptions, devices pci.Devices, defaults []pci.Address) {
	var preparable, refused []pci.Address
	n, isOfMachine := &r.GPUs, pci.GPUs(devices)
	for _, d := range r.Devices {
		if !d.IsGPU() || d.SRIOV.PF != nil || opts.Filter.IsZero() && !isOfMachine(d.Device) {
			continue
		}
		n.Listed++
		switch s := d.Whole; {
		case s.Preparable():
			n.Preparable++
			preparable = append(preparable, d.Address)
			continue
		case s.Prepared():
			n.Prepared++
			continue
		case s.Bound:
			n.Unknown++
			n.bound++
			continue
		case s.Name == selection.GuestReady:
			n.GuestReady++
			continue
		case s.Name == selection.UsedBy:
			n.InUse++
			continue
		case s.Name == selection.Blocked:
			n.Blocked++
		case s.Name == selection.NotKnown:
			n.Unknown++
		default:
			n.Console++
		}
		if d.Role == nil || *d.Role != machine.OfContainer {
			refused = append(refused, d.Address)
		}
	}
	gpus := preparable
	switch {
	case n.Listed == 0:
		return
	case n.Preparable > 0:
	case n.forGuests() > 0:
		r.Next = host.NewNext(host.NewCommand("host check"))
		return
	case refused == nil:
		r.Next = host.NewNext(host.NewCommand("container check"))
		return
	default:
		gpus = refused // host prepare prints the alternatives
	}
	next := planCommand
	if r.ChoosesSwitches() {
		next = next.Flag("nvswitch", string(machine.SwitchesToHost)) // which changes less
	}
	if !slices.Equal(gpus, defaults) {
		for _, gpu := range gpus {
			next = next.Flag("device", gpu.String())
		}
	}
	r.Next = host.NewNext(next)
}

// planCommand shows what host prepare would do.
var planCommand = host.NewCommand("host prepare").Flag("dry-run")

// ChoosesSwitches reports whether host prepare has to be told which side gets the NVSwitches.
func (r Scan) ChoosesSwitches() bool {
	n := r.GPUs
	return n.Preparable > 0 && n.forGuests() == 0 &&
		slices.ContainsFunc(r.Devices, func(d ScannedDevice) bool { return d.IsNVSwitch() })
}

// PlanCommand returns the command that shows what host prepare would do to a machine that was
// observed for a check: with the options that a scan finds to be accepted. refused are the errors
// of host prepare without options: without any, its own selection is accepted. Of several, each has
// its own remedy, and what is accepted after these is unknown: then the command has no options.
func PlanCommand(root host.Root, m machine.Machine, refused []error) host.Command {
	if len(refused) != 1 {
		return planCommand
	}
	whole, err := newScan(m)
	if err != nil {
		return planCommand
	}
	defaults := whole.judge(root, m)
	shown, err := whole.narrow(ScanOptions{}, m.Devices.Value, defaults)
	if err != nil || shown.Next == nil || shown.Next.Command.Name() != planCommand.Name() {
		return planCommand
	}
	return shown.Next.Command
}

// missing returns an error for each selector that matches no function.
func missing(selectors []pci.Selector, devices pci.Devices) error {
	return errors.Join(host.Map(selectors, func(s pci.Selector) error {
		if slices.ContainsFunc(devices, func(d pci.Device) bool { return s.Matches(&d) }) {
			return nil
		}
		err := fmt.Errorf("device %s: not among the %d PCI functions of this machine", s, len(devices))
		return devices.NotFound(err, s, pci.ListFunctions())
	})...)
}

// AllWarnings returns the warnings with those of the listed functions.
func (r Scan) AllWarnings() []string {
	return append(r.Warnings, host.FlatMap(r.Devices, func(d ScannedDevice) []string { return d.Warnings })...)
}
