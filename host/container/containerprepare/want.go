package containerprepare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// Options are what the operator asks for. What is recorded stays unless they say otherwise.
type Options struct {
	GPUs, HCAs  []pci.Address // to add to those that are recorded
	UMAD        *bool         // nil for as recorded
	LibraryPath *bool         // nil for as recorded
	Static      *bool         // nil for as recorded
	Remove      []pci.Address
	None        bool
}

// Errors of options that the machine cannot satisfy.
var (
	// ErrNoGPU is the error of --device for a function that is no GPU of NVIDIA's.
	ErrNoGPU = host.WithHint(errors.New("is no GPU of NVIDIA's"), host.Textf("'%s' lists the GPUs; --hca adds RDMA adapters", host.NewCommand("host scan")))
	// ErrForGuests is the error of a function that is for guests.
	ErrForGuests = host.WithHint(host.WithCode(errors.New("is for guests"), host.CodeRole, ""),
		host.Textf("take it from guests first: %s", host.NewCommand("host prepare").Flag("remove", "ADDRESS")))
	// ErrVFsForGuests is the error of an adapter whose VFs are for guests.
	ErrVFsForGuests = host.WithHint(host.WithCode(errors.New("is recorded by rdma prepare for guests"), host.CodeRole, ""),
		host.Textf("give containers an adapter of their own: '%s' lists them", host.NewCommand("rdma scan")))
	// ErrNotMade is the error of a VF that rdma prepare has recorded.
	ErrNotMade = host.WithHint(errors.New("is a VF that does not exist yet"), "it is made at the next boot, or by: systemctl restart "+steps.Unit)
	// ErrUnbound is the error of a GPU that is not bound to NVIDIA's driver.
	ErrUnbound = host.WithHint(errors.New("is not bound to NVIDIA's driver"),
		host.Textf("bind it first: '%s' for one on vfio-pci, once no guest uses it, else load the module nvidia",
			host.NewCommand("host release").Flag("device", "ADDRESS")))
	// ErrNoModule is the error of a machine whose running kernel has no module of NVIDIA's.
	ErrNoModule = host.WithHint(errors.New("the running kernel has no module of NVIDIA's driver"),
		host.Textf("install the driver for it, or boot a kernel that has it; '%s' lists the modules", host.NewCommand("container check")))
	// ErrMIG is the error of a GPU that is divided into MIG instances.
	ErrMIG = host.WithHint(errors.New("is divided into MIG instances"),
		"describe the instances with nvidia-ctk cdi generate, or switch MIG off: nvidia-smi -i ADDRESS -mig 0")
	// ErrBlacklisted is the error of a line or kernel argument that keeps NVIDIA's driver from being
	// loaded. host prepare writes such a line when no GPU stays, and removes it when one does.
	ErrBlacklisted = host.WithHint(errors.New("keeps NVIDIA's driver from being loaded at boot"),
		host.Textf("remove it, from the boot loader's configuration if it is a kernel argument; '%s' removes its own line, because a GPU stays with the host",
			host.NewCommand("host prepare")))
	// ErrBoard is the error of a part of a board with NVSwitches.
	ErrBoard = host.WithHint(host.WithCode(errors.New("is part of a board with NVSwitches, whose GPUs work together only"), host.CodeNVSwitch, ""),
		"add all GPUs of the board with --device")
	// ErrDriverContainer is the error of specs that a boot would write before a driver container runs.
	ErrDriverContainer = host.WithHint(errors.New("starts after "+steps.Unit+", which would find neither its libraries nor the GPUs"),
		host.Textf("write the specs once: %s", host.NewCommand("container prepare").Flag("static")))
	// errNoAdapter is the error of umad nodes without an adapter.
	errNoAdapter = host.WithHint(errors.New("--umad is for adapters, and none is for containers"), "add one with --hca")
	// ErrKindTaken is the error of a kind that a spec of another program has.
	ErrKindTaken = host.WithHint(host.WithCode(errors.New("has this kind too: runtimes take one of the specs, or neither"), host.CodeOtherOwner, ""),
		"remove that file, or have its program name a kind of its own")
)

// errUnnamed is the error of options that name no function, where none is recorded.
var errUnnamed = host.WithHint(errors.New("no function is named, and none is recorded for containers"),
	host.Textf("%s; '%s' lists the GPUs, '%s' the adapters", host.NewCommand("container prepare").Flag("device", "ADDRESS"),
		host.NewCommand("host scan"), host.NewCommand("rdma scan")))

// Unnamed returns an error if options name no function, and none is recorded.
func (o Options) Unnamed(m Observed) error {
	if m.Recorded != nil || len(o.GPUs)+len(o.HCAs)+len(o.Remove) > 0 || o.None {
		return nil
	}
	return errUnnamed
}

// Want is the wanted record without the files, with the specs that follow from it.
type Want struct {
	Record   machine.Containers
	Specs    container.Specs
	Warnings []string
	options  Options
}

// static returns the command that asks for the same with static specs.
func (o Options) static() host.Command {
	c := host.NewCommand("container prepare")
	addresses := func(flag string, all []pci.Address) {
		for _, a := range all {
			c = c.Flag(flag, a.String())
		}
	}
	addresses("device", o.GPUs)
	addresses("hca", o.HCAs)
	if o.UMAD != nil {
		c = c.Flag(fmt.Sprintf("umad=%t", *o.UMAD))
	}
	if o.LibraryPath != nil {
		c = c.Flag(fmt.Sprintf("library-path=%t", *o.LibraryPath))
	}
	addresses("remove", o.Remove)
	return c.Flag("static")
}

// NewWant returns what the options ask for. Its error names everything that prevents it.
func NewWant(m Observed, o Options) (Want, error) {
	w := wanting{Observed: m, Options: o}
	w.Want.options = o
	if m.Recorded != nil && !o.None {
		w.Record.Options = m.Recorded.Options
		w.Record.Functions = slices.Clone(m.Recorded.Functions)
	}
	w.options()
	for _, a := range pci.Unique(o.Remove) {
		if m.Recorded.At(a) == nil {
			w.fail(fmt.Errorf("%s: %w", a, container.ErrNotRecorded))
		}
		w.drop(a)
	}
	for _, a := range pci.Unique(o.GPUs) {
		if err := w.gpu(a); err != nil {
			w.fail(fmt.Errorf("%s: %w", a, err))
			continue
		}
		w.add(a, false)
	}
	for _, a := range pci.Unique(o.HCAs) {
		if err := w.hca(a); err != nil {
			w.fail(fmt.Errorf("%s: %w", a, err))
			continue
		}
		w.add(a, true)
	}
	if len(o.GPUs) > 0 {
		w.module()
	}
	if o.UMAD != nil && *o.UMAD && !slices.ContainsFunc(w.Record.Functions, func(f machine.ContainerFunction) bool { return f.HCA }) {
		w.fail(errNoAdapter)
	}
	w.boards()
	w.kinds()
	for i := range w.Record.Functions {
		if gpu := m.Driver.GPU(w.Record.Functions[i].Address); gpu != nil && gpu.UUID != nil {
			w.Record.Functions[i].UUID = *gpu.UUID
		}
	}
	slices.SortFunc(w.Record.Functions, func(a, b machine.ContainerFunction) int { return a.Address.Compare(b.Address) })
	w.Specs = container.SpecOf(&w.Record, m.Driver, m.Stack, m.Devices)
	w.missing()
	w.driverContainer()
	return w.Want, errors.Join(w.errs...)
}

// wanting builds a Want.
type wanting struct {
	Observed
	Options
	Want
	errs []error
}

func (w *wanting) fail(err error) { w.errs = append(w.errs, err) }

// options changes the recorded options as asked.
func (w *wanting) options() {
	r := &w.Record.Options
	r.UMAD, r.LibraryPath, r.Static = host.Or(w.UMAD, r.UMAD), host.Or(w.LibraryPath, r.LibraryPath), host.Or(w.Static, r.Static)
}

func (w *wanting) drop(a pci.Address) {
	w.Record.Functions = slices.DeleteFunc(w.Record.Functions, func(f machine.ContainerFunction) bool { return f.Address == a })
}

// add adds a function to the record in place of an older record of its address.
func (w *wanting) add(a pci.Address, hca bool) {
	d := w.Devices.At(a)
	if d.VendorID == nil || d.ProductID == nil {
		w.fail(fmt.Errorf("%s: its ids cannot be read", a))
		return
	}
	w.drop(a)
	w.Record.Functions = append(w.Record.Functions, machine.ContainerFunction{
		Address: a, VendorID: *d.VendorID, ProductID: *d.ProductID, SubsystemVendorID: d.SubsystemVendorID, SubsystemID: d.SubsystemID,
		Path: append([]pci.Address{}, w.Devices.Path(d)...), HCA: hca,
	})
}

// named replaces ADDRESS in the hint of an error.
func named(err error, a pci.Address) error {
	hint := host.HintOf(err)
	if len(hint) == 0 {
		return err
	}
	return host.WithHint(err, hint.Replace("ADDRESS", a.String()))
}

// records returns what is recorded, of which a function and its VFs have one role.
func (w *wanting) records() gate.Records {
	return gate.Records{Guests: w.Guests, Containers: w.Recorded, RDMA: w.RDMA}
}

// gpu returns why a GPU cannot be for containers.
func (w *wanting) gpu(a pci.Address) error {
	d := w.Devices.At(a)
	switch {
	case d == nil:
		return w.Devices.NotFound(errors.New("there is no such PCI function"), pci.SelectorOf(a), pci.ListFunctions())
	case !d.IsNVIDIAGPU():
		return ErrNoGPU
	case w.records().ForGuests(w.Devices, a):
		return named(ErrForGuests, a)
	case w.Driver.MIG[a]:
		return named(ErrMIG, a)
	case w.Driver.GPU(a) == nil:
		return named(fmt.Errorf("%w: its driver is %s", ErrUnbound, cmp.Or(d.DriverName(), "none")), a)
	case w.Driver.GPU(a).Minor == nil:
		return host.WithHint(errors.New("the driver shows no device minor of it"),
			"wait until the driver has initialized it, or look into the kernel's log: journalctl -k")
	}
	return nil
}

// hca returns why an RDMA adapter cannot be for containers.
func (w *wanting) hca(a pci.Address) error {
	d, adapter, prepared := w.Devices.At(a), w.Stack.At(a), w.records().Adapter(w.Devices, a)
	switch {
	case d == nil && w.records().RDMA.Of(a) != nil:
		return ErrNotMade
	case d == nil:
		return w.Devices.NotFound(errors.New("there is no such PCI function"), pci.SelectorOf(a), pci.ListAdapters())
	case w.records().ForGuests(w.Devices, a):
		return named(ErrForGuests, a)
	case gate.OfSwitches(w.Devices, gate.Leaving{Address: a, Kind: gate.Role}) != nil:
		return gate.OfSwitches(w.Devices, gate.Leaving{Address: a, Kind: gate.Role}).Err
	case prepared != nil && prepared.Use == rdma.ForGuests:
		return ErrVFsForGuests
	case adapter == nil || adapter.Name == "" && adapter.Elsewhere == "":
		return rdma.NoDevice(adapter, d)
	case adapter.Verbs == nil:
		return host.WithHint(errors.New("has no uverbs device"), host.Textf("modprobe ib_uverbs; %s names the modules that are missing",
			host.NewCommand("rdma check")))
	}
	return nil
}

// module fails if NVIDIA's driver is not loaded at the next boot.
func (w *wanting) module() {
	running := w.Driver.Loaded != nil
	for _, m := range w.Driver.OnDisk {
		running = running || m.Running
	}
	if !running {
		w.fail(ErrNoModule)
	}
	for _, line := range w.Blacklists {
		if slices.Contains(modprobe.RunFiles(), line.File) { // of this boot; the driver has the GPU all the same
			w.Warnings = append(w.Warnings, fmt.Sprintf("%s is of this boot; if '%s' plans to end it, carry that out before the next boot",
				line, host.NewCommand("host prepare").Flag("dry-run")))
			continue
		}
		w.fail(fmt.Errorf("%s %w", line, ErrBlacklisted))
	}
}

// boards refuses a part of the GPUs of a board with NVSwitches.
func (w *wanting) boards() {
	if w.None || !slices.ContainsFunc(w.Devices, func(d pci.Device) bool { return d.IsNVSwitch() }) {
		return
	}
	wanted := host.Set(w.GPUs) // also those that are refused for another reason
	for _, f := range w.Record.Functions {
		wanted[f.Address] = true
	}
	var lacking []string
	var some *pci.Address
	for i := range w.Devices {
		d := &w.Devices[i]
		switch {
		case !d.IsBoardGPU():
		case !wanted[d.Address]:
			lacking = append(lacking, d.Address.String())
		case some == nil:
			some = &d.Address
		}
	}
	if some != nil && lacking != nil {
		w.fail(fmt.Errorf("%s: %w: %s would stay without", some, ErrBoard, strings.Join(lacking, ", ")))
	}
}

// kinds refuses to add functions to a kind that a spec of another program has.
func (w *wanting) kinds() {
	var kinds []string
	if len(w.GPUs) > 0 {
		kinds = append(kinds, cdi.GPUKind)
	}
	if len(w.HCAs) > 0 {
		kinds = append(kinds, cdi.HCAKind)
	}
	for _, kind := range kinds {
		for _, f := range w.Folders.Files {
			if f.Spec != nil && f.Spec.Kind == kind && !container.IsSpec(f.Path) {
				w.fail(fmt.Errorf("%s: kind: %s: %w", f.Path, kind, ErrKindTaken))
			}
		}
	}
}

// missing fails for added functions that no spec can contain, and warns of recorded ones.
func (w *wanting) missing() {
	for _, m := range w.Specs.Missing {
		switch {
		case m.Address == nil && len(w.GPUs) > 0:
			hint := "install the driver's libraries: " + container.InstallLibraries(w.Family, w.Driver).String()
			if w.Driver.Container != "" {
				hint = "restart the driver container in " + w.Driver.Container
			}
			w.fail(host.WithHint(errors.New(m.Reason), host.Plain(hint)))
		case m.Address == nil:
			w.Warnings = append(w.Warnings, m.Reason)
		case slices.Contains(w.GPUs, *m.Address) || slices.Contains(w.HCAs, *m.Address):
			w.fail(fmt.Errorf("%s: %s", m.Address, m.Reason))
		default:
			w.Warnings = append(w.Warnings, fmt.Sprintf("%s: containers do not get what is recorded: %s", m.Address, m.Reason))
		}
	}
}

// driverContainer refuses specs of GPUs that a boot would write without those.
func (w *wanting) driverContainer() {
	if !w.Driver.OfContainer() || w.Record.Options.Static ||
		!slices.ContainsFunc(w.Record.Functions, func(f machine.ContainerFunction) bool { return !f.HCA }) {
		return
	}
	w.fail(host.WithHint(fmt.Errorf("the driver container in %s %w", w.Driver.Container, ErrDriverContainer),
		host.Textf("write the specs in %s, once: %s", cdi.StaticFolder, w.static())))
}
