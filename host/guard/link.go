package guard

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Link is what netlink shows of an interface beside the files of the network namespace that this
// process is in.
type Link struct {
	Name string // in its own namespace
	Kind string // "macvlan", or "device" for hardware
	// Namespace names its network namespace: by a name of ip-netns(8), or by a process in it. "" for
	// that of this process.
	Namespace string
	File      string       // that shows the namespace
	Lower     string       // the interface in the namespace of this process that it lies on, or ""
	Function  *pci.Address // of hardware in another namespace
	XDP       bool         // it has a program or a socket of XDP
}

// self is the network namespace of this process.
const self = "/proc/self/ns/net"

// ReadLinks returns the interfaces of other network namespaces that lie on an interface of this
// one, which leave nothing in its sysfs, or that are hardware, and the interfaces of this namespace
// that XDP uses (Linux, rtnl_fill_ifinfo in net/core/rtnetlink.c: IFLA_LINK, IFLA_LINK_NETNSID,
// IFLA_PARENT_DEV_NAME, IFLA_XDP). A namespace that a process or a name in /run/netns keeps is
// seen. Users without permission to enter namespaces get those of their own: they cannot change
// anything either.
func ReadLinks(root host.Root) ([]Link, error) {
	// netns.Get asks for a process id, which a /proc of another process namespace does not have.
	own, err := netns.GetFromPath(root.Path(self))
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: self, Err: err}
	}
	defer own.Close() //nolint:errcheck // only read from
	l := linkReader{own: own, names: map[int]string{}}
	if err := l.here(); err != nil {
		return nil, err
	}
	spaces, err := namespaces(root)
	if err != nil {
		return nil, err
	}
	for _, s := range spaces {
		err := l.read(root, s)
		if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 || host.HasEnded(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("network namespace of %s: %w", s.name, err)
		}
	}
	return l.found, nil
}

// namespace is a network namespace other than that of this process.
type namespace struct {
	name, file string
}

// namespaces returns one way to each other network namespace.
func namespaces(root host.Root) ([]namespace, error) {
	g := guard{root: root}
	inode := func(file string) (uint64, error) {
		var stat unix.Stat_t
		if err := unix.Stat(root.Path(file), &stat); err != nil {
			return 0, &os.PathError{Op: "stat", Path: file, Err: err}
		}
		return stat.Ino, nil
	}
	own, err := inode(self)
	if err != nil {
		return nil, err
	}
	seen := map[uint64]bool{own: true}
	var spaces []namespace
	add := func(file string, name func() string) error {
		number, err := inode(file)
		if errors.Is(err, unix.EACCES) || host.HasEnded(err) {
			return nil
		}
		if err == nil && !seen[number] {
			seen[number] = true
			spaces = append(spaces, namespace{name(), file})
		}
		return err
	}
	for _, dir := range []string{"/run/netns", "/run/docker/netns"} {
		names, err := g.list(dir)
		if err != nil && !errors.Is(err, unix.EACCES) {
			return nil, err
		}
		for _, name := range names {
			// A file that nothing is mounted on is no namespace.
			var fs unix.Statfs_t
			file := path.Join(dir, name)
			if err := unix.Statfs(root.Path(file), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
				continue
			}
			if err := add(file, func() string { return file }); err != nil {
				return nil, err
			}
		}
	}
	pids, err := host.PIDs(root)
	if err != nil {
		return nil, g.cause(host.ProcDir, err)
	}
	for _, pid := range pids {
		if err := add(host.ProcessFile(pid, "ns/net"), func() string { return g.command(pid) }); err != nil {
			return nil, err
		}
	}
	return spaces, nil
}

type linkReader struct {
	own   netns.NsHandle
	names map[int]string // of the interfaces of the own namespace
	found []Link
}

// here reads the own namespace.
func (l *linkReader) here() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("network interfaces: %w", err)
	}
	sockets, err := netlink.SocketDiagXDP()
	// A kernel without XDP or its diagnosis does not know the request (Linux, net/core/sock_diag.c).
	// Its interfaces show programs of XDP, without which no socket receives.
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("sockets of XDP: %w", err)
	}
	used := map[uint32]bool{}
	for _, s := range sockets {
		if s.XDPInfo != nil {
			used[s.XDPInfo.Ifindex] = true
		}
	}
	for _, link := range links {
		a := link.Attrs()
		l.names[a.Index] = a.Name
		if used[uint32(a.Index)] || a.Xdp != nil && a.Xdp.Attached {
			l.found = append(l.found, Link{Name: a.Name, Kind: link.Type(), File: path.Join(netDir, a.Name), XDP: true})
		}
	}
	return nil
}

// read reads another namespace. The ids that its interfaces have for other namespaces are its own.
func (l *linkReader) read(root host.Root, s namespace) error {
	fd, err := netns.GetFromPath(root.Path(s.file))
	if err != nil {
		return err
	}
	defer fd.Close() //nolint:errcheck // only read from
	// Other families of netlink may be missing in a kernel.
	h, err := netlink.NewHandleAt(fd, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	id, err := h.GetNetNsIdByFd(int(l.own))
	if err != nil {
		return err
	}
	links, err := h.LinkList()
	if err != nil {
		return err
	}
	own := map[int]bool{}
	for _, link := range links {
		own[link.Attrs().Index] = true
	}
	for _, link := range links {
		a := link.Attrs()
		found := Link{Name: a.Name, Kind: link.Type(), Namespace: s.name, File: s.file}
		lower := lowerIndex(link)
		// Without an id, the interface below is in the same namespace, but an ipvtap shows none (Linux,
		// drivers/net/ipvlan/ipvtap.c has no get_link_net).
		alone := a.NetNsID < 0 && (link.Type() == "ipvtap" || !own[lower])
		if id >= 0 && a.NetNsID == id || alone {
			found.Lower = l.names[lower]
		}
		if function, err := pci.ParseAddress(a.ParentDev); err == nil {
			found.Function = &function
		}
		if found.Lower != "" || found.Function != nil {
			l.found = append(l.found, found)
		}
	}
	return nil
}

// lowerIndex returns the index of the interface below another one, or 0. A vxlan shows it in its own
// data (Linux, drivers/net/vxlan: IFLA_VXLAN_LINK).
func lowerIndex(link netlink.Link) int {
	if v, ok := link.(*netlink.Vxlan); ok {
		return v.VtepDevIndex
	}
	return link.Attrs().ParentIndex
}

// links adds what lies on interfaces: other interfaces, which need no address of the host, and XDP.
func (g *guard) links(running []Link) error {
	names, err := g.interfaces()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := g.upper(name); err != nil {
			return err
		}
	}
	for _, l := range running {
		of := subject{UseUpperLink, l.File, fmt.Sprintf("%s %s in the network namespace of %s", l.Kind, l.Name, l.Namespace)}
		lower := l.Lower
		switch {
		case l.XDP:
			of.use, of.what, lower = UseXDP, "XDP", l.Name
		case l.Function != nil:
			of.use, of.what = UseNetworkNamespace, fmt.Sprintf("%s in the network namespace of %s", l.Name, l.Namespace)
			g.add(host.CodeNetwork, []pci.Address{*l.Function}, false, "carries ", of, "")
			continue
		}
		if err := g.carries([]string{lower}, of); err != nil {
			return err
		}
	}
	return nil
}

// upper adds the interfaces above one with a function of its own (Linux,
// Documentation/ABI/testing/sysfs-class-net: master; net/core/dev.c: upper_NAME).
func (g *guard) upper(name string) error {
	target, err := g.device(netDir, name)
	if err != nil {
		return err
	}
	functions, err := g.functions(target)
	if err != nil || len(functions) == 0 {
		return err
	}
	dir := path.Join(netDir, name)
	entries, err := g.list(dir)
	if err != nil {
		return err
	}
	above := map[string]string{} // the file, by the name of the interface
	for _, e := range entries {
		if upper, ok := strings.CutPrefix(e, "upper_"); ok {
			above[upper] = path.Join(dir, e)
		}
	}
	master, err := g.link(dir, "master")
	if err != nil {
		return err
	}
	if master != "" {
		above[path.Base(master)] = path.Join(dir, "master")
	}
	for _, upper := range sortedKeys(above) {
		what, err := g.described(upper)
		if err != nil {
			return err
		}
		g.add(host.CodeNetwork, functions, false, "carries ", subject{UseUpperLink, above[upper], what}, ", through "+name)
	}
	return nil
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// described returns the kind and name of a virtual interface. The datapath of Open vSwitch has no
// DEVTYPE (Linux, net/openvswitch/vport-internal_dev.c).
func (g *guard) described(name string) (string, error) {
	if name == "ovs-system" {
		return "Open vSwitch (ovs-system)", nil
	}
	uevent, err := g.attribute(path.Join(netDir, name, "uevent"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(uevent) {
		if kind, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVTYPE="); ok {
			return fmt.Sprintf("the %s %s", kind, name), nil
		}
	}
	return "the interface " + name, nil
}

// consoles adds interfaces that netconsole(8) and the crash kernel send through, where files name
// them (Linux, Documentation/networking/netconsole.rst; SUSE's kdump(5), KDUMP_NETCONFIG; kdumpnic=
// and ip= of dracut.cmdline(7), which kexec-tools passes to the crash kernel).
func (g *guard) consoles() error {
	const dir = "/sys/kernel/config/netconsole"
	targets, err := g.entries(dir)
	if err != nil {
		return err
	}
	for _, target := range targets {
		enabled, err := g.attribute(path.Join(dir, target, "enabled"))
		if err != nil {
			return err
		}
		file := path.Join(dir, target, "dev_name")
		name, err := g.attribute(file)
		if err == nil && enabled == "1" {
			err = g.carries([]string{name}, subject{UseNetconsole, file, "netconsole"})
		}
		if err != nil {
			return err
		}
	}
	for _, file := range []string{cmdlineFile, "/etc/sysconfig/kdump", "/etc/default/kdump-tools", "/etc/kdump.conf"} {
		lines, err := g.lines(file)
		if err != nil {
			return err
		}
		for _, fields := range lines {
			if strings.HasPrefix(fields[0], "#") {
				continue
			}
			for _, field := range fields {
				if err := g.console(file, field); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// console adds the interface that a word of the kernel command line or of kdump's configuration
// names.
func (g *guard) console(file, word string) error {
	key, value, _ := strings.Cut(strings.Trim(word, `"'`), "=")
	if i := strings.LastIndexAny(key, `"'`); i >= 0 { // the first word of a value in quotes
		key = key[i+1:]
	}
	if strings.HasPrefix(key, "KDUMP_") && strings.Contains(value, "=") { // KDUMP_COMMANDLINE_APPEND="ip=…
		key, value, _ = strings.Cut(strings.Trim(value, `"'`), "=")
	}
	value = strings.Trim(value, `"'`)
	switch {
	case file == cmdlineFile && key == "netconsole":
		// [+][r][source port]@[source address]/[interface],[port]@address/[MAC]
		source, _, _ := strings.Cut(value, ",")
		_, name, _ := strings.Cut(source, "/")
		return g.carries([]string{cmp.Or(name, "eth0")}, subject{UseNetconsole, file, "netconsole"})
	case file == cmdlineFile:
		return nil
	case key == "KDUMP_NETCONFIG", key == "kdumpnic", key == "ip":
		// INTERFACE:METHOD, or client:peer:gateway:netmask:hostname:INTERFACE:METHOD; addresses are no
		// names of interfaces.
		fields := slices.DeleteFunc(strings.Split(value, ":"), func(s string) bool { return s == "" })
		return g.carries(fields, subject{UseKdump, file, "the network of the crash kernel"})
	}
	return nil
}
