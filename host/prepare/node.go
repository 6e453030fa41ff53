package prepare

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/guard"
	"gpustack/host/initramfs"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Errors of machines that gpustack cannot prepare.
var (
	ErrNoBootLoader = errors.New("no boot loader found")
	ErrCPU          = errors.New("what its IOMMU needs is not known")
	ErrNoKernel     = errors.New("no installed kernel")
)

// Loader is what starts a machine's kernels, and what it tells them: GRUB, GRUB with
// entries, systemd-boot.
type Loader interface {
	// Args are what a kernel gets. Where ours cannot be told from others', they are
	// among them.
	Args() boot.Args
	// Entries are what can be started.
	Entries(root host.Root) ([]boot.Entry, error)
	// Later is what a kernel gets that is installed later, or nil for what the kernel
	// gets that runs then.
	Later(root host.Root) (*boot.Entry, error)
	// Default is the release of the kernel that starts unless the operator chooses
	// another, "" where it cannot be determined.
	Default(root host.Root) (string, error)
	// Plan plans what makes every entry, and those made later, have what is wanted.
	Plan(root host.Root, want boot.Want) (edit.Plan, error)
	// Programs make what follows from other arguments, or from another initramfs.
	Programs(arguments, initramfs bool) []host.Program
}

// ReadLoader reads the configuration of the machine's boot loader. want is what its kernels are to
// get, for the error that names the command which sets arguments elsewhere.
func ReadLoader(root host.Root, facts host.Facts, want boot.Args) (Loader, error) {
	if err := boot.Mounted(root); err != nil {
		return nil, err
	}
	if err := boot.Supported(root, want); err != nil {
		return nil, err
	}
	switch text(facts.BootLoader) {
	case "grub":
		return boot.ReadGrub(root)
	case "grub-bls":
		return boot.ReadBLS(root)
	case "systemd-boot":
		if err := boot.UnifiedDefault(root, want); err != nil {
			return nil, err
		}
		return boot.ReadSystemdBoot(root)
	}
	return nil, ErrNoBootLoader
}

// Node is a machine as it is.
type Node struct {
	CPUVendor string
	Devices   []pci.Device
	Kernels   []modprobe.Modules
	Default   string // release of the kernel that boots by default; the newest where that is not known
	Loader    Loader
	Maker     initramfs.Maker
	Images    []initramfs.Image
	Conf      modprobe.Conf // what others tell modprobe
	Needs     []guard.Need
	Mediated  map[pci.Address]int // mediated devices, by the function that they are of
	Recorded  *Contract
	Warnings  []string

	// Virtualization is the CPU flag that KVM needs: "vmx", "svm", "" for neither, and nil
	// where the machine does not say.
	Virtualization *string

	recordUnread bool // whether something is recorded is unknown
}

// Observe reads the machine below root. All that keeps it from being prepared is
// in the error. running is what only the running machine shows.
func Observe(root host.Root, running guard.Running) (Node, error) {
	n, err := ObserveNone(root)
	if n.Devices == nil {
		return n, err
	}
	err = errors.Join(err, n.observeNeeds(root, running))
	return n, err
}

// observeNeeds reads what keeps functions from guests: what the host needs, and which functions
// are divided among guests.
func (n *Node) observeNeeds(root host.Root, running guard.Running) error {
	var needsErr, mediatedErr error
	n.Needs, needsErr = guard.Needs(root, n.Devices, running)
	mounts, mountsErr := root.Exists("/proc/mounts")
	if mountsErr == nil && !mounts {
		n.Warnings = append(n.Warnings, "/proc/mounts: not there, so that the host's disks are not guarded")
	}
	n.Mediated, mediatedErr = pci.ReadMediated(root, n.Devices)
	return errors.Join(needsErr, mountsErr, mediatedErr)
}

// ObserveNone reads what counts for the empty selection: Observe without what keeps functions from
// guests, which must not keep them from the host.
func ObserveNone(root host.Root) (Node, error) {
	facts, warnings := host.ReadFacts(root)
	devices, scanWarnings, err := pci.Scan(root, pci.Options{})
	if err != nil {
		return Node{}, err
	}
	n := Node{Devices: devices, Warnings: append(warnings, scanWarnings...)}
	for i := range devices {
		n.Warnings = append(n.Warnings, devices[i].Warnings...)
	}
	var errs []error
	keep := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if n.CPUVendor = text(facts.CPUVendor); n.CPUVendor == "" {
		n.CPUVendor = cpuOf(devices)
	}
	if flag, err := host.ReadVirtualization(root); err == nil {
		n.Virtualization = &flag
	}
	want, ok := boot.WantIOMMU(n.CPUVendor)
	n.Loader, err = ReadLoader(root, facts, want.Args())
	keep(err)
	loads := err == nil
	// Where others set the arguments, it is they who must know the CPU.
	if unsupported := (*boot.Unsupported)(nil); !ok && !errors.As(err, &unsupported) {
		keep(fmt.Errorf("CPU %s: %w", n.CPUVendor, ErrCPU))
	}
	n.Maker, err = initramfs.MakerOf(root, text(facts.Distribution))
	keep(err)
	n.Kernels, err = readKernels(root, devices)
	keep(err)
	n.Default = boot.Newest(n.releases())
	if loads {
		release, err := n.Loader.Default(root)
		keep(err)
		if slices.Contains(n.releases(), release) {
			n.Default = release
		}
	}
	n.Images, err = initramfs.Images(root, n.releases())
	keep(err)
	if loads {
		n.Images, err = n.withoutRemoved(root, n.Images)
		keep(err)
	}
	n.Conf, err = modprobe.ReadConf(root, slices.Concat(modprobe.OwnFiles(), modprobe.RunFiles())...)
	keep(err)
	n.Recorded, err = ReadContract(root)
	n.recordUnread = err != nil
	keep(err)
	return n, errors.Join(errs...)
}

// withoutRemoved leaves out kernels without an initramfs that cannot start: packages of modules
// leave a folder in /lib/modules when the kernel is removed. A file in /boot that has the release in
// its name may be a kernel, unless it is known to be another thing.
func (n Node) withoutRemoved(root host.Root, images []initramfs.Image) ([]initramfs.Image, error) {
	names, err := root.ReadDir("/boot")
	if err != nil && !host.IsAbsent(err) {
		return nil, fmt.Errorf("/boot: %w", host.Cause(err))
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc([]string{"config-", "System.map-", "symvers-"}, func(other string) bool { return strings.HasPrefix(name, other) })
	})
	entries, err := n.Loader.Entries(root)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 && !slices.ContainsFunc(images, func(i initramfs.Image) bool { return i.Name != "" }) {
		return images, nil // boot files are elsewhere
	}
	var left []initramfs.Image
	for _, i := range images {
		beside, err := root.Exists(path.Join(host.ModulesDir, i.Release, "vmlinuz"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(host.ModulesDir, i.Release), host.Cause(err))
		}
		if i.Name != "" || beside ||
			slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, i.Release) }) ||
			slices.ContainsFunc(entries, func(e boot.Entry) bool { return e.Release == i.Release || strings.Contains(e.Kernel, i.Release) }) {
			left = append(left, i)
		}
	}
	return left, nil
}

// cpuOf tells a processor's vendor by its host bridges, where nothing else does:
// they have been part of the processor since there are IOMMUs in PCs.
func cpuOf(devices []pci.Device) string {
	vendors := map[pci.ID]string{0x8086: "intel", 0x1022: "amd", 0x1d94: "hygon"}
	for i := range devices {
		d := &devices[i]
		if d.Class != nil && *d.Class == pci.HostBridge && d.VendorID != nil && vendors[*d.VendorID] != "" {
			return vendors[*d.VendorID]
		}
	}
	return "unknown"
}

func readKernels(root host.Root, devices []pci.Device) ([]modprobe.Modules, error) {
	releases, err := host.Kernels(root)
	if err != nil {
		return nil, err
	}
	if len(releases) == 0 {
		return nil, fmt.Errorf("%s: %w", host.ModulesDir, ErrNoKernel)
	}
	var vendors []string
	for i := range devices {
		if v := devices[i].VendorID; v != nil {
			if word := fmt.Sprintf("%08X", uint16(*v)); !slices.Contains(vendors, word) {
				vendors = append(vendors, word)
			}
		}
	}
	var kernels []modprobe.Modules
	for _, release := range releases {
		m, err := modprobe.ReadModules(root, release, vendors...)
		if err != nil {
			return nil, err
		}
		kernels = append(kernels, m)
	}
	return kernels, nil
}

func (n Node) releases() []string {
	var releases []string
	for _, m := range n.Kernels {
		releases = append(releases, m.Release)
	}
	return releases
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// device returns the function at an address, or nil.
func (n Node) device(a pci.Address) *pci.Device {
	i, ok := slices.BinarySearchFunc(n.Devices, a, func(d pci.Device, a pci.Address) int { return d.Address.Compare(a) })
	if !ok {
		return nil
	}
	return &n.Devices[i]
}

// anyKernel tells whether something holds for a kernel that is installed.
func (n Node) anyKernel(holds func(modprobe.Modules) bool) bool {
	return slices.ContainsFunc(n.Kernels, holds)
}
