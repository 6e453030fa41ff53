package prepare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/initramfs"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// Want is the wanted configuration: the functions for guests, and everything that binds them at
// boot.
type Want struct {
	none       bool // nothing of host prepare remains
	contract   machine.Contract
	arguments  boot.Want
	modprobe   modprobe.Functions
	early      initramfs.Early
	warnings   []string
	takeOver   edit.Changes      // of files of others, without the ids of selected functions
	others     []modprobe.Stated // that bind selected functions even with gpustack=off
	blacklists []string          // see Plan
}

// NewWant returns the configuration that options and the existing record ask for. The error for
// options that cannot be satisfied is a *selection.Refused.
func NewWant(m Observed, opts selection.Options) (Want, error) {
	n, err := newNode(m)
	if err != nil || opts.None {
		return Want{none: opts.None}, err
	}
	if !m.Adapters.Seen() {
		return Want{}, m.Adapters.Err
	}
	s, err := n.Choose(opts)
	if errors.Is(err, selection.ErrNothing) && opts.Remove != nil {
		return Want{none: true}, nil // without the last device it is as with --none
	}
	if err != nil {
		return Want{}, n.Refuse(opts, s, machine.Uses{}, host.Split(err))
	}
	var warnings []string
	var uses machine.Uses
	if slices.ContainsFunc(s.All, n.IsNew) {
		if uses = m.InUse.Value; !m.InUse.Seen() {
			warnings = append(warnings, fmt.Sprintf("cannot determine which processes have devices open: %v", m.InUse.Err))
		}
	}
	answer, errs := n.judge(s, uses)
	w, err := n.want(s, opts)
	if errs = append(errs, host.Split(err)...); len(errs) > 0 {
		return Want{}, n.bindable(n.Refuse(opts, s, uses, errs))
	}
	w.contract.Allowed = n.allowedOf(w.contract.Functions, answer.Lifted)
	w.warnings = slices.Concat(warnings, n.allowed(answer.Lifted), answer.Notes, n.NVSwitchWarnings(s), w.warnings)
	return w, nil
}

// bindable leaves out the commands of a refusal that would be refused in turn: pci-stub binds by ids
// alone, and what --allow lets leave needs the unit, whose error is one of the refusal then.
func (n node) bindable(err error) error {
	var refused *selection.Refused
	if !errors.As(err, &refused) {
		return err
	}
	var unitErr error
	refused.Ways = slices.DeleteFunc(refused.Ways, func(way selection.Way) bool {
		if way.Options.None {
			return false
		}
		s, err := n.Choose(way.Options)
		if err != nil {
			return true
		}
		w, err := n.want(s, way.Options)
		if err != nil {
			return true
		}
		if _, err = n.unitPlan(&w.contract); err != nil {
			unitErr = err
		}
		return err != nil
	})
	refused.Errors = append(refused.Errors, host.Split(unitErr)...)
	return err
}

// judge returns what the gate says of a selection, and an error for each refusal: also for each
// function that rdma prepare has recorded, an adapter as a whole or with VFs, or one of its VFs, and
// for a board that is divided.
func (n node) judge(s gate.Selection, uses machine.Uses) (gate.Answer, []error) {
	answer := n.Decide(s, uses, func(pf pci.Address) string { return n.UseOfVFs(uses, pf) })
	errs := host.Split(answer.Err())
	if separation := n.Separation(s); separation != nil {
		errs = append(errs, separation)
	}
	for _, a := range s.All {
		if of := (gate.Records{RDMA: n.adapters}).Adapter(n.Devices, a); of != nil {
			errs = append(errs, n.OfAdapter(uses, a, of))
		}
	}
	return answer, errs
}

// allowedOf returns the functions that the record names as allowed: those that --allow lets leave,
// and those that it has let leave before and that are the same devices: from the next boot on, the
// gate asks again.
func (n node) allowedOf(functions []machine.Function, lifted []*gate.Refusal) []pci.Address {
	allowed := host.Map(n.Identities(lifted), func(i pci.Identity) pci.Address { return i.Address })
	for _, f := range functions {
		now := f.Identity()
		if slices.ContainsFunc(gate.Records{Guests: n.Recorded}.Allowed().Recorded, func(r pci.Identity) bool {
			return r.Address == f.Address && r.Compare(&now) == pci.NoDifference
		}) {
			allowed = append(allowed, f.Address)
		}
	}
	return pci.Unique(allowed)
}

// allowed returns a warning for each function that leaves the host because --allow names it, unless
// it is recorded already.
func (n node) allowed(lifted []*gate.Refusal) (warnings []string) {
	for _, r := range lifted {
		if n.IsNew(r.Address) {
			warnings = append(warnings, fmt.Sprintf("%s: the %s leaves the host at the next boot (allowed; otherwise refused: %s)",
				r.Address, n.Label(n.Devices.At(r.Address)), r.Reason))
		}
	}
	return warnings
}

func (n node) want(s gate.Selection, opts selection.Options) (Want, error) {
	recorded := host.Value(n.Recorded)
	driver := cmp.Or(opts.Driver, recorded.Driver, machine.VFIO)
	unsafe := opts.Unsafe || recorded.Unsafe
	opts.TakeOver = opts.TakeOver || recorded.TakeOver
	w := Want{contract: machine.Contract{Driver: driver, Selected: s.Selected, Allowed: []pci.Address{},
		NVSwitch: s.NVSwitch, Unsafe: unsafe, TakeOver: opts.TakeOver, Files: []machine.Hash{}}}
	if err := n.checkDriver(driver, &w); err != nil {
		return Want{}, err
	}
	var errs []error
	selected := host.Set(s.All)
	staying := map[string]bool{} // products of which a function remains with the host
	for i := range n.Devices {
		if d := &n.Devices[i]; d.VendorID != nil && d.ProductID != nil && !selected[d.Address] {
			staying[machine.Function{VendorID: *d.VendorID, ProductID: *d.ProductID}.IDs()] = true
		}
	}
	for _, a := range s.All {
		f, err := n.function(a, staying, driver)
		errs = append(errs, err)
		w.contract.Functions = append(w.contract.Functions, f)
	}
	if err := errors.Join(append(errs, n.prevented(w.contract)...)...); err != nil {
		return Want{}, err
	}
	n, err := n.withOthers(&w)
	if err != nil {
		return Want{}, err
	}
	w.arguments = n.iommu
	if unsafe {
		w.arguments.Exact = append(w.arguments.Exact, "vfio_iommu_type1.allow_unsafe_interrupts=1")
	}
	w.modprobe = modprobe.Functions{
		Driver:   driver,
		Softdeps: n.softdeps(w.contract),
		Unsafe:   unsafe && n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable("vfio_iommu_type1") }),
		Load:     n.load(driver),
	}
	isolation := iommu.Isolation("", n.Loader.Args(), nil)
	w.warnings = append(w.warnings, host.Map(isolation, func(f host.Finding) string { return f.Seen + ": " + f.Effect })...)
	n.warnOfVariants(&w)
	w.early = w.contract.Early(n.Kernels)
	n.placeIDs(&w)
	n.placeBlacklist(&w, selected)
	w.blacklists = n.blacklistsOfOthers(w.contract)
	w.contract.Arguments = w.arguments.Args(n.Loader.Args())
	return w, nil
}

// checkDriver returns an error if no kernel has the driver, and warns if some kernels lack it.
func (n node) checkDriver(driver string, w *Want) error {
	has := func(m modprobe.Modules) bool { return m.Has(driver) }
	if !n.anyKernel(has) {
		return fmt.Errorf("driver %s: %w", driver, selection.ErrNoDriver)
	}
	for _, m := range n.Kernels {
		if !has(m) {
			w.warnings = append(w.warnings, fmt.Sprintf("kernel %s has no %s: when it is booted, all functions remain with the host", m.Release, driver))
		}
	}
	return nil
}

// errPrevented is the error of a line or kernel argument that keeps a driver for passthrough from
// being loaded: then neither guests nor the host have the functions.
var errPrevented = host.WithHint(errors.New("keeps the driver for guests from being loaded at boot"),
	"remove it, from the boot loader's configuration if it is a kernel argument")

// prevented returns an error for each setting that keeps a driver of the contract from being loaded.
func (n node) prevented(c machine.Contract) (errs []error) {
	return host.Map(host.Filter(modprobe.Preventing(n.Conf, n.Loader.Args().String(), c.Modules(n.Kernels)...), modprobe.Line.StopsNames),
		func(line modprobe.Line) error { return fmt.Errorf("%s %w", line, errPrevented) })
}

// function returns the record of one function, including how it is bound. staying has the products
// of which a function remains with the host.
func (n node) function(a pci.Address, staying map[string]bool, driver string) (machine.Function, error) {
	d := n.Devices.At(a)
	if d.VendorID == nil || d.ProductID == nil {
		return machine.Function{}, gate.Refuse(a, selection.ErrNoIDs)
	}
	f := machine.Function{
		Address: a, VendorID: *d.VendorID, ProductID: *d.ProductID,
		SubsystemVendorID: d.SubsystemVendorID, SubsystemID: d.SubsystemID,
		Path: n.Devices.Path(d), Group: d.IOMMUGroup, Members: d.GroupMembers, Driver: driver, By: machine.ByIDs,
		BootVGA: d.IsConsole() || host.Value(n.Recorded.At(a)).BootVGA,
	}
	if variant := n.variant(d); driver == machine.VFIO && variant != "" {
		if f.Driver = variant; !n.anyKernel(func(m modprobe.Modules) bool { return m.Has(variant) }) {
			return f, gate.Refuse(a, fmt.Errorf("driver %s: %w", variant, selection.ErrNoVariant))
		}
	}
	// What is bound before the root file system is mounted must be plainly a GPU's: anything else may
	// have come into use until then. Ids match each function of a product, also one that is added later,
	// and ordinary adapters have the same ids as those that manage NVSwitches.
	switch manages := d.NVSwitchManager == host.Yes; {
	case n.Devices.GPUOf(d) == nil && !d.IsNVSwitch(), n.Needs.Below[a] != "", machine.ImagesElsewhere(n.Loader):
		f.By = machine.ByService
	case staying[f.IDs()] || f.Driver != driver || n.heldByKernel(d) || manages:
		f.By = machine.ByAddress
	default:
		return f, nil
	}
	if driver == machine.Stub {
		return f, gate.Refuse(a, selection.ErrStubTwins)
	}
	place := n.places[a]
	if f.SysfsPath = place.Value; !place.Seen() {
		return f, place.Err
	}
	return f, nil
}

// variant returns the VFIO variant driver for a device (Linux, drivers/vfio/pci:
// nvgrace_gpu_vfio_pci and others, with aliases that begin with "vfio_pci:"), or "". Where kernels
// differ, the default kernel decides.
func (n node) variant(d *pci.Device) string {
	i := slices.IndexFunc(n.Kernels, func(m modprobe.Modules) bool { return m.Release == n.Default })
	if len(n.Kernels) == 0 {
		return ""
	}
	return n.Kernels[max(i, 0)].Variant(d.Modalias)
}

// warnOfVariants warns of kernels whose variant driver for a function differs from that of the
// default kernel, or which have none. A function that is bound by its address gets the same driver
// under every kernel.
func (n node) warnOfVariants(w *Want) {
	if w.contract.Driver != machine.VFIO {
		return
	}
	for _, m := range n.Kernels {
		var warnings []string
		addresses := map[string][]string{}
		for _, f := range w.contract.Functions {
			d := n.Devices.At(f.Address)
			used, other := n.variant(d), m.Variant(d.Modalias)
			warning := ""
			switch {
			case used == other && (used == "" || m.Has(used)):
				continue
			case used == "":
				warning = fmt.Sprintf("kernel %s has the variant driver %s for ADDRESSES, but %s, which boots by default, has none: vfio-pci is used",
					m.Release, other, n.Default)
			case !m.Has(used):
				warning = fmt.Sprintf("kernel %s has no %s: when it is booted, no driver binds ADDRESSES", m.Release, used)
			case other != "":
				warning = fmt.Sprintf("kernel %s has the variant driver %s for ADDRESSES, but %s, which boots by default, has %s: that one is used",
					m.Release, other, n.Default, used)
			default:
				continue // the kernel has the module, which binds by address without an alias
			}
			if addresses[warning] == nil {
				warnings = append(warnings, warning)
			}
			addresses[warning] = append(addresses[warning], f.Address.String())
		}
		for _, warning := range warnings {
			w.warnings = append(w.warnings, strings.Replace(warning, "ADDRESSES", strings.Join(addresses[warning], ", "), 1))
		}
	}
}

// heldByKernel reports whether a kernel has a built-in driver for the function, which binds before
// any module is loaded.
func (n node) heldByKernel(d *pci.Device) bool {
	return n.anyKernel(func(m modprobe.Modules) bool {
		if d.Modalias != nil && slices.ContainsFunc(m.Match(*d.Modalias), m.Builtin) {
			return true
		}
		driver := d.DriverName()
		return driver != "" && !isOurDriver(driver) && (m.Builtin(driver) || m.Builtin(modprobe.UsuallyBuiltin(driver)))
	})
}

func isOurDriver(module string) bool {
	name := modprobe.Normal(module)
	return name == modprobe.Normal(machine.Stub) || strings.Contains(name, "vfio")
}

// drivers returns the loadable modules that would bind a function.
func (n node) drivers(d *pci.Device) []string {
	var modules []string
	for _, m := range n.Kernels {
		var names []string
		if d.Modalias != nil {
			names = m.Match(*d.Modalias)
		}
		if d.Driver != nil {
			names = append(names, modprobe.Normal(*d.Driver))
		}
		modules = host.Union(modules, host.Filter(names, func(name string) bool { return m.Loadable(name) && !isOurDriver(name) })...)
	}
	slices.Sort(modules)
	return modules
}

// softdeps returns the modules that must load after the driver, if it is a module: those of functions
// that are bound in the initramfs.
func (n node) softdeps(c machine.Contract) []string {
	if !n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable(c.Driver) }) {
		return nil
	}
	var modules []string
	for _, f := range c.Functions {
		if f.By != machine.ByService {
			modules = append(modules, n.drivers(n.Devices.At(f.Address))...)
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

// nvidiaModules are the modules for NVIDIA's display functions besides those that aliases name:
// the kernel's own driver and the parts of NVIDIA's.
var nvidiaModules = []string{"nouveau", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"}

// blacklist returns the GPU drivers that no function of the host needs.
func (n node) blacklist(selected map[pci.Address]bool) []string {
	var modules, staying []string
	nvidia, stays, fabric := false, false, false
	for i := range n.Devices {
		d := &n.Devices[i]
		goes := selected[d.Address]
		switch {
		case !goes:
			staying = append(staying, n.drivers(d)...)
			stays = stays || d.IsNVIDIAGPU()
			fabric = fabric || d.IsNVSwitch()
		case d.IsGPU():
			modules = append(modules, n.drivers(d)...)
			nvidia = nvidia || d.IsNVIDIAGPU()
		}
	}
	if nvidia {
		if stays {
			staying = append(staying, nvidiaModules...)
		}
		if fabric { // NVIDIA's driver serves the NVSwitches, nouveau does not
			staying = append(staying, nvidiaModules[1:]...)
		}
		modules = append(modules, host.Filter(nvidiaModules, func(module string) bool {
			return module == "nouveau" || n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable(module) })
		})...)
	}
	modules = slices.DeleteFunc(modules, func(m string) bool { return slices.Contains(staying, m) })
	slices.Sort(modules)
	return slices.Compact(modules)
}

// placeBlacklist decides where the blacklist is written. The initramfs hook writes it at each
// boot, unless the kernel has gpustack=off. A kernel that boots without an initramfs with the hook
// needs it in /etc. Images of rescue entries do not count: they bind no functions for guests.
func (n node) placeBlacklist(w *Want, selected map[pci.Address]bool) {
	modules, without := n.blacklist(selected), n.withoutImage()
	reason := ""
	if g, ok := n.Loader.(boot.Grub); ok && g.SkipsInitramfs() {
		w.warnings = append(w.warnings, "GRUB_FORCE_PARTUUID is set: GRUB tries to start kernels without their initramfs, and then the host's drivers may bind functions first; "+
			"set GRUB_FORCE_PARTUUID= in a file of /etc/default/grub.d that sorts last, then run update-grub")
		reason = ", since GRUB tries to start kernels without their initramfs"
	}
	if machine.ImagesElsewhere(n.Loader) {
		reason = ", since the initramfs is not regenerated here"
	}
	if len(without) > 0 {
		reason = fmt.Sprintf(" for kernel %s, which has no initramfs in /boot", strings.Join(without, ", "))
	}
	if reason == "" || len(modules) == 0 {
		w.early.Blacklist = modules
		return
	}
	w.modprobe.Blacklist = modules
	w.warnings = append(w.warnings, fmt.Sprintf("gpustack=off does not cover the blacklist (%s): it remains in %s%s",
		strings.Join(modules, ", "), modprobe.Dir, reason))
}

// load returns the modules to load at boot, without those that no kernel has as a loadable module.
func (n node) load(driver string) []string {
	modules := append(machine.OwnModules(driver), "kvm")
	// Without the CPU feature the module cannot be loaded, and systemd-modules-load.service fails.
	may := func(flag string) bool { return n.Virtualization == nil || *n.Virtualization == flag }
	switch vendor := n.CPUVendor; {
	case vendor == "intel" && may("vmx"):
		modules = append(modules, "kvm_intel")
	case (vendor == "amd" || vendor == "hygon") && may("svm"):
		modules = append(modules, "kvm_amd")
	}
	return slices.DeleteFunc(modules, func(name string) bool {
		return !n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable(name) })
	})
}

// placeIDs writes the ids where they are effective. A module parameter on the kernel command line
// overrides modprobe's files and is the only way for a built-in driver; of modprobe's lines the
// last is effective. Ids of others in that place are kept.
func (n node) placeIDs(w *Want) {
	driver := w.contract.Driver
	ids := w.contract.IDs()
	byIDs := host.Filter(w.contract.Functions, func(f machine.Function) bool { return f.By == machine.ByIDs })
	products := host.Union(nil, host.Map(byIDs, func(f machine.Function) initramfs.Function {
		return initramfs.Function{Vendor: f.VendorID, Product: f.ProductID}
	})...)
	onCommandLine := n.foreignIDs(driver)
	defer n.dropIDs(w)
	defer n.dropTakenOver(w)
	options := n.Conf.Options(driver, "ids")
	if len(ids) == 0 {
		return
	}
	builtin := n.anyKernel(func(m modprobe.Modules) bool { return m.Builtin(driver) })
	if len(onCommandLine) > 0 || builtin {
		merged := modprobe.AddIDs(nil, onCommandLine...)
		if len(onCommandLine) == 0 { // the new argument overrides modprobe's lines
			merged = modprobe.AddIDs(nil, values(options)...)
		}
		merged = modprobe.AddIDs(merged, ids...)
		w.arguments.Exact = append(w.arguments.Exact, driver+".ids="+strings.Join(merged, ","))
		w.early.ArgumentIDs = products
		return
	}
	var merged []string
	if len(options) > 0 {
		w.modprobe.TakenOver = options[len(options)-1:]
		merged = modprobe.AddIDs(merged, options[len(options)-1].Value)
	}
	w.modprobe.IDs = modprobe.AddIDs(merged, ids...)
}

// mixed reports whether the boot loader's arguments may include those of an earlier plan. GRUB's
// do not: they are read without gpustack's file.
func (n node) mixed() bool {
	_, grub := n.Loader.(boot.Grub)
	return n.Recorded != nil && !grub
}

// foreignIDs returns the ids of a driver in the kernel arguments that others have set. Where
// gpustack's may be among them, the recorded ones are left out.
func (n node) foreignIDs(driver string) []string {
	lists := n.Loader.Args().Values(driver + ".ids")
	if !n.mixed() && n.takenOver == nil {
		return lists
	}
	var ours []string
	if n.mixed() {
		ours = n.Recorded.IDs()
	}
	var foreign []string
	for _, list := range lists {
		ids := slices.DeleteFunc(strings.Split(list, ","), func(id string) bool { return slices.Contains(ours, id) })
		ids = modprobe.Stated{IDs: ids}.Without(n.takenOver)
		if len(ids) > 0 {
			foreign = append(foreign, strings.Join(ids, ","))
		}
	}
	return foreign
}

// dropIDs removes ids from the kernel arguments that an earlier plan has added and this one does
// not want.
func (n node) dropIDs(w *Want) {
	if !n.mixed() {
		return
	}
	for _, driver := range []string{machine.VFIO, machine.Stub} {
		name := driver + ".ids="
		isIDs := func(arg string) bool { return strings.HasPrefix(arg, name) }
		if !slices.ContainsFunc(n.Recorded.Arguments, isIDs) || slices.ContainsFunc(w.arguments.Exact, isIDs) {
			continue
		}
		n.setIDs(&w.arguments, driver, n.foreignIDs(driver))
	}
}

// setIDs makes ids those of a driver in the kernel arguments, and without any removes them.
func (n node) setIDs(w *boot.Want, driver string, ids []string) {
	name := driver + ".ids="
	if len(ids) > 0 {
		w.Exact = append(w.Exact, name+strings.Join(ids, ","))
		return
	}
	w.Absent = append(w.Absent, host.Map(n.Loader.Args().Values(driver+".ids"), func(list string) string { return name + list })...)
}

func values(options []modprobe.Option) []string {
	return host.Map(options, func(o modprobe.Option) string { return o.Value })
}
