package guard

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// SessionNeeds returns the functions that an ssh session goes through. connection is
// what the server has told it in SSH_CONNECTION: the client's address and port, and
// its own (ssh(1)). "" is for none.
func SessionNeeds(root host.Root, connection string) ([]Need, error) {
	words := strings.Fields(connection)
	if len(words) == 0 {
		return nil, nil
	}
	var ends [2]netip.Addr
	for i, at := range []int{0, 2} {
		var err error
		if len(words) == 4 {
			ends[i], err = netip.ParseAddr(words[at])
		}
		if err != nil || len(words) != 4 {
			return nil, fmt.Errorf("SSH_CONNECTION: not two addresses with ports: %q", connection)
		}
	}
	g := guard{root: root}
	names, err := g.ways(ends[0], ends[1])
	if err != nil {
		return nil, err
	}
	err = g.carries(names, "this ssh session")
	return g.needs, err
}

// carries adds the cards that interfaces lie on.
func (g *guard) carries(interfaces []string, what string) error {
	for _, name := range interfaces {
		ok, err := g.root.Exists(path.Join(netDir, name))
		if err != nil {
			return g.cause(path.Join(netDir, name), err)
		}
		if !ok {
			continue // of another network namespace
		}
		cards, err := g.below(netDir, name, map[string]bool{}, g.lower)
		if err != nil {
			return err
		}
		g.add(cards, false, "carries %s, through %s", what, name)
	}
	return nil
}

// route is a line of the kernel's tables.
type route struct {
	to     netip.Prefix
	direct bool // without a gateway
	name   string
}

// ways returns the interfaces by which a client is reached, and those that the host's
// own address belongs to.
func (g *guard) ways(client, server netip.Addr) ([]string, error) {
	var names []string
	for _, a := range []netip.Addr{client, server} {
		if a.Zone() != "" {
			names = append(names, a.Zone())
		}
	}
	client, server = client.WithZone("").Unmap(), server.WithZone("").Unmap()
	v4, err := g.routes4()
	if err != nil {
		return nil, err
	}
	v6, err := g.routes6()
	if err != nil {
		return nil, err
	}
	longest := -1
	for _, r := range append(v4, v6...) {
		if r.to.Contains(client) {
			longest = max(longest, r.to.Bits())
		}
	}
	for _, r := range append(v4, v6...) {
		reached := r.to.Contains(client) && r.to.Bits() == longest
		if r.name != "lo" && (reached || r.direct && r.to.Bits() > 0 && r.to.Contains(server)) {
			names = append(names, r.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// routes4 reads the routes of IPv4: each number is written as it lies in memory
// (Linux, fib_route_seq_show in net/ipv4/fib_trie.c; proc_pid_net(5)).
func (g *guard) routes4() ([]route, error) {
	const name = "/proc/net/route"
	lines, err := g.lines(name)
	if err != nil {
		return nil, err
	}
	var routes []route
	for _, r := range lines[min(1, len(lines)):] {
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
		routes = append(routes, route{netip.PrefixFrom(netip.AddrFrom4(address), ones), r[2] == "00000000", r[0]})
	}
	return routes, nil
}

// routes6 reads the routes of IPv6 (Linux, rt6_info_route in net/ipv6/route.c).
func (g *guard) routes6() ([]route, error) {
	const name = "/proc/net/ipv6_route"
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
		routes = append(routes, route{netip.PrefixFrom(netip.AddrFrom16([16]byte(address)), int(bits)), strings.Trim(r[4], "0") == "", r[9]})
	}
	return routes, nil
}

// Connection returns the SSH_CONNECTION of the session that a process belongs to, by
// the environments of it and its parents: sudo passes none on. It is "" for none.
func Connection(root host.Root, pid int) (string, error) {
	for pid > 0 {
		dir := path.Join("/proc", strconv.Itoa(pid))
		environ, err := root.ReadFile(path.Join(dir, "environ"))
		if err != nil {
			return "", fmt.Errorf("%s/environ: %w", dir, host.Cause(err))
		}
		for variable := range strings.SplitSeq(string(environ), "\x00") {
			if value, ok := strings.CutPrefix(variable, "SSH_CONNECTION="); ok {
				return value, nil
			}
		}
		stat, err := root.ReadFile(path.Join(dir, "stat"))
		if err != nil {
			return "", fmt.Errorf("%s/stat: %w", dir, host.Cause(err))
		}
		// The name, in brackets, may hold any character (proc_pid_stat(5)): state and
		// parent come after it.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 {
			return "", fmt.Errorf("%s/stat: has no parent: %.60q", dir, stat)
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return "", fmt.Errorf("%s/stat: its parent: %w", dir, err)
		}
	}
	return "", nil
}
