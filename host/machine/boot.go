package machine

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/initramfs"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Errors of machines that gpustack cannot prepare for passthrough.
var (
	ErrNoBootLoader = host.WithHint(errors.New("no boot loader found"),
		"gpustack sets kernel arguments through GRUB, GRUB with boot entries and systemd-boot; is the boot partition mounted below the root?")
	ErrCPU      = host.WithHint(errors.New("IOMMU requirements unknown"), "gpustack supports CPUs by Intel, AMD, Hygon and ARM")
	ErrNoKernel = host.WithHint(errors.New("no installed kernel"), "--root takes the top of a machine's file tree, with the modules of its kernels below")
)

// Loader is the configuration of a machine's boot loader: GRUB, GRUB with boot entries, or
// systemd-boot. It sets the arguments of the kernels.
type Loader interface {
	// Args returns the arguments of a kernel. Those of gpustack are included where they cannot be
	// distinguished from others.
	Args() boot.Args
	// Entries returns the boot entries.
	Entries(root host.Root) ([]boot.Entry, error)
	// Later returns the entry that a kernel gets which is installed later, or nil if it gets the
	// arguments of the kernel that runs at that time.
	Later(root host.Root) (*boot.Entry, error)
	// Default returns the release of the kernel that boots unless the operator selects another, or ""
	// if it cannot be determined.
	Default(root host.Root) (string, error)
	// Files returns the files that Plan may change.
	Files() []string
	// Plan plans the changes after which every entry, present and later, has the wanted arguments,
	// from its files as they were observed.
	Plan(files edit.Files, want boot.Want) (edit.Changes, error)
	// Programs returns the programs that must run after arguments or an initramfs have changed.
	Programs(arguments, initramfs bool) []host.Program
}

// ReadLoader reads the configuration of the machine's boot loader. want are the arguments that its
// kernels need: if gpustack cannot set arguments here, the error names the command that sets them.
func ReadLoader(root host.Root, facts host.Facts, want boot.Args) (Loader, error) {
	loader, err := readLoader(root, facts, want)
	var unsupported *boot.Unsupported
	if errors.As(err, &unsupported) {
		if external, ok := unsupported.Accept(want); ok {
			return external, nil
		}
	}
	return loader, err
}

func readLoader(root host.Root, facts host.Facts, want boot.Args) (Loader, error) {
	if err := boot.Mounted(root); err != nil {
		return nil, err
	}
	name := host.Value(facts.BootLoader)
	if err := boot.Supported(root, name, want); err != nil {
		return nil, err
	}
	switch name {
	case "grub":
		return boot.ReadGrub(root)
	case "grub-bls":
		return boot.ReadBLS(root)
	case "systemd-boot":
		return boot.ReadSystemdBoot(root)
	}
	return nil, ErrNoBootLoader
}

// ImagesElsewhere reports whether the machine boots other initramfs images than those that its
// generator makes, as those in an image of the system.
func ImagesElsewhere(l Loader) bool {
	external, ok := l.(boot.External)
	return ok && !external.Initramfs
}

// ReadGenerator returns the program that makes the machine's initramfs.
func ReadGenerator(root host.Root, facts host.Facts) (initramfs.Generator, error) {
	return initramfs.GeneratorOf(root, host.Value(facts.Distribution))
}

// findKernels lists the installed kernels.
func (o *observer) findKernels() {
	o.releases, o.listErr = host.Kernels(o.root)
	if o.listErr == nil && len(o.releases) == 0 {
		o.listErr = fmt.Errorf("%s: %w", host.ModulesDir, ErrNoKernel)
	}
	o.names = map[string]func() (modprobe.Modules, error){}
	for _, release := range o.releases {
		o.names[release] = sync.OnceValues(func() (modprobe.Modules, error) { return modprobe.ReadNames(o.root, release) })
	}
}

// readNames reads which modules each installed kernel has.
func (o *observer) readNames() {
	o.readKernels(func(release string) (modprobe.Modules, error) { return o.names[release]() })
}

// readGroups reads what determines whether the groups of functions that guests have, or would get
// by default, can leave the host: their regions and, with drivers, the aliases of the kernels'
// modules if a function without a driver, that is neither recorded nor part of a GPU's card, is in
// one of them. Whether such a function stays as it is depends on the drivers that kernels have for
// it.
func (o *observer) readGroups(drivers bool) {
	devices := o.Devices.Value
	assigned := devices.AtEach(devices.Expand(append(o.Contract.Value.Addresses(), devices.Where((*pci.Device).IsGPU)...)))
	if drivers && slices.ContainsFunc(assigned, func(d pci.Device) bool {
		return d.DriverName() == "" && devices.GPUOf(&d) == nil && o.Contract.Value.At(d.Address) == nil
	}) {
		o.readAliases()
	}
	o.readRegions(assigned)
}

// readAliases reads the modules of each installed kernel, with the aliases of the devices.
func (o *observer) readAliases() {
	vendors := vendors(o.Devices.Value)
	o.readKernels(func(release string) (modprobe.Modules, error) {
		return modprobe.ReadModules(o.root, release, vendors...)
	})
}

func (o *observer) readKernels(read func(release string) (modprobe.Modules, error)) {
	kernels := make([]modprobe.Modules, len(o.releases))
	errs := make([]error, len(o.releases))
	var beside sync.WaitGroup
	for i, release := range o.releases {
		beside.Go(func() { kernels[i], errs[i] = read(release) })
	}
	beside.Wait()
	o.Kernels = Saw(host.ModulesDir, kernels, errors.Join(append(errs, o.listErr)...))
}

// readRunningKernel reads the modules of the running kernel.
func (o *observer) readRunningKernel() {
	const file = "/proc/sys/kernel/osrelease"
	data, err := o.root.ReadFile(file)
	switch {
	case host.IsAbsent(err):
		o.warn(file + " is missing: the available modules are unknown")
	case err != nil:
		o.Kernels = Saw[[]modprobe.Modules](file, nil, err)
	default:
		m, err := modprobe.ReadModules(o.root, strings.TrimSpace(string(data)), vendors(o.Devices.Value)...)
		o.Kernels = Saw(host.ModulesDir, []modprobe.Modules{m}, err)
	}
}

// vendors returns the vendor ids of devices as they are written in aliases.
func vendors(devices pci.Devices) (words []string) {
	for i := range devices {
		if v := devices[i].VendorID; v != nil {
			words = append(words, fmt.Sprintf("%08X", uint16(*v)))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(words)))
}

// readBoot reads what determines the next boot, except the kernels' modules.
func (o *observer) readBoot() {
	if !o.boots {
		return
	}
	want, _ := boot.WantIOMMU(o.CPUVendor, o.SNP)
	args := want.Args(nil)
	if c := o.Contract.Value; c != nil {
		args = c.Arguments
	}
	loader, err := ReadLoader(o.root, o.Facts, args)
	o.Loader = Saw("/boot", loader, err)
	var entries []boot.Entry
	var entriesErr error
	if err == nil {
		entries, entriesErr = loader.Entries(o.root)
	}
	maker, err := ReadGenerator(o.root, o.Facts)
	o.Generator = Saw("/boot", maker, err)
	o.readDefault()
	images, err := initramfs.Images(o.root, o.releases)
	all := Saw("/boot", images, err)
	if err == nil && o.Loader.Seen() {
		images, err = withoutRemoved(o.root, images, entries, entriesErr)
	}
	o.Images = Saw("/boot", images, err)
	if o.checks {
		o.readEntries(entries, entriesErr)
		o.readInitramfs(all)
	}
}

// readDefault determines the kernel that boots by default.
func (o *observer) readDefault() {
	newest := boot.Newest(o.releases)
	if !o.Loader.Seen() {
		o.Default = Saw("/boot", newest, nil)
		return
	}
	release, err := o.Loader.Value.Default(o.root)
	if !slices.Contains(o.releases, release) {
		release = newest
	}
	o.Default = Saw("/boot", release, err)
}

// withoutRemoved leaves out kernels that have no initramfs and cannot start: packages of modules
// leave a folder in /lib/modules when a kernel is removed. A file in /boot with the release in its
// name may be a kernel, unless it is known to be something else.
func withoutRemoved(root host.Root, images []initramfs.Image, entries []boot.Entry, entriesErr error) ([]initramfs.Image, error) {
	names, err := root.ReadDir("/boot")
	if err != nil && !host.IsAbsent(err) {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc([]string{"config-", "System.map-", "symvers-"}, func(other string) bool { return strings.HasPrefix(name, other) })
	})
	if entriesErr != nil {
		return nil, entriesErr
	}
	if len(entries) == 0 && !slices.ContainsFunc(images, func(i initramfs.Image) bool { return i.Name != "" }) {
		return images, nil // boot files are elsewhere
	}
	var left []initramfs.Image
	for _, i := range images {
		beside, err := root.Exists(path.Join(host.ModulesDir, i.Release, "vmlinuz"))
		if err != nil {
			return nil, host.OfFile(path.Join(host.ModulesDir, i.Release), err)
		}
		if i.Name != "" || beside ||
			slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, i.Release) }) ||
			slices.ContainsFunc(entries, func(e boot.Entry) bool { return e.Release == i.Release || strings.Contains(e.Kernel, i.Release) }) {
			left = append(left, i)
		}
	}
	return left, nil
}

// cpuOf determines the CPU vendor from the host bridges, where no other source shows it: host
// bridges have been part of the processor since PCs have IOMMUs.
func cpuOf(devices pci.Devices) string {
	vendors := map[pci.ID]string{0x8086: "intel", 0x1022: "amd", 0x1d94: "hygon"}
	for i := range devices {
		d := &devices[i]
		if d.Class != nil && *d.Class == pci.HostBridge && d.VendorID != nil && vendors[*d.VendorID] != "" {
			return vendors[*d.VendorID]
		}
	}
	return "unknown"
}

// errNoEntries means that no boot menu was found that gpustack can read.
var errNoEntries = errors.New("no boot menu that gpustack can read")

// readEntries reads the boot entries, and last the one for kernels that are installed later. In an
// incomplete tree only the menu may exist. A menu that the machine does not boot from is not read.
// entries are those of the loader.
func (o *observer) readEntries(entries []boot.Entry, err error) {
	var unsupported *boot.Unsupported
	var missing *boot.NotMounted
	loaderErr := o.Loader.Err
	if errors.As(loaderErr, &missing) || errors.As(loaderErr, &unsupported) && !unsupported.Menu {
		o.Entries = Saw[[]boot.Entry]("/boot", nil, loaderErr)
		return
	}
	if loaderErr != nil {
		entries, err = boot.ReadMenus(o.root)
	}
	if err == nil && len(entries) == 0 {
		err = cmp.Or(loaderErr, errNoEntries)
	}
	if err == nil && loaderErr == nil {
		var later *boot.Entry
		if later, err = o.Loader.Value.Later(o.root); later != nil {
			entries = append(entries, *later)
		}
	}
	o.Entries = Saw("/boot", entries, err)
}

// Obstacles returns every reason why no function of the machine can be bound, at the next boot or
// now: errors of reading what a plan needs.
func (m *Machine) Obstacles() []error {
	if !m.Devices.Seen() {
		return []error{m.Devices.Err}
	}
	_, known := m.WantIOMMU()
	var cpuErr error
	// Where another tool sets the kernel arguments, that tool must know the CPU.
	if unsupported := (*boot.Unsupported)(nil); m.boots && !known && !errors.As(m.Loader.Err, &unsupported) {
		cpuErr = fmt.Errorf("CPU %s: %w", m.CPUVendor, ErrCPU)
	}
	_, confErr := host.IfPresent(m.Conf.Value, m.Conf.Err)
	generatorErr, imagesErr := m.Generator.Err, m.Images.Err
	if ImagesElsewhere(m.Loader.Value) {
		generatorErr, imagesErr = nil, nil
	}
	return host.Split(errors.Join(m.Loader.Err, cpuErr, generatorErr, m.Kernels.Err, m.Default.Err, imagesErr, confErr, m.Stated.Err,
		m.Driverctl.Err, m.Contract.Err, m.Needs.Err, m.Mediated.Err, m.Regions.Err))
}
