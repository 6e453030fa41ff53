package guard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Link is what netlink shows of an interface beside the files of the network namespace that this
// process is in.
type Link struct {
	Name string // in its own namespace
	Kind string // "macvlan", or "device" for hardware
	// Namespace names its network namespace: by a name of ip-netns(8), or by a process in it. "" for
	// that of this process.
	Namespace string
	File      string // that shows the namespace
	Lower     string // the interface in the namespace of this process that it lies on, or ""
	Device    string // in /sys/bus, of hardware in another namespace: a PCI function, or a subfunction, virtio or vDPA device of one
	XDP       bool   // it has a program or a socket of XDP
}

// ReadLinks returns the interfaces of other network namespaces that lie on an interface of this
// one, which leave nothing in its sysfs, or that are hardware, and the interfaces of this namespace
// that XDP uses (Linux, rtnl_fill_ifinfo in net/core/rtnetlink.c: IFLA_LINK, IFLA_LINK_NETNSID,
// IFLA_PARENT_DEV_NAME, IFLA_PARENT_DEV_BUS_NAME, IFLA_XDP).
//
// It is for roots that have the kernel's /proc: the machine itself, or a tree with /proc mounted
// below it. The namespaces are that of this thread, those of names in /run/netns and
// /run/docker/netns, and those of the processes that this /proc shows. Another root is a tree,
// which has no links; a /proc that does not show this process, as that of another PID namespace,
// is an error. Users without permission to enter namespaces get the links of their own: they cannot
// change anything either.
func ReadLinks(root host.Root) ([]Link, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(root.Path(host.ProcDir), &fs); host.IsAbsent(err) || err == nil && fs.Type != unix.PROC_SUPER_MAGIC {
		return nil, nil
	} else if err != nil {
		return nil, host.OfFile(host.ProcDir, err)
	}
	own, err := netns.GetFromPath(root.Path(ownNamespace))
	if err != nil {
		return nil, host.OfFile(ownNamespace, err)
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
	for _, ways := range spaces {
		if err := enter(ways, func(s namespace) error { return l.read(root, s) }); err != nil {
			return nil, err
		}
	}
	return l.found, nil
}

// ownNamespace is the network namespace of this thread. The name is valid in the /proc of an outer
// PID namespace too, where the ids of processes differ.
const ownNamespace = "/proc/thread-self/ns/net"

// namespace is a way to a network namespace other than that of this process.
type namespace struct {
	name, file string
	gone       func() bool // whether the process whose file it is has ended
}

// ended reports whether an error of a way's file says that the process has ended. The links in
// /proc/PID/ns of a reaped process answer EACCES (Linux, proc_ns_get_link in fs/proc/namespaces.c),
// as those of a process that this user may not trace do.
func (s namespace) ended(err error) bool {
	return host.HasEnded(err) || errors.Is(err, unix.EACCES) && s.gone()
}

// forbidden reports whether an error says that the user may not read a file or enter a namespace,
// which is no error for a user who cannot change anything.
func forbidden(err error) bool {
	return (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) && os.Geteuid() != 0
}

// enter reads a namespace by the first way whose process has not ended. A namespace all of whose
// ways have ended is gone.
func enter(ways []namespace, read func(namespace) error) error {
	for _, s := range ways {
		err := read(s)
		if s.ended(err) {
			continue
		}
		if err != nil && !forbidden(err) {
			return fmt.Errorf("network namespace of %s: %w", s.name, err)
		}
		return nil
	}
	return nil
}

// namespaces returns the ways to each other network namespace.
func namespaces(root host.Root) ([][]namespace, error) {
	own, err := inode(root, ownNamespace)
	if err != nil {
		return nil, err
	}
	s := spaces{guard: guard{root: root}, own: own, at: map[uint64]int{}}
	for _, dir := range []string{"/run/netns", "/run/docker/netns"} {
		if err := s.named(dir); err != nil {
			return nil, err
		}
	}
	if err := s.ofProcesses(); err != nil {
		return nil, err
	}
	if err := s.checkHidden(); err != nil {
		return nil, err
	}
	return s.found, nil
}

// inode returns the number of a file, which for a namespace's file is that of the namespace.
func inode(root host.Root, file string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat(root.Path(file), &stat); err != nil {
		return 0, host.OfFile(file, err)
	}
	return stat.Ino, nil
}

// spaces are the network namespaces that have been found.
type spaces struct {
	guard  guard
	own    uint64         // the number of this process's namespace
	found  [][]namespace  // the ways to each of the others
	at     map[uint64]int // index in found, by the namespace's number
	hidden []namespace    // of processes whose namespace the kernel does not show
}

// add adds a way, unless it leads to the own namespace or to none.
func (s *spaces) add(way namespace) error {
	number, err := inode(s.guard.root, way.file)
	if way.ended(err) || forbidden(err) || number == s.own {
		return nil
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		s.hidden = append(s.hidden, way)
		return nil
	}
	if err != nil {
		return err
	}
	s.put(number, way)
	return nil
}

// put adds a way to the namespace with a number.
func (s *spaces) put(number uint64, way namespace) {
	if _, seen := s.at[number]; !seen {
		s.at[number] = len(s.found)
		s.found = append(s.found, nil)
	}
	s.found[s.at[number]] = append(s.found[s.at[number]], way)
}

// named adds the namespaces that a folder has names of.
func (s *spaces) named(dir string) error {
	names, err := s.guard.list(dir)
	if err != nil && !forbidden(err) {
		return err
	}
	for _, name := range names {
		// A file that nothing is mounted on is no namespace.
		var fs unix.Statfs_t
		file := path.Join(dir, name)
		if err := unix.Statfs(s.guard.root.Path(file), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
			continue
		}
		if err := s.add(namespace{file, file, func() bool { return false }}); err != nil {
			return err
		}
	}
	return nil
}

// ofProcesses adds the namespaces of all processes.
func (s *spaces) ofProcesses() error {
	pids, err := host.PIDs(s.guard.root)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		gone := func() bool {
			_, err := inode(s.guard.root, host.ProcessFile(pid, ""))
			return host.HasEnded(err)
		}
		if err := s.add(namespace{s.guard.command(pid), host.ProcessFile(pid, "ns/net"), gone}); err != nil {
			return err
		}
	}
	return nil
}

// checkHidden returns an error if a hidden namespace is none of those that were found. The kernel
// may hide the namespace of a process from root too. The tables of a namespace have numbers of
// their own, which it hides from nobody (Linux, proc_tgid_net_lookup in fs/proc/proc_net.c;
// proc_alloc_inum in fs/proc/generic.c). A namespace that it shows by now is found.
func (s *spaces) checkHidden() error {
	if len(s.hidden) == 0 {
		return nil
	}
	known := map[uint64]bool{}
	for _, way := range append(slices.Concat(s.found...), namespace{file: ownNamespace}) {
		if number, err := inode(s.guard.root, way.table()); err == nil {
			known[number] = true
		}
	}
	for _, way := range s.hidden {
		if number, err := inode(s.guard.root, way.table()); known[number] || way.ended(err) {
			continue
		}
		number, err := inode(s.guard.root, way.file)
		if err != nil {
			return err
		}
		s.put(number, way)
	}
	return nil
}

// table returns a table of the namespace of a process.
func (s namespace) table() string { return path.Join(path.Dir(path.Dir(s.file)), "net/dev") }

type linkReader struct {
	own   netns.NsHandle
	names map[int]string // of the interfaces of the own namespace
	found []Link
}

// dumped returns what a request of netlink lists. The kernel says so where something has changed
// between two parts of its answer, which on a busy host is common: then the request is repeated.
// The results of the last one count in any case: what they hold twice or not at all has come or
// gone within these milliseconds, as it may immediately after a complete answer.
func dumped[T any](request func() ([]T, error)) ([]T, error) {
	const most = 5
	for range most - 1 {
		if found, err := request(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	found, err := request()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = nil
	}
	return found, err
}

// here reads the own namespace.
func (l *linkReader) here() error {
	links, err := dumped(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("network interfaces: %w", err)
	}
	sockets, err := dumped(netlink.SocketDiagXDP)
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

// handleAt returns a handle of netlink's ROUTE, the only family that each kernel has, in another
// namespace. netlink.NewHandleAt would look up the namespace to return to by this process's id,
// which in the /proc of an outer PID namespace may be that of another process. A thread that cannot
// return ends with the goroutine that has locked it.
func handleAt(other, own netns.NsHandle) (h *netlink.Handle, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err = netns.Set(other); err == nil {
			h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		}
		if netns.Set(own) == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return h, err
}

// read reads another namespace. The ids that its interfaces have for other namespaces are its own.
func (l *linkReader) read(root host.Root, s namespace) error {
	fd, err := netns.GetFromPath(root.Path(s.file))
	if err != nil {
		return err
	}
	defer fd.Close() //nolint:errcheck // only read from
	h, err := handleAt(fd, l.own)
	if err != nil {
		return err
	}
	defer h.Close()
	id, err := h.GetNetNsIdByFd(int(l.own))
	if err != nil {
		return err
	}
	links, err := dumped(h.LinkList)
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
		if a.ParentDev != "" && a.ParentDevBus != "" {
			found.Device = path.Join("/sys/bus", a.ParentDevBus, "devices", a.ParentDev)
		}
		if found.Lower != "" || found.Device != "" {
			l.found = append(l.found, found)
		}
	}
	return nil
}

// lowerIndex returns the index of the interface below another one, or 0. A vxlan shows it in its
// own data (Linux, drivers/net/vxlan: IFLA_VXLAN_LINK).
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
		case l.Device != "":
			of.use, of.what = UseNetworkNamespace, fmt.Sprintf("%s in the network namespace of %s", l.Name, l.Namespace)
			target, err := g.device(path.Dir(l.Device), path.Base(l.Device))
			if err != nil {
				return err
			}
			functions, err := g.functions(cmp.Or(target, l.Device))
			if err != nil {
				return err
			}
			g.add(host.CodeNetwork, functions, false, "carries ", of, "")
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
	for _, upper := range slices.Sorted(maps.Keys(above)) {
		what, err := g.described(upper)
		if err != nil {
			return err
		}
		g.add(host.CodeNetwork, functions, false, "carries ", subject{UseUpperLink, above[upper], what}, ", through "+name)
	}
	return nil
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
