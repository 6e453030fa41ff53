package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Need is why the host needs a function.
type Need struct {
	Address pci.Address
	Reason  string
	// Absolute needs cannot be waived: the host does not boot without /, /usr and /boot.
	Absolute bool
}

// Running is what only the running machine shows, beside its files. The zero Running is
// for every other root.
type Running struct {
	// Session is the operator's SSH_CONNECTION (ssh(1)): the client's address and port, and
	// the server's. "" without an ssh session.
	Session string
	// Addresses are the addresses of each interface. nil: derived from files, as far as
	// those show them.
	Addresses map[string][]netip.Addr
}

// Needs returns all needs that files below root and the running machine show, in order
// of address. What cannot be read is an error: an unreadable file must not hide a need.
func Needs(root host.Root, devices []pci.Device, running Running) ([]Need, error) {
	g := guard{root: root, devices: devices, at: map[reason]int{}, origins: map[string]origin{}}
	err := errors.Join(g.readMounts(), g.readRoutes())
	err = errors.Join(err, g.fileSystems(), g.swaps(), g.network(running), g.session(running))
	needs := append(g.folded(), Consoles(devices)...)
	slices.SortStableFunc(needs, func(a, b Need) int { return a.Address.Compare(b.Address) })
	return needs, err
}

type guard struct {
	root    host.Root
	devices []pci.Device
	found   []reason
	at      map[reason]int // index in found, by the reason without absolute
	mounts  []mount
	origins map[string]origin // of the file systems and disks of mounts, by type and source
	zfs     *origin           // of all pools
	routes  []route
	fib     fib
	ports   *[]string  // of Open vSwitch
	linked  *[]carrier // interfaces that have carrier or whose state is unknown
}

// reason is a need before it is folded: before, what and after are its text.
type reason struct {
	address             pci.Address
	absolute            bool
	before, what, after string
}

// add records a need of several functions. A need that is recorded already becomes
// absolute if it is so now.
func (g *guard) add(addresses []pci.Address, absolute bool, before, what, after string) {
	for _, a := range addresses {
		r := reason{a, false, before, what, after}
		i, ok := g.at[r]
		if !ok {
			i = len(g.found)
			g.at[r] = i
			g.found = append(g.found, r)
		}
		g.found[i].absolute = g.found[i].absolute || absolute
	}
}

// folded returns what was found. Needs of a function that differ only in what
// it carries become one where they are many: containers mount a file system many times.
func (g *guard) folded() []Need {
	const most = 6
	alike := func(r reason) reason {
		r.what = ""
		return r
	}
	count := map[reason]int{}
	for _, r := range g.found {
		count[alike(r)]++
	}
	var needs []Need
	for _, r := range g.found {
		switch n := count[alike(r)]; {
		case n < 0:
			continue // folded into the first one
		case n > most:
			count[alike(r)] = -1
			r.what += fmt.Sprintf(", and %d more", n-1)
		}
		needs = append(needs, Need{r.address, r.before + r.what + r.after, r.absolute})
	}
	return needs
}

// lines returns the fields of each line of a file, none where it is absent.
func (g *guard) lines(name string) ([][]string, error) {
	data, err := g.root.ReadTable(name)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, g.cause(name, err)
	}
	var lines [][]string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, fields)
		}
	}
	return lines, nil
}

// attribute returns the text of a small file of sysfs, "" where it is absent, or where its
// device is removed meanwhile (ENODEV: Linux, kernfs_seq_start in fs/kernfs/file.c).
func (g *guard) attribute(name string) (string, error) {
	resolved, err := g.root.Real(name)
	if err != nil {
		return "", g.cause(name, err)
	}
	data, err := g.root.ReadFile(resolved)
	if host.IsAbsent(err) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), g.cause(name, err)
}

// list returns the names in a folder of sysfs, none where it is absent.
func (g *guard) list(dir string) ([]string, error) {
	resolved, err := g.root.Real(dir)
	if err != nil {
		return nil, g.cause(dir, err)
	}
	names, err := g.root.ReadDir(resolved)
	if host.IsAbsent(err) {
		return nil, nil
	}
	return names, g.cause(dir, err)
}

// exists returns whether sysfs has a file or folder, or a link to one.
func (g *guard) exists(name string) (bool, error) {
	resolved, err := g.root.Real(name)
	if err != nil {
		return false, g.cause(name, err)
	}
	ok, err := g.root.Exists(resolved)
	return ok, g.cause(name, err)
}

func (g *guard) cause(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, host.Cause(err))
}

// link returns where a link leads, as it is written: "" where it is absent.
func (g *guard) link(folder, name string) (string, error) {
	resolved, err := g.root.Real(folder)
	if err != nil {
		return "", g.cause(folder, err)
	}
	dir, err := g.root.OpenDir(resolved)
	if host.IsAbsent(err) {
		return "", nil
	}
	if err != nil {
		return "", g.cause(folder, err)
	}
	defer dir.Close() //nolint:errcheck // only read from
	target, err := dir.Readlink(name)
	if host.IsAbsent(err) {
		return "", nil
	}
	return target, g.cause(path.Join(folder, name), err)
}

// device returns where a device of a class lies below /sys/devices: "" where the class has
// no such device, or a folder in place of a link.
func (g *guard) device(class, name string) (string, error) {
	target, err := g.link(class, name)
	if errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return target, err
}

// functions returns the functions that a device lies on, by the path of its folder below
// /sys/devices: the last function on it, each one above that is not a bridge, such as an
// Intel VMD controller with a PCI domain of its own below it (Linux,
// drivers/pci/controller/vmd.c), and of each virtual function the physical one (Linux,
// Documentation/ABI/testing/sysfs-bus-pci, physfn): it goes when that one goes.
func (g *guard) functions(target string) ([]pci.Address, error) {
	var onPath []pci.Address
	for element := range strings.SplitSeq(target, "/") {
		if a, err := pci.ParseAddress(element); err == nil {
			onPath = append(onPath, a)
		}
	}
	var addresses []pci.Address
	for i, a := range onPath {
		if i < len(onPath)-1 && !g.endpoint(a) {
			continue
		}
		addresses = append(addresses, a)
		dir := path.Join("/sys/bus/pci/devices", a.String())
		physical, err := g.link(dir, "physfn")
		if err != nil {
			return nil, err
		}
		if physical == "" {
			continue
		}
		pf, err := pci.ParseAddress(path.Base(physical))
		if err != nil {
			return nil, fmt.Errorf("%s/physfn: %w", dir, err)
		}
		addresses = append(addresses, pf)
	}
	return addresses, nil
}

// endpoint returns whether a function is listed and can go to a guest: one whose class
// is unknown may.
func (g *guard) endpoint(a pci.Address) bool {
	return slices.ContainsFunc(g.devices, func(d pci.Device) bool {
		return d.Address == a && (d.Class == nil || !d.Class.IsBridge())
	})
}

// Consoles returns the needs of the host's console, the firmware's and the management
// controller's.
func Consoles(devices []pci.Device) (needs []Need) {
	for i := range devices {
		switch d := &devices[i]; {
		case d.BootVGA != nil && *d.BootVGA:
			needs = append(needs, Need{Address: d.Address, Reason: "is the console (boot_vga)"})
		case d.IsManagementConsole():
			needs = append(needs, Need{Address: d.Address, Reason: "is the management controller's console"})
		}
	}
	return needs
}
