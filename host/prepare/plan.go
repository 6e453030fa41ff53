package prepare

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/initramfs"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Drivers that leave a function alone until a guest gets it.
const (
	VFIO = "vfio-pci"
	Stub = "pci-stub"
)

// Errors of a wish that the machine cannot grant.
var (
	ErrNoDriver  = errors.New("no installed kernel has it")
	ErrStubTwins = errors.New("pci-stub cannot bind one of several identical devices: libvirt would return it to the host driver when a guest stops")
	ErrNoIDs     = errors.New("its ids cannot be read")
)

// Plan is what is to be done to a machine.
type Plan struct {
	Files     edit.Plan
	Functions []Function
	Arguments boot.Change
	// Menu and Initramfs tell which generated files follow from the changes.
	Menu, Initramfs bool
	// Programs make those, and AllPrograms make them all.
	Programs, AllPrograms []host.Program
	Warnings              []string
}

// New plans what makes the node as the options, and what is recorded, want it. Options that
// cannot be carried out are a *Refused.
func New(root host.Root, n Node, opts Options) (Plan, error) {
	if opts.None {
		return n.planNone(root)
	}
	c := candidate{root: root, node: n}
	search := attempt{node: n, root: root, opts: opts, choose: n.choose, try: c.try, exact: func(f []pci.Address) Options { return n.only(opts, f) }}
	s, err := n.choose(opts)
	if err != nil {
		return Plan{}, search.refused(s, split(err))
	}
	n.Warnings = slices.Clone(n.Warnings)
	if slices.ContainsFunc(s.all, n.isNew) {
		if c.uses, err = ObserveUses(root, n.Devices, false); err != nil {
			n.Warnings = append(n.Warnings, fmt.Sprintf("cannot determine which processes have devices open: %v", err))
		}
	}
	errs, lifted := c.refusals(s)
	w, err := n.want(root, s, opts)
	if errs = append(errs, split(err)...); len(errs) > 0 {
		return Plan{}, search.refused(s, errs)
	}
	n.Warnings = append(n.Warnings, n.leaving(root, lifted)...)
	n.Warnings = append(n.Warnings, n.nvswitchWarnings(s)...)
	p := Plan{Functions: w.contract.Functions, Arguments: w.arguments.Change(n.Loader.Args()), Warnings: n.Warnings}
	p.Warnings = append(p.Warnings, w.warnings...)

	menu, err := n.Loader.Plan(root, w.arguments)
	if err != nil {
		return Plan{}, err
	}
	modules, err := w.modprobe.Plan(root, n.Conf)
	if err != nil {
		return Plan{}, err
	}
	early, err := w.early.Plan(root, n.Maker)
	if err != nil {
		return Plan{}, err
	}
	p.Menu = len(menu.Pending()) > 0
	p.Initramfs = len(modules.Pending())+len(early.Pending()) > 0
	for _, release := range n.withoutImage() {
		p.Warnings = append(p.Warnings, fmt.Sprintf("kernel %s has no initramfs in /boot that could take functions: booted with it, the host may keep them", release))
	}
	p.Programs, p.AllPrograms = n.programs(p.Menu, p.Initramfs), n.programs(true, true)
	p.Files = slices.Concat(menu, modules, early)

	for _, c := range p.Files {
		if c.After != nil && isOurs(c.Name) {
			w.contract.Files = append(w.contract.Files, Hash{c.Name, c.After.Hash()})
		}
	}
	contract, err := n.planContract(root, w.contract)
	p.Files = append(p.Files, contract)
	return p, err
}

// candidate checks selections of a node that a plan could be made of.
type candidate struct {
	root host.Root
	node Node
	uses Uses
}

// refusals returns all refusals of a selection, and those that are lifted.
func (c *candidate) refusals(s selection) (refusals []error, lifted []*Refusal) {
	refusals, lifted = c.node.refusals(s)
	used, liftedUses := c.node.inUse(c.uses, s)
	return slices.Concat(refusals, c.node.shared(s), used), append(lifted, liftedUses...)
}

// try returns what is wrong with options.
func (c *candidate) try(opts Options) []error {
	s, err := c.node.choose(opts)
	if err != nil {
		return split(err)
	}
	errs, _ := c.refusals(s)
	_, err = c.node.want(c.root, s, opts)
	return append(errs, split(err)...)
}

// programs make an initramfs for every kernel, and what the boot loader needs. Where
// kernel-install makes initramfs itself, there is none of dracut's to be made anew.
func (n Node) programs(menu, initramfs bool) []host.Program {
	var programs []host.Program
	if initramfs {
		programs = n.Maker.Programs(n.Images)
	}
	return append(programs, n.Loader.Programs(menu, initramfs)...)
}

// withoutImage returns the kernels that none of the programs gives an initramfs.
func (n Node) withoutImage() []string {
	var releases []string
	for _, i := range n.Images {
		installed := slices.ContainsFunc(n.Loader.Programs(false, true), func(p host.Program) bool { return p.Release == i.Release })
		if i.Name == "" && !installed {
			releases = append(releases, i.Release)
		}
	}
	return releases
}

// isOurs tells whether the whole file is ours.
func isOurs(name string) bool {
	return strings.Contains(name, "gpustack")
}

// planContract leaves a record alone that differs in groups alone: those that a
// first boot with the IOMMU on has made are no change of what was agreed.
func (n Node) planContract(root host.Root, c Contract) (edit.Change, error) {
	if n.Recorded != nil {
		same := c
		same.Functions = slices.Clone(c.Functions)
		for i := range same.Functions {
			for _, r := range n.Recorded.Functions {
				if f := &same.Functions[i]; r.Address == f.Address && r.Group == nil {
					f.Group, f.Members = nil, r.Members
				}
			}
		}
		recorded, err := n.Recorded.text()
		if err != nil {
			return edit.Change{}, err
		}
		if text, err := same.text(); err == nil && string(text) == string(recorded) {
			return edit.Put(root, ContractFile, recorded, 0o600, false)
		}
	}
	text, err := c.text()
	if err != nil {
		return edit.Change{}, err
	}
	return edit.Put(root, ContractFile, text, 0o600, false)
}

// want is what should be.
type want struct {
	contract  Contract
	arguments boot.Want
	modprobe  modprobe.Functions
	early     initramfs.Early
	warnings  []string
}

func (n Node) want(root host.Root, s selection, opts Options) (want, error) {
	driver := opts.Driver
	unsafe := opts.Unsafe
	if r := n.Recorded; r != nil {
		unsafe = unsafe || r.Unsafe
		if driver == "" {
			driver = r.Driver
		}
	}
	if driver == "" {
		driver = VFIO
	}
	w := want{contract: Contract{Schema: schema, Driver: driver, Selected: s.selected, Allowed: s.allowed, NVSwitch: s.nvswitch, Unsafe: unsafe, Files: []Hash{}}}
	if err := n.checkDriver(driver, &w); err != nil {
		return want{}, err
	}
	var errs []error
	for _, a := range s.all {
		f, err := n.function(root, a, s.all, driver)
		errs = append(errs, err)
		w.contract.Functions = append(w.contract.Functions, f)
	}
	if err := errors.Join(errs...); err != nil {
		return want{}, err
	}
	w.arguments, _ = boot.WantIOMMU(n.CPUVendor)
	if unsafe {
		w.arguments.Exact = append(w.arguments.Exact, "vfio_iommu_type1.allow_unsafe_interrupts=1")
	}
	w.modprobe = modprobe.Functions{
		Driver:   driver,
		Softdeps: n.softdeps(s.all, driver),
		Unsafe:   unsafe && n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable("vfio_iommu_type1") }),
		Load:     n.load(driver),
	}
	n.warnOfVariants(&w)
	w.early = w.contract.early(n.Kernels)
	n.placeIDs(&w)
	n.placeBlacklist(&w, s.all)
	for _, f := range w.arguments.Flags {
		w.contract.Arguments = append(w.contract.Arguments, f.Param+"="+f.Option)
	}
	w.contract.Arguments = append(w.contract.Arguments, w.arguments.Exact...)
	return w, nil
}

// checkDriver is an error where no kernel has the driver, and a warning where one
// has not.
func (n Node) checkDriver(driver string, w *want) error {
	has := func(m modprobe.Modules) bool { return m.Loadable(driver) || m.Builtin(driver) }
	if !n.anyKernel(has) {
		return fmt.Errorf("driver %s: %w", driver, ErrNoDriver)
	}
	for _, m := range n.Kernels {
		if !has(m) {
			w.warnings = append(w.warnings, fmt.Sprintf("kernel %s has no %s: booted with it, the host keeps all functions", m.Release, driver))
		}
	}
	return nil
}

// function returns the record of one function, with how it is bound.
func (n Node) function(root host.Root, a pci.Address, all []pci.Address, driver string) (Function, error) {
	d := n.device(a)
	if d.VendorID == nil || d.ProductID == nil {
		return Function{}, refuse(a, ErrNoIDs)
	}
	f := Function{
		Address: a, VendorID: *d.VendorID, ProductID: *d.ProductID,
		SubsystemVendorID: d.SubsystemVendorID, SubsystemID: d.SubsystemID,
		Path: n.path(d), Group: d.IOMMUGroup, Members: d.GroupMembers, Driver: driver, By: ByIDs,
		BootVGA: isConsole(d) || n.Recorded.wasConsole(a),
	}
	twin := slices.ContainsFunc(n.Devices, func(o pci.Device) bool {
		return o.IsVendor(f.VendorID) && o.ProductID != nil && *o.ProductID == f.ProductID && !slices.Contains(all, o.Address)
	})
	if variant := n.variant(d); driver == VFIO && variant != "" {
		f.Driver = variant
	}
	// Ordinary adapters have the ids of those that manage NVSwitches.
	manages := d.NVSwitchManager != nil && *d.NVSwitchManager || d.VPDUnread()
	if twin || f.Driver != driver || n.heldByKernel(d) || manages {
		f.By = ByAddress
	}
	if f.By == ByIDs {
		return f, nil
	}
	if driver == Stub {
		return f, refuse(a, ErrStubTwins)
	}
	var err error
	if f.SysfsPath, err = root.Real(fileOf(a, "")); err != nil {
		err = fmt.Errorf("%s: %w", fileOf(a, ""), host.Cause(err))
	}
	return f, err
}

// path returns the bridges above a function, the outermost first.
func (n Node) path(d *pci.Device) []pci.Address {
	path := []pci.Address{}
	for d.Parent != nil && len(path) < 256 { // buses
		path = append([]pci.Address{*d.Parent}, path...)
		if d = n.device(*d.Parent); d == nil {
			break
		}
	}
	return path
}

// variant is the variant driver of VFIO for a device (Linux, drivers/vfio/pci: nvgrace_gpu_vfio_pci
// and others, by aliases that begin with "vfio_pci:"), or "". Where kernels disagree, the one that
// boots by default decides.
func (n Node) variant(d *pci.Device) string {
	i := slices.IndexFunc(n.Kernels, func(m modprobe.Modules) bool { return m.Release == n.Default })
	if len(n.Kernels) == 0 {
		return ""
	}
	return variantOf(n.Kernels[max(i, 0)], d)
}

func variantOf(m modprobe.Modules, d *pci.Device) string {
	if d.Modalias == nil {
		return ""
	}
	modules := m.Match("vfio_" + *d.Modalias)
	if len(modules) == 0 || modules[0] == modprobe.Normal(VFIO) {
		return ""
	}
	return modules[0]
}

// warnOfVariants names the kernels that have another variant driver than the one that boots by
// default, or none. By its address a function is bound to one driver, whatever kernel is booted.
func (n Node) warnOfVariants(w *want) {
	if w.contract.Driver != VFIO {
		return
	}
	for _, m := range n.Kernels {
		var warnings []string
		addresses := map[string][]string{}
		for _, f := range w.contract.Functions {
			d := n.device(f.Address)
			used, other := n.variant(d), variantOf(m, d)
			warning := ""
			switch {
			case used == other:
				continue
			case used == "":
				warning = fmt.Sprintf("kernel %s has the variant driver %s for ADDRESSES, but %s, which boots by default, has none: vfio-pci is used", m.Release, other, n.Default)
			case !m.Loadable(used) && !m.Builtin(used):
				warning = fmt.Sprintf("kernel %s has no %s: booted with it, no driver binds ADDRESSES", m.Release, used)
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

// Drivers that distributions build into their kernels, for kernels from before 5.2,
// which do not list what those match.
var usuallyBuiltin = map[string]string{
	"xhci_hcd": "xhci_pci", "ehci-pci": "ehci_pci", "ohci-pci": "ohci_pci", "uhci_hcd": "uhci_hcd",
}

// heldByKernel tells whether a kernel has a driver for the function in itself,
// which then comes before any module.
func (n Node) heldByKernel(d *pci.Device) bool {
	return n.anyKernel(func(m modprobe.Modules) bool {
		if d.Modalias != nil && slices.ContainsFunc(m.Match(*d.Modalias), m.Builtin) {
			return true
		}
		driver := text(d.Driver)
		return driver != "" && !isOurDriver(driver) && (m.Builtin(driver) || m.Builtin(usuallyBuiltin[driver]))
	})
}

func isOurDriver(module string) bool {
	name := modprobe.Normal(module)
	return name == modprobe.Normal(Stub) || strings.Contains(name, "vfio")
}

// drivers returns the loadable modules that would take a function.
func (n Node) drivers(d *pci.Device) []string {
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
func (n Node) softdeps(all []pci.Address, driver string) []string {
	if !n.anyKernel(func(m modprobe.Modules) bool { return m.Loadable(driver) }) {
		return nil
	}
	var modules []string
	for _, a := range all {
		modules = append(modules, n.drivers(n.device(a))...)
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

// nvidiaModules drive NVIDIA's display functions beside those that aliases name:
// the kernel's own driver, and the parts of NVIDIA's.
var nvidiaModules = []string{"nouveau", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm"}

// blacklist are the drivers of GPUs of which none stays with the host.
func (n Node) blacklist(all []pci.Address) []string {
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
func (n Node) placeBlacklist(w *want, all []pci.Address) {
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
func (n Node) load(driver string) []string {
	modules := append(ownModules(driver), "kvm")
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
func (n Node) placeIDs(w *want) {
	driver := w.contract.Driver
	var ids []string
	var products []initramfs.Function
	for _, f := range w.contract.Functions {
		if f.By == ByIDs && !slices.Contains(ids, f.ids()) {
			ids = append(ids, f.ids())
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
			merged = addIDs(merged, v)
		}
		if len(onCommandLine) == 0 { // modprobe's lines lose to ours from now on
			for _, o := range options {
				merged = addIDs(merged, o.Value)
			}
		}
		merged = addIDs(merged, strings.Join(ids, ","))
		w.arguments.Exact = append(w.arguments.Exact, driver+".ids="+strings.Join(merged, ","))
		w.early.ArgumentIDs = products
		return
	}
	var merged []string
	if len(options) > 0 {
		w.modprobe.TakenOver = options[len(options)-1:]
		merged = addIDs(merged, options[len(options)-1].Value)
	}
	w.modprobe.IDs = addIDs(merged, strings.Join(ids, ","))
}

// mixed tells whether arguments of an earlier plan are among those of the boot loader:
// GRUB's are made of files, of which ours are left out.
func (n Node) mixed() bool {
	_, grub := n.Loader.(boot.Grub)
	return n.Recorded != nil && !grub
}

// foreignIDs returns the ids of a driver among the kernel's arguments that others have
// set. Where ours are among them, those are ours that were recorded.
func (n Node) foreignIDs(driver string) []string {
	lists := n.Loader.Args().Values(driver + ".ids")
	if !n.mixed() {
		return lists
	}
	var foreign []string
	for _, list := range lists {
		ids := slices.DeleteFunc(strings.Split(list, ","), func(id string) bool {
			return slices.ContainsFunc(n.Recorded.Functions, func(f Function) bool { return f.By == ByIDs && id == f.ids() })
		})
		if len(ids) > 0 {
			foreign = append(foreign, strings.Join(ids, ","))
		}
	}
	return foreign
}

// takeBack takes ids out of the arguments that an earlier plan has put there, and this
// one does not want.
func (n Node) takeBack(w *want) {
	if !n.mixed() {
		return
	}
	for _, driver := range []string{VFIO, Stub} {
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

func addIDs(ids []string, list string) []string {
	for id := range strings.SplitSeq(list, ",") {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// warnOfForeign tells where somebody's ids take a function that is to stay.
func (n Node) warnOfForeign(w *want, lists []string) {
	for _, list := range lists {
		for id := range strings.SplitSeq(list, ",") {
			selector, err := pci.ParseSelector(id)
			if err != nil {
				continue // with a subsystem or class, which takes fewer
			}
			for i := range n.Devices {
				d := &n.Devices[i]
				if selector.Matches(d) && !slices.ContainsFunc(w.contract.Functions, func(f Function) bool { return f.Address == d.Address }) {
					w.warnings = append(w.warnings, fmt.Sprintf("%s stays with the host, but ids=%s, which others have set for %s, takes it", d.Address, list, w.contract.Driver))
				}
			}
		}
	}
}

// early is what happens in the initramfs of those kernels.
func (c Contract) early(kernels []modprobe.Modules) initramfs.Early {
	e := initramfs.Early{Driver: c.Driver}
	for _, module := range ownModules(c.Driver) {
		if slices.ContainsFunc(kernels, func(m modprobe.Modules) bool { return m.Loadable(module) }) {
			e.Modules = append(e.Modules, module)
		}
	}
	for _, f := range c.Functions {
		if f.By == ByAddress {
			e.Take = append(e.Take, initramfs.Function{
				Address: f.Address, Path: f.SysfsPath, Vendor: f.VendorID, Product: f.ProductID,
				SubsystemVendor: f.SubsystemVendorID, Subsystem: f.SubsystemID, Driver: f.Driver,
			})
		}
		if f.BootVGA {
			e.Consoles = append(e.Consoles, f.Address)
		}
		if f.Driver != c.Driver && !slices.Contains(e.Variants, f.Driver) {
			e.Variants = append(e.Variants, f.Driver)
			e.Modules = append(e.Modules, f.Driver)
		}
	}
	return e
}

// ownModules are those that take functions with a driver.
func ownModules(driver string) []string {
	if driver == Stub {
		return []string{"pci_stub"}
	}
	return []string{"vfio", "vfio_iommu_type1", "vfio_pci"}
}
