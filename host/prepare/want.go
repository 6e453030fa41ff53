package prepare

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/initramfs"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// Want is what should be: which functions are assigned to guests, and all that binds them at boot.
type Want struct {
	none      bool // nothing of host prepare
	contract  machine.Contract
	arguments boot.Want
	modprobe  modprobe.Functions
	early     initramfs.Early
	warnings  []string
}

// NewWant returns what options want, together with what is recorded. Options that cannot be
// carried out are a *selection.Refused.
func NewWant(root host.Root, m machine.Machine, opts selection.Options) (Want, error) {
	n, err := newNode(m)
	if err != nil || opts.None {
		return Want{none: opts.None}, err
	}
	c := candidate{root: root, node: n}
	search := selection.Search{
		Node: n.Node, Root: root, Options: opts, Choose: n.Choose, Try: c.try,
		Exact: func(f []pci.Address) selection.Options { return n.Only(opts, f) },
	}
	s, err := n.Choose(opts)
	if err != nil {
		return Want{}, search.Refused(s, host.Split(err))
	}
	var warnings []string
	if slices.ContainsFunc(s.All, n.IsNew) {
		if c.uses, err = machine.ObserveUses(root, n.Devices, false); err != nil {
			warnings = append(warnings, fmt.Sprintf("cannot determine which processes have devices open: %v", err))
		}
	}
	errs, lifted := c.refusals(s)
	w, err := n.want(root, s, opts)
	if errs = append(errs, host.Split(err)...); len(errs) > 0 {
		return Want{}, search.Refused(s, errs)
	}
	w.warnings = slices.Concat(warnings, n.Leaving(root, lifted), n.NVSwitchWarnings(s), w.warnings)
	return w, nil
}

// candidate checks selections of a node that a plan could be made of.
type candidate struct {
	root host.Root
	node node
	uses machine.Uses
}

// refusals returns all refusals of a selection, and those that are lifted.
func (c *candidate) refusals(s selection.Selection) (refusals []error, lifted []*selection.Refusal) {
	refusals, lifted = c.node.Refusals(s)
	used, liftedUses := c.node.InUse(c.uses, s)
	return slices.Concat(refusals, c.node.Shared(s), used), append(lifted, liftedUses...)
}

// try returns what is wrong with options.
func (c *candidate) try(opts selection.Options) []error {
	s, err := c.node.Choose(opts)
	if err != nil {
		return host.Split(err)
	}
	errs, _ := c.refusals(s)
	_, err = c.node.want(c.root, s, opts)
	return append(errs, host.Split(err)...)
}

func (n node) want(root host.Root, s selection.Selection, opts selection.Options) (Want, error) {
	driver := opts.Driver
	unsafe := opts.Unsafe
	if r := n.Recorded; r != nil {
		unsafe = unsafe || r.Unsafe
		if driver == "" {
			driver = r.Driver
		}
	}
	if driver == "" {
		driver = machine.VFIO
	}
	w := Want{contract: machine.Contract{Schema: machine.Schema, Driver: driver, Selected: s.Selected, Allowed: s.Allowed, NVSwitch: s.NVSwitch, Unsafe: unsafe, Files: []machine.Hash{}}}
	if err := n.checkDriver(driver, &w); err != nil {
		return Want{}, err
	}
	var errs []error
	for _, a := range s.All {
		f, err := n.function(root, a, s.All, driver)
		errs = append(errs, err)
		w.contract.Functions = append(w.contract.Functions, f)
	}
	if err := errors.Join(errs...); err != nil {
		return Want{}, err
	}
	w.arguments, _ = boot.WantIOMMU(n.CPUVendor)
	if unsafe {
		w.arguments.Exact = append(w.arguments.Exact, "vfio_iommu_type1.allow_unsafe_interrupts=1")
	}
	w.modprobe = modprobe.Functions{
		Driver:   driver,
		Softdeps: n.softdeps(s.All, driver),
		Unsafe:   unsafe && n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable("vfio_iommu_type1") }),
		Load:     n.load(driver),
	}
	n.warnOfVariants(&w)
	w.early = w.contract.Early(n.Kernels)
	n.placeIDs(&w)
	n.placeBlacklist(&w, s.All)
	for _, f := range w.arguments.Flags {
		w.contract.Arguments = append(w.contract.Arguments, f.Param+"="+f.Option)
	}
	w.contract.Arguments = append(w.contract.Arguments, w.arguments.Exact...)
	return w, nil
}

// checkDriver is an error where no kernel has the driver, and a warning where one
// has not.
func (n node) checkDriver(driver string, w *Want) error {
	has := func(m modprobe.Modules) bool { return m.Loadable(driver) || m.Builtin(driver) }
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

// function returns the record of one function, with how it is bound.
func (n node) function(root host.Root, a pci.Address, all []pci.Address, driver string) (machine.Function, error) {
	d := n.Devices.At(a)
	if d.VendorID == nil || d.ProductID == nil {
		return machine.Function{}, selection.Refuse(a, selection.ErrNoIDs)
	}
	f := machine.Function{
		Address: a, VendorID: *d.VendorID, ProductID: *d.ProductID,
		SubsystemVendorID: d.SubsystemVendorID, SubsystemID: d.SubsystemID,
		Path: n.Devices.Path(d), Group: d.IOMMUGroup, Members: d.GroupMembers, Driver: driver, By: machine.ByIDs,
		BootVGA: d.IsConsole() || wasConsole(n.Recorded, a),
	}
	twin := slices.ContainsFunc(n.Devices, func(o pci.Device) bool {
		return o.IsVendor(f.VendorID) && o.ProductID != nil && *o.ProductID == f.ProductID && !slices.Contains(all, o.Address)
	})
	if variant := n.variant(d); driver == machine.VFIO && variant != "" {
		f.Driver = variant
	}
	// Ordinary adapters have the ids of those that manage NVSwitches.
	manages := d.NVSwitchManager != nil && *d.NVSwitchManager || d.VPDUnread()
	if twin || f.Driver != driver || n.heldByKernel(d) || manages {
		f.By = machine.ByAddress
	}
	if f.By == machine.ByIDs {
		return f, nil
	}
	if driver == machine.Stub {
		return f, selection.Refuse(a, selection.ErrStubTwins)
	}
	var err error
	if f.SysfsPath, err = root.Real(machine.AttributeFile(a, "")); err != nil {
		err = fmt.Errorf("%s: %w", machine.AttributeFile(a, ""), host.Cause(err))
	}
	return f, err
}

// variant is the variant driver of VFIO for a device (Linux, drivers/vfio/pci: nvgrace_gpu_vfio_pci
// and others, by aliases that begin with "vfio_pci:"), or "". Where kernels disagree, the one that
// boots by default decides.
func (n node) variant(d *pci.Device) string {
	i := slices.IndexFunc(n.Kernels, func(m modprobe.Modules) bool { return m.Release == n.Default })
	if len(n.Kernels) == 0 {
		return ""
	}
	return n.Kernels[max(i, 0)].Variant(d.Modalias)
}

// warnOfVariants names the kernels that have another variant driver than the one that boots by
// default, or none. By its address a function is bound to one driver, whatever kernel is booted.
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
			case used == other:
				continue
			case used == "":
				warning = fmt.Sprintf("kernel %s has the variant driver %s for ADDRESSES, but %s, which boots by default, has none: vfio-pci is used", m.Release, other, n.Default)
			case !m.Loadable(used) && !m.Builtin(used):
				warning = fmt.Sprintf("kernel %s has no %s: when it is booted, no driver binds ADDRESSES", m.Release, used)
			case other != "":
				warning = fmt.Sprintf("kernel %s has the variant driver %s for ADDRESSES, but %s, which boots by default, has %s: that one is used", m.Release, other, n.Default, used)
			default:
				continue // it has the module, which binds by address without an alias
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

// heldByKernel tells whether a kernel has a driver for the function in itself,
// which then comes before any module.
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

// drivers returns the loadable modules that would take a function.
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
		for _, name := range names {
			if m.Loadable(name) && !isOurDriver(name) && !slices.Contains(modules, name) {
				modules = append(modules, name)
			}
		}
	}
	slices.Sort(modules)
	return modules
}

// softdeps are the modules that are to wait for the driver, where it is one.
func (n node) softdeps(all []pci.Address, driver string) []string {
	if !n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable(driver) }) {
		return nil
	}
	var modules []string
	for _, a := range all {
		modules = append(modules, n.drivers(n.Devices.At(a))...)
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

// nvidiaModules drive NVIDIA's display functions beside those that aliases name:
// the kernel's own driver, and the parts of NVIDIA's.
var nvidiaModules = []string{"nouveau", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"}

// blacklist are the drivers of GPUs of which none stays with the host.
func (n node) blacklist(all []pci.Address) []string {
	var modules []string
	staying := map[string]bool{}
	nvidia, stays, fabric := false, false, false
	for i := range n.Devices {
		d := &n.Devices[i]
		goes := slices.Contains(all, d.Address)
		switch {
		case !goes:
			for _, m := range n.drivers(d) {
				staying[m] = true
			}
			stays = stays || d.IsNVIDIAGPU()
			fabric = fabric || d.IsNVSwitch()
		case d.IsGPU():
			modules = append(modules, n.drivers(d)...)
			nvidia = nvidia || d.IsNVIDIAGPU()
		}
	}
	if nvidia {
		if stays {
			for _, m := range nvidiaModules {
				staying[m] = true
			}
		}
		if fabric { // NVIDIA's driver serves the NVSwitches, nouveau does not
			for _, m := range nvidiaModules[1:] {
				staying[m] = true
			}
		}
		for _, module := range nvidiaModules {
			if module == "nouveau" || n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable(module) }) {
				modules = append(modules, module)
			}
		}
	}
	modules = slices.DeleteFunc(modules, func(m string) bool { return staying[m] })
	slices.Sort(modules)
	return slices.Compact(modules)
}

// placeBlacklist has the hook in the initramfs write the blacklist at each boot, so that
// gpustack=off leaves it out. A kernel that starts without an initramfs with the hook needs it in
// /etc. The images of rescue entries do not count: they leave every device to the host.
func (n node) placeBlacklist(w *Want, all []pci.Address) {
	modules, without := n.blacklist(all), n.withoutImage()
	reason := ""
	if g, ok := n.Loader.(boot.Grub); ok && g.SkipsInitramfs() {
		w.warnings = append(w.warnings, "GRUB_FORCE_PARTUUID is set: GRUB tries to start kernels without their initramfs, and then the host's drivers may bind functions first; "+
			"set GRUB_FORCE_PARTUUID= in a file of /etc/default/grub.d that sorts last, then run update-grub")
		reason = ", since GRUB tries to start kernels without their initramfs"
	}
	if len(without) > 0 {
		reason = fmt.Sprintf(" for kernel %s, which has no initramfs in /boot", strings.Join(without, ", "))
	}
	if reason == "" || len(modules) == 0 {
		w.early.Blacklist = modules
		return
	}
	w.modprobe.Blacklist = modules
	w.warnings = append(w.warnings, fmt.Sprintf("gpustack=off does not cover the blacklist (%s): it remains in %s%s", strings.Join(modules, ", "), modprobe.Dir, reason))
}

// load are the modules to be loaded at boot, as far as a kernel has them as such.
func (n node) load(driver string) []string {
	modules := append(machine.OwnModules(driver), "kvm")
	// On a CPU without the feature the module cannot be loaded, and makes
	// systemd-modules-load.service fail.
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

// placeIDs puts the ids where they count. What the kernel's command line says of a
// module comes after all of modprobe's files, and alone counts for a driver that is
// part of a kernel; of modprobe's lines the last counts. Others' ids in that place
// are kept.
func (n node) placeIDs(w *Want) {
	driver := w.contract.Driver
	var ids []string
	var products []initramfs.Function
	for _, f := range w.contract.Functions {
		if f.By == machine.ByIDs && !slices.Contains(ids, f.IDs()) {
			ids = append(ids, f.IDs())
			products = append(products, initramfs.Function{Vendor: f.VendorID, Product: f.ProductID})
		}
	}
	onCommandLine := n.foreignIDs(driver)
	defer n.takeBack(w)
	options := n.Conf.Options(driver, "ids")
	n.warnOfForeign(w, append(slices.Clone(onCommandLine), values(options)...))
	if len(ids) == 0 {
		return
	}
	builtin := n.anyKernel(func(m modprobe.Modules) bool { return m.Builtin(driver) })
	if len(onCommandLine) > 0 || builtin {
		var merged []string
		for _, v := range onCommandLine {
			merged = modprobe.AddIDs(merged, v)
		}
		if len(onCommandLine) == 0 { // modprobe's lines lose to ours from now on
			for _, o := range options {
				merged = modprobe.AddIDs(merged, o.Value)
			}
		}
		merged = modprobe.AddIDs(merged, strings.Join(ids, ","))
		w.arguments.Exact = append(w.arguments.Exact, driver+".ids="+strings.Join(merged, ","))
		w.early.ArgumentIDs = products
		return
	}
	var merged []string
	if len(options) > 0 {
		w.modprobe.TakenOver = options[len(options)-1:]
		merged = modprobe.AddIDs(merged, options[len(options)-1].Value)
	}
	w.modprobe.IDs = modprobe.AddIDs(merged, strings.Join(ids, ","))
}

// mixed tells whether arguments of an earlier plan are among those of the boot loader:
// GRUB's are made of files, of which ours are left out.
func (n node) mixed() bool {
	_, grub := n.Loader.(boot.Grub)
	return n.Recorded != nil && !grub
}

// foreignIDs returns the ids of a driver among the kernel's arguments that others have
// set. Where ours are among them, those are ours that were recorded.
func (n node) foreignIDs(driver string) []string {
	lists := n.Loader.Args().Values(driver + ".ids")
	if !n.mixed() {
		return lists
	}
	var foreign []string
	for _, list := range lists {
		ids := slices.DeleteFunc(strings.Split(list, ","), func(id string) bool {
			return slices.ContainsFunc(n.Recorded.Functions, func(f machine.Function) bool { return f.By == machine.ByIDs && id == f.IDs() })
		})
		if len(ids) > 0 {
			foreign = append(foreign, strings.Join(ids, ","))
		}
	}
	return foreign
}

// takeBack takes ids out of the arguments that an earlier plan has put there, and this
// one does not want.
func (n node) takeBack(w *Want) {
	if !n.mixed() {
		return
	}
	for _, driver := range []string{machine.VFIO, machine.Stub} {
		name := driver + ".ids="
		isIDs := func(arg string) bool { return strings.HasPrefix(arg, name) }
		if !slices.ContainsFunc(n.Recorded.Arguments, isIDs) || slices.ContainsFunc(w.arguments.Exact, isIDs) {
			continue
		}
		if foreign := n.foreignIDs(driver); len(foreign) > 0 {
			w.arguments.Exact = append(w.arguments.Exact, name+strings.Join(foreign, ","))
			continue
		}
		for _, list := range n.Loader.Args().Values(driver + ".ids") {
			w.arguments.Absent = append(w.arguments.Absent, name+list)
		}
	}
}

func values(options []modprobe.Option) []string {
	var values []string
	for _, o := range options {
		values = append(values, o.Value)
	}
	return values
}

// warnOfForeign tells where somebody's ids take a function that is to stay.
func (n node) warnOfForeign(w *Want, lists []string) {
	for _, list := range lists {
		for id := range strings.SplitSeq(list, ",") {
			selector, err := pci.ParseSelector(id)
			if err != nil {
				continue // with a subsystem or class, which takes fewer
			}
			for i := range n.Devices {
				d := &n.Devices[i]
				if selector.Matches(d) && !slices.ContainsFunc(w.contract.Functions, func(f machine.Function) bool { return f.Address == d.Address }) {
					w.warnings = append(w.warnings, fmt.Sprintf("%s remains with the host, but ids=%s, set for %s outside gpustack, matches it", d.Address, list, w.contract.Driver))
				}
			}
		}
	}
}

// wasConsole reports whether a function is recorded as the console. Nothing is in no record.
func wasConsole(c *machine.Contract, a pci.Address) bool {
	f := c.At(a)
	return f != nil && f.BootVGA
}
