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

// Need is a reason why the host needs a function.
type Need struct {
	Address pci.Address
	Reason  string // without its subject: "carries /dev/sda1, mounted at /"
	// Absolute needs cannot be waived: the host does not boot without /, /usr and /boot.
	Absolute bool
	Code     host.Code // of the reason
	Use      Use       // its type
	Subject  string    // what depends on the function, of the reason: "/dev/sda1, mounted at /"
	File     string    // on the machine, that shows it
}

// Running is what a running machine shows beside its files. Any other root has the zero Running.
type Running struct {
	// Session is the operator's SSH_CONNECTION (ssh(1)): the client's address and port, and
	// the server's. "" without an ssh session.
	Session string
	// Addresses are the addresses of each interface. nil: derived from files, as far as
	// those show them.
	Addresses map[string][]netip.Addr
	// Links are the interfaces of other network namespaces, and those that XDP uses. Files do not
	// show them.
	Links []Link
	// Unread is the error of reading Addresses and Links, which may hide a need: [Needs] returns it.
	Unread error
}

// Needs returns all needs that the files below root and the running machine show, ordered by
// address. devices are all functions of the machine. It fails closed: what cannot be read is an
// error, because it may hide a need.
func Needs(root host.Root, devices pci.Devices, running Running) ([]Need, error) {
	g := guard{root: root, devices: devices, at: map[reason]int{}, origins: map[string]origin{}, carried: map[string]bool{}, reached: map[string]bool{}}
	err := joined(running.Unread, g.readMounts(), g.readRoutes(), g.fileSystems(), g.swaps(), g.unmounted(),
		g.network(running), g.configured(), g.session(running), g.links(running.Links), g.consoles(), g.clocks())
	needs := append(g.folded(), Consoles(devices)...)
	slices.SortStableFunc(needs, func(a, b Need) int { return a.Address.Compare(b.Address) })
	return needs, err
}

// joined joins errors, each once: several uses may depend on the same file.
func joined(errs ...error) error {
	seen := map[string]bool{}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || seen[err.Error()] {
			return true
		}
		seen[err.Error()] = true
		return false
	})...)
}

type guard struct {
	root    host.Root
	devices pci.Devices
	found   []reason
	at      map[reason]int // index in found, by the reason without absolute
	mounts  []mount
	origins map[string]origin // of the file systems and disks of mounts, by type and source
	zfs     *origin           // of all pools
	carried map[string]bool   // disks in sysfs that a use depends on
	records map[string]udevRecord
	numbers map[string]string // of disks in sysfs
	routes  []route
	fib     fib
	ports   *[]string       // of Open vSwitch
	reached map[string]bool // interfaces with an address or a default route
	linked  *[]carrier      // interfaces that have carrier or whose state is unknown
}

// subject is what depends on functions, with the file that shows it.
type subject struct {
	use  Use
	file string // on the machine
	what string // "/dev/sda1, mounted at /"
}

// named returns the subject with another name.
func (s subject) named(what string) subject {
	s.what = what
	return s
}

// reason is a need before folding. Its text is before + what + after.
type reason struct {
	address  pci.Address
	absolute bool
	code     host.Code
	before   string
	subject
	after string
}

// add records a need for each of the functions. A need that is recorded already becomes absolute
// if the new one is.
func (g *guard) add(code host.Code, addresses []pci.Address, absolute bool, before string, of subject, after string) {
	for _, a := range addresses {
		r := reason{a, false, code, before, of, after}
		i, ok := g.at[r]
		if !ok {
			i = len(g.found)
			g.at[r] = i
			g.found = append(g.found, r)
		}
		g.found[i].absolute = g.found[i].absolute || absolute
	}
}

// folded returns the needs that were found. More than six needs of a function that differ only in
// what it carries become one, since containers mount the same file system many times.
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
		needs = append(needs, Need{
			Address: r.address, Reason: r.before + r.what + r.after, Absolute: r.absolute, Code: rootCode(r.code, r.absolute),
			Use: r.use, Subject: r.what, File: r.file,
		})
	}
	return needs
}

// rootCode returns the code of a reason. A need that cannot be waived is one of the root file
// system, whatever carries it.
func rootCode(code host.Code, absolute bool) host.Code {
	if absolute {
		return host.CodeRootDisk
	}
	return code
}

// lines returns the fields of each line of a file, or none if the file is absent.
func (g *guard) lines(name string) ([][]string, error) {
	data, err := host.IfPresent(g.root.ReadTable(name))
	if err != nil {
		return nil, err
	}
	var lines [][]string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, fields)
		}
	}
	return lines, nil
}

// attribute returns the text of a sysfs attribute, or "" if it is absent or its device is removed
// at the same time (ENODEV: Linux, kernfs_seq_start in fs/kernfs/file.c).
func (g *guard) attribute(name string) (string, error) {
	resolved, err := g.root.Real(name)
	if err != nil {
		return "", host.OfFile(name, err)
	}
	data, err := g.root.ReadFile(resolved)
	if host.IsAbsent(err) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), host.OfFile(name, err)
}

// list returns the names in a sysfs directory, or none if the directory is absent.
func (g *guard) list(dir string) ([]string, error) {
	resolved, err := g.root.Real(dir)
	if err != nil {
		return nil, host.OfFile(dir, err)
	}
	names, err := g.root.ReadDir(resolved)
	if host.IsAbsent(err) {
		return nil, nil
	}
	return names, host.OfFile(dir, err)
}

// exists reports whether sysfs has a file or directory, or a link to one.
func (g *guard) exists(name string) (bool, error) {
	resolved, err := g.root.Real(name)
	if err != nil {
		return false, host.OfFile(name, err)
	}
	ok, err := g.root.Exists(resolved)
	return ok, host.OfFile(name, err)
}

// link returns the unresolved target of a symbolic link, or "" if the link is absent.
func (g *guard) link(folder, name string) (string, error) {
	resolved, err := g.root.Real(folder)
	if err != nil {
		return "", host.OfFile(folder, err)
	}
	dir, err := g.root.OpenDir(resolved)
	if host.IsAbsent(err) {
		return "", nil
	}
	if err != nil {
		return "", host.OfFile(folder, err)
	}
	defer dir.Close() //nolint:errcheck // only read from
	target, err := host.IfPresent(dir.Readlink(name))
	return target, host.OfFile(path.Join(folder, name), err)
}

// device returns the path of a device of a class below /sys/devices, or "" if the class has no
// such device or has a directory in place of the link.
func (g *guard) device(class, name string) (string, error) {
	target, err := g.link(class, name)
	if errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return target, err
}

// functions returns the functions that a device depends on, by target, the path of its directory
// below /sys/devices: the last function of the path, also of a device of a subfunction, whose
// directory is in that of its function (Linux since 5.12, mlx5_sf_dev_add in
// drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c); each earlier one that is not a bridge,
// such as an Intel VMD controller, which has a PCI domain of its own below it (Linux,
// drivers/pci/controller/vmd.c); and, for each virtual function, the physical function, without
// which the virtual one does not exist (Linux, Documentation/ABI/testing/sysfs-bus-pci, physfn).
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

// endpoint reports whether a function is listed and can be assigned to a guest. A function of
// unknown class counts.
func (g *guard) endpoint(a pci.Address) bool {
	d := g.devices.At(a)
	return d != nil && !d.IsBridge()
}

// Consoles returns the needs of the firmware's boot display and the management controller's
// console.
func Consoles(devices []pci.Device) (needs []Need) {
	add := func(a pci.Address, use Use, what, attribute string) {
		needs = append(needs, Need{Address: a, Reason: "is " + what, Code: host.CodeConsole, Use: use, Subject: what,
			File: path.Join("/sys/bus/pci/devices", a.String(), attribute)})
	}
	for i := range devices {
		switch d := &devices[i]; {
		case d.BootVGA == host.Yes:
			add(d.Address, UseConsole, "the console (boot_vga)", "boot_vga")
		case d.IsManagementConsole():
			add(d.Address, UseManagementConsole, "the management controller's console", "vendor")
		}
	}
	return needs
}
