package guard

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

const netDir = "/sys/class/net"

// route is an entry of the kernel's routing tables.
type route struct {
	to     netip.Prefix
	direct bool   // without a gateway
	own    bool   // to an address of this host
	name   string // the interface
}

// fib is the content of /proc/net/fib_trie, the only file that shows all IPv4 routing tables.
type fib struct {
	known  bool
	tables []string // those with routes: "Main", "Local", "Id 10"
	local  []local
}

// local is an address of this host and the routing table that has it.
type local struct {
	table   string
	address netip.Addr
}

func (g *guard) readRoutes() error {
	v4, err4 := g.routes4()
	v6, err6 := g.routes6()
	g.routes = append(v4, v6...)
	data, err := g.root.ReadTable(fibTrie)
	if host.IsAbsent(err) {
		return errors.Join(err4, err6)
	}
	if err == nil {
		g.fib, err = parseFIB(string(data))
	}
	return errors.Join(err4, err6, host.OfFile(fibTrie, err))
}

// routeFile shows the IPv4 main table.
const routeFile = "/proc/net/route"

// routes4 reads the IPv4 main table. Its numbers are in host byte order (Linux,
// fib_route_seq_show in net/ipv4/fib_trie.c; proc_pid_net(5)).
func (g *guard) routes4() ([]route, error) {
	const name = routeFile
	lines, err := g.lines(name)
	if err != nil {
		return nil, err
	}
	var routes []route
	for _, r := range lines {
		if r[0] == "Iface" {
			continue
		}
		if len(r) < 8 {
			return nil, fmt.Errorf("%s: %d fields", name, len(r))
		}
		to, toErr := strconv.ParseUint(r[1], 16, 32)
		mask, maskErr := strconv.ParseUint(r[7], 16, 32)
		if toErr != nil || maskErr != nil {
			return nil, fmt.Errorf("%s: not a network: %q with mask %q", name, r[1], r[7])
		}
		var address, bits [4]byte
		binary.NativeEndian.PutUint32(address[:], uint32(to))
		binary.NativeEndian.PutUint32(bits[:], uint32(mask))
		ones := 0
		for _, b := range bits {
			for ; b&0x80 != 0; b <<= 1 {
				ones++
			}
		}
		network := netip.PrefixFrom(netip.AddrFrom4(address), ones)
		routes = append(routes, route{to: network, direct: strings.Trim(r[2], "0") == "", name: r[0]})
	}
	return routes, nil
}

// routes6 reads all IPv6 routing tables (Linux, rt6_info_route in net/ipv6/route.c). Routes of the
// loopback interface reject packets or lead to this host.
func (g *guard) routes6() ([]route, error) {
	const name = "/proc/net/ipv6_route"
	const rtfLocal = 0x80000000 // include/uapi/linux/ipv6_route.h
	lines, err := g.lines(name)
	if err != nil {
		return nil, err
	}
	var routes []route
	for _, r := range lines {
		if len(r) < 10 {
			return nil, fmt.Errorf("%s: %d fields", name, len(r))
		}
		address, err := hex.DecodeString(r[0])
		bits, bitsErr := strconv.ParseUint(r[1], 16, 8)
		if err != nil || bitsErr != nil || len(address) != 16 || bits > 128 {
			return nil, fmt.Errorf("%s: not a network: %q/%q", name, r[0], r[1])
		}
		flags, err := strconv.ParseUint(r[8], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: flags: not a hexadecimal number: %q", name, r[8])
		}
		to := netip.PrefixFrom(netip.AddrFrom16([16]byte(address)), int(bits))
		routes = append(routes, route{to, strings.Trim(r[4], "0") == "", flags&rtfLocal != 0, r[9]})
	}
	return routes, nil
}

const fibTrie = "/proc/net/fib_trie"

// parseFIB parses /proc/net/fib_trie (Linux, fib_trie_seq_show in net/ipv4/fib_trie.c). A line
// with a name starts a table; "|-- 192.0.2.2" starts a leaf, and each line below it has a length,
// a scope and a type: "/32 host LOCAL". Without additional rules, main and local are one table,
// which appears twice.
func parseFIB(text string) (fib, error) {
	f := fib{known: true}
	table, leaf := "", netip.Addr{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case line[0] != ' ':
			name, ok := strings.CutSuffix(strings.TrimSpace(line), ":")
			if !ok || name == "" {
				return f, fmt.Errorf("not a table: %q", strings.TrimSpace(line))
			}
			table, leaf = name, netip.Addr{}
			f.tables = append(f.tables, name)
		case table == "":
			return f, fmt.Errorf("line before the first table: %q", strings.TrimSpace(line))
		case fields[0] == "|--" && len(fields) == 2:
			var err error
			if leaf, err = netip.ParseAddr(fields[1]); err != nil {
				return f, err
			}
		case strings.HasPrefix(fields[0], "/") && len(fields) >= 3:
			own := fields[0] == "/32" && fields[2] == "LOCAL" && leaf.IsValid()
			if own && !slices.Contains(f.local, local{table, leaf}) {
				f.local = append(f.local, local{table, leaf})
			}
		}
	}
	return f, nil
}

// ruled reports whether IPv4 tables other than main and local have routes, as those of a VRF, so
// that the main table alone does not show where a packet goes.
func (f fib) ruled() bool {
	if !f.known {
		return true
	}
	return slices.ContainsFunc(f.tables, func(name string) bool { return name != "Main" && name != "Local" })
}

// ErrNamespace is the error of a process in another network namespace than process 1, where the
// interfaces of the host are not visible.
var ErrNamespace = host.WithHint(
	errors.New("not the network namespace of process 1, so the host's interfaces are not visible"),
	"run gpustack in the host's network namespace: nsenter --target 1 --net gpustack …")

// namespace returns ErrNamespace if this process is in another network namespace than process 1
// (network_namespaces(7)), as in a container. Users without permission to read the namespace of
// process 1 get no error: they cannot change anything either.
func (g *guard) namespace() error {
	const dir = "/proc/self/ns"
	own, err := g.link(dir, "net")
	if err != nil {
		return err
	}
	first, err := g.link("/proc/1/ns", "net")
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	if err == nil && own != "" && first != "" && own != first {
		err = fmt.Errorf("%s/net: %w", dir, ErrNamespace)
	}
	return err
}

// network adds the needs of the default routes and of the host's other addresses.
func (g *guard) network(running Running) error {
	if running.Addresses != nil {
		if err := g.namespace(); err != nil {
			return err
		}
	}
	var interfaces []string
	for _, r := range g.routes {
		if r.to.Bits() == 0 && r.name != "lo" {
			interfaces = append(interfaces, r.name)
		}
	}
	slices.Sort(interfaces)
	for _, name := range interfaces {
		g.reached[name] = true
	}
	if err := g.leads(slices.Compact(interfaces), subject{UseDefaultRoute, routeFile, "the default route"}); err != nil {
		return err
	}
	return g.addresses(running, interfaces)
}

// networkCode returns the code of the need for an interface that carries something.
func networkCode(of subject) host.Code {
	if of.use == UseSession {
		return host.CodeSSHSession
	}
	return host.CodeNetwork
}

// carries adds the functions of interfaces.
func (g *guard) carries(interfaces []string, of subject) error {
	for _, name := range interfaces {
		functions, err := g.functionsOf(name)
		if err != nil {
			return err
		}
		g.add(networkCode(of), functions, false, "carries ", of, ", through "+name)
	}
	return nil
}

// leads adds the functions of the interfaces of a route. For a virtual interface that sysfs links
// to no other, such as a tunnel or a port of Open vSwitch with DPDK, it adds the functions of every
// interface that may have carrier.
func (g *guard) leads(interfaces []string, of subject) error {
	if err := g.carries(interfaces, of); err != nil {
		return err
	}
	for _, name := range interfaces {
		functions, err := g.functionsOf(name)
		if err != nil {
			return err
		}
		target, err := g.device(netDir, name)
		if err != nil {
			return err
		}
		if len(functions) == 0 && name != "lo" && strings.Contains(target, "/virtual/") {
			if err := g.any(false, of, "the interface below "+name+" is not determined"); err != nil {
				return err
			}
		}
	}
	return nil
}

// functionsOf returns the functions of an interface, or none for an interface of another network
// namespace.
func (g *guard) functionsOf(name string) ([]pci.Address, error) {
	return g.functionsBelow(name, map[string]bool{})
}

func (g *guard) functionsBelow(name string, seen map[string]bool) ([]pci.Address, error) {
	if seen[name] {
		return nil, nil
	}
	seen[name] = true
	ok, err := g.exists(path.Join(netDir, name))
	if err != nil || !ok {
		return nil, err
	}
	target, err := g.device(netDir, name)
	if err != nil {
		return nil, err
	}
	addresses, err := g.functions(target)
	if err != nil || len(addresses) > 0 {
		return addresses, err
	}
	lower, err := g.lower(name)
	if err != nil {
		return nil, err
	}
	for _, l := range lower {
		more, err := g.functionsBelow(l, seen)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, more...)
	}
	return addresses, nil
}

// lower returns the interfaces below a virtual interface: those that the kernel links to it (bonds,
// bridges, VLANs), or, without such links, the ports of Open vSwitch for one of its internal
// interfaces, which have no DEVTYPE, unlike bridges and tunnels.
func (g *guard) lower(name string) ([]string, error) {
	entries, err := g.list(path.Join(netDir, name))
	if err != nil {
		return nil, err
	}
	var lower []string
	for _, e := range entries {
		if l, ok := strings.CutPrefix(e, "lower_"); ok {
			lower = append(lower, l)
		}
	}
	if lower != nil {
		return lower, nil
	}
	uevent, err := g.attribute(path.Join(netDir, name, "uevent"))
	if err != nil || name == "lo" || strings.HasPrefix(uevent, "DEVTYPE=") {
		return nil, err
	}
	// The other end of a TUN or TAP interface is a process: a guest, or Open vSwitch with DPDK.
	if ok, err := g.exists(path.Join(netDir, name, "tun_flags")); err != nil || ok {
		return nil, err
	}
	index, indexErr := g.attribute(path.Join(netDir, name, "ifindex"))
	linked, linkedErr := g.attribute(path.Join(netDir, name, "iflink"))
	if err := errors.Join(indexErr, linkedErr); err != nil {
		return nil, err
	}
	if linked != index {
		return g.parent(name, linked)
	}
	return g.switchPorts()
}

// infiniband is the type of IPoIB interfaces (ARPHRD_INFINIBAND in include/uapi/linux/if_arp.h).
const infiniband = "32"

// parent returns the parent of an IPoIB child interface, whose index is in iflink (Linux,
// ipoib_get_iflink in drivers/infiniband/ulp/ipoib/ipoib_main.c). For other types it returns none:
// the other end of a veth may be in another network namespace.
func (g *guard) parent(name, index string) ([]string, error) {
	kind, err := g.attribute(path.Join(netDir, name, "type"))
	if err != nil || kind != infiniband {
		return nil, err
	}
	names, err := g.interfaces()
	if err != nil {
		return nil, err
	}
	for _, other := range names {
		if i, err := g.attribute(path.Join(netDir, other, "ifindex")); err != nil || i == index {
			return []string{other}, err
		}
	}
	return nil, nil
}

// switchPorts returns the ports of Open vSwitch.
func (g *guard) switchPorts() ([]string, error) {
	if g.ports != nil {
		return *g.ports, nil
	}
	names, err := g.interfaces()
	if err != nil {
		return nil, err
	}
	var ports []string
	for _, port := range names {
		master, err := g.link(path.Join(netDir, port), "master")
		if err != nil {
			return nil, err
		}
		if path.Base(master) == "ovs-system" {
			ports = append(ports, port)
		}
	}
	g.ports = &ports
	return ports, nil
}

// interfaces lists the network interfaces.
func (g *guard) interfaces() ([]string, error) {
	all, err := g.list(netDir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		dir, err := g.root.OpenDir(path.Join(netDir, name))
		if errors.Is(err, unix.ENOTDIR) || host.IsAbsent(err) {
			continue // bonding_masters is a file, and an interface can be removed at any time
		}
		if err != nil {
			return nil, err
		}
		dir.Close() //nolint:errcheck // only read from
		names = append(names, name)
	}
	return names, nil
}

// linkState is the state of a network interface.
type linkState int

const (
	linkUnknown linkState = iota // not in this tree
	linkDown                     // set down
	linkUp                       // set up, without carrier
	linkCarrier
)

// state returns the state of an interface (Linux, Documentation/ABI/testing/sysfs-class-net;
// IFF_UP in include/uapi/linux/if.h). Its attribute carrier can be read only while it is up.
func (g *guard) state(name string) (linkState, error) {
	text, err := g.attribute(path.Join(netDir, name, "flags"))
	if errors.Is(err, unix.EINVAL) {
		return linkDown, nil // just removed: netdev_show in net/core/net-sysfs.c
	}
	if err != nil || text == "" {
		return linkUnknown, err
	}
	flags, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return linkUnknown, fmt.Errorf("%s/%s/flags: not a number: %q", netDir, name, text)
	}
	if flags&unix.IFF_UP == 0 {
		return linkDown, nil
	}
	carrier, err := g.attribute(path.Join(netDir, name, "carrier"))
	switch {
	case errors.Is(err, unix.EINVAL):
		return linkDown, nil // just set down or removed
	case err != nil:
		return linkUnknown, err
	case carrier == "1":
		return linkCarrier, nil
	case carrier == "0":
		return linkUp, nil
	}
	return linkUnknown, nil
}

// ReadAddresses returns the addresses of each interface of the running machine by rtnetlink(7). No
// file shows which interface has an IPv4 address.
func ReadAddresses() (map[string][]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	addresses := map[string][]netip.Addr{}
	for _, i := range interfaces {
		networks, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", i.Name, err)
		}
		for _, n := range networks {
			if prefix, err := netip.ParsePrefix(n.String()); err == nil {
				addresses[i.Name] = append(addresses[i.Name], prefix.Addr())
			}
		}
	}
	return addresses, nil
}

// global reports whether hosts beyond the local link can reach an address.
func global(a netip.Addr) bool {
	return a.IsValid() && !a.IsLoopback() && !a.IsLinkLocalUnicast() && !a.IsUnspecified() && !a.IsMulticast()
}

// addresses adds the functions of every interface that is up and has a global address, because no
// file shows all routes of a VRF or of policy routing. It leaves out the interfaces in routed,
// which carry a default route of the main table and have been added already.
//
// Without rtnetlink, the direct routes of the main table show which interface has an IPv4 address.
// An address without such a route may belong to any interface that has carrier and no other
// address.
func (g *guard) addresses(running Running, routed []string) error {
	names, err := g.interfaces()
	if err != nil {
		return err
	}
	owned, lost := running.Addresses, ""
	if owned == nil {
		if owned, lost, err = g.derivedAddresses(); err != nil {
			return err
		}
	}
	for _, name := range names {
		if slices.Contains(routed, name) {
			continue // reached
		}
		state, err := g.state(name)
		if err != nil {
			return err
		}
		var addresses []netip.Addr
		for _, a := range owned[name] {
			if global(a) {
				addresses = append(addresses, a)
			}
		}
		at := path.Join(netDir, name)
		g.reached[name] = state != linkDown && len(addresses) > 0
		switch {
		case state == linkDown:
		case len(addresses) == 1:
			err = g.carries([]string{name}, subject{UseAddress, at, "the address " + addresses[0].String()})
		case len(addresses) > 1:
			what := fmt.Sprintf("the address %s and %d more", addresses[0], len(addresses)-1)
			err = g.carries([]string{name}, subject{UseAddress, at, what})
		case state == linkCarrier && lost != "":
			var functions []pci.Address
			functions, err = g.functionsOf(name)
			const why = ": the interface with that address is not determined"
			g.add(host.CodeNetwork, functions, false, "may carry ", subject{UseAddress, fibTrie, lost}, ", through "+name+why)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// derivedAddresses returns the addresses of each interface as far as files show them, and a
// description of the first address whose interface they do not show, or "".
func (g *guard) derivedAddresses() (owned map[string][]netip.Addr, lost string, err error) {
	owned = map[string][]netip.Addr{}
	if !g.fib.known {
		lost = "an address of the host"
	}
	for _, l := range g.fib.local {
		var names []string
		inMain := l.table == "Main" || l.table == "Local"
		for _, r := range g.routes {
			if inMain && r.direct && r.to.Bits() > 0 && r.to.Contains(l.address) {
				names = append(names, r.name)
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if !slices.Contains(owned[name], l.address) {
				owned[name] = append(owned[name], l.address)
			}
		}
		if len(names) == 0 && lost == "" && global(l.address) {
			lost = "the address " + l.address.String()
		}
	}
	// Linux, if6_seq_show in net/ipv6/addrconf.c: address, index, length, scope, flags, name.
	const name = "/proc/net/if_inet6"
	lines, err := g.lines(name)
	if err != nil {
		return nil, "", err
	}
	for _, l := range lines {
		if len(l) != 6 {
			return nil, "", fmt.Errorf("%s: %d fields", name, len(l))
		}
		address, err := hex.DecodeString(l[0])
		if err != nil || len(address) != 16 {
			return nil, "", fmt.Errorf("%s: not an address: %q", name, l[0])
		}
		owned[l[5]] = append(owned[l[5]], netip.AddrFrom16([16]byte(address)))
	}
	return owned, lost, nil
}

// served adds the functions of the interfaces that reach a server. If those are not determined, it
// adds the functions of every interface that has carrier or whose state is unknown.
func (g *guard) served(s server, absolute bool, of subject) error {
	interfaces := []string{s.through}
	if s.through == "" {
		interfaces = g.reaches(s.address)
	}
	determined := len(interfaces) > 0
	for _, name := range interfaces {
		functions, err := g.functionsOf(name)
		if err != nil {
			return err
		}
		// sysfs does not link a tunnel to the interface that it uses.
		determined = determined && len(functions) > 0
		g.add(networkCode(of), functions, absolute, "carries ", of, ", through "+name)
	}
	if determined {
		return nil
	}
	return g.any(absolute, of, "the interface that reaches its server is not determined")
}

// carrier is an interface that has carrier or whose state is unknown, with its own functions.
type carrier struct {
	name      string
	functions []pci.Address
}

// any adds the functions of every interface that has carrier or whose state is unknown.
func (g *guard) any(absolute bool, of subject, why string) error {
	if g.linked == nil {
		names, err := g.interfaces()
		if err != nil {
			return err
		}
		var linked []carrier
		for _, name := range names {
			state, err := g.state(name)
			if err != nil {
				return err
			}
			if state != linkCarrier && state != linkUnknown {
				continue
			}
			target, err := g.device(netDir, name)
			if err != nil {
				return err
			}
			functions, err := g.functions(target)
			if err != nil {
				return err
			}
			linked = append(linked, carrier{name, functions})
		}
		g.linked = &linked
	}
	for _, c := range *g.linked {
		g.add(networkCode(of), c.functions, absolute, "may carry ", of, ", through "+c.name+": "+why)
	}
	return nil
}

// reaches returns the interfaces that may reach a server, or none if they are not determined: no
// file shows the rules that select a routing table. For IPv4 it returns the longest match of the
// main table, unless another table has routes; for IPv6, whose tables appear as one, every match.
func (g *guard) reaches(a netip.Addr) []string {
	if a.Zone() != "" {
		return []string{a.Zone()}
	}
	a = a.Unmap()
	neighbour := a.Is4() && a.IsLinkLocalUnicast() // routed by the main table
	if !global(a) && !neighbour || a.Is4() && g.fib.ruled() {
		return nil
	}
	var matches []route
	for _, r := range g.routes {
		if r.to.Contains(a) {
			if r.own {
				return nil // an address of this host, which may forward to another server
			}
			if r.name != "lo" {
				matches = append(matches, r)
			}
		}
	}
	if slices.ContainsFunc(g.fib.local, func(l local) bool { return l.address == a }) {
		return nil
	}
	longest := 0
	for _, r := range matches {
		if a.Is4() {
			longest = max(longest, r.to.Bits())
		}
	}
	var names []string
	for _, r := range matches {
		if r.to.Bits() >= longest {
			names = append(names, r.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
