package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gpustack/host"
)

// sshSession is what depends on the interfaces of the operator's session.
func sshSession() subject {
	return subject{UseSession, "/proc/self/environ", "this ssh session"}
}

// session adds the functions that carry the operator's ssh session.
func (g *guard) session(running Running) error {
	words := strings.Fields(running.Session)
	if len(words) == 0 {
		return nil
	}
	// sshd is connected through pipes or a socket that is not an IP socket (OpenSSH,
	// ssh_remote_ipaddr in packet.c).
	if words[0] == "UNKNOWN" {
		return g.any(false, sshSession(), "its client has no known address")
	}
	var ends [2]netip.Addr
	for i, at := range []int{0, 2} {
		var err error
		if len(words) == 4 {
			ends[i], err = netip.ParseAddr(words[at])
		}
		if err != nil || len(words) != 4 {
			return fmt.Errorf("SSH_CONNECTION: not two addresses with ports: %q", running.Session)
		}
	}
	return g.leads(g.ways(ends[0], ends[1], running.Addresses), sshSession())
}

// ways returns the interfaces that reach a client and the interfaces that have the host's own
// address of the connection, server.
func (g *guard) ways(client, server netip.Addr, addresses map[string][]netip.Addr) []string {
	var names []string
	for _, a := range []netip.Addr{client, server} {
		if a.Zone() != "" {
			names = append(names, a.Zone())
		}
	}
	client, server = client.WithZone("").Unmap(), server.WithZone("").Unmap()
	if client.IsLoopback() {
		return nil // routed by the local table, not by the default route
	}
	longest := -1
	for _, r := range g.routes {
		if r.to.Contains(client) {
			longest = max(longest, r.to.Bits())
		}
	}
	for _, r := range g.routes {
		reached := r.to.Contains(client) && r.to.Bits() == longest
		if r.name != "lo" && (reached || r.direct && r.to.Bits() > 0 && r.to.Contains(server)) {
			names = append(names, r.name)
		}
	}
	for name, own := range addresses {
		if name != "lo" && slices.Contains(own, server) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// UnknownSession returns the warning of a session whose interface [Needs] cannot protect, because
// reading it failed. Commands that take effect at the next boot warn only: the session ends with
// the reboot, and its interface has an address.
func UnknownSession(err error) string {
	return fmt.Sprintf("cannot determine the interface of this ssh session: %v", err)
}

// Connection returns SSH_CONNECTION of the ssh session that a process belongs to, or "" if it
// belongs to none. It reads the environments of the process and its ancestors, because sudo does
// not pass the variable on. The child of an ancestor that ends meanwhile belongs to another one.
func Connection(root host.Root, pid int) (string, error) {
	for child := 0; pid > 0; {
		connection, parent, err := connectionOf(root, pid)
		if child > 0 && host.HasEnded(err) {
			now, childErr := parentOf(root, child)
			if childErr != nil || now == pid {
				return "", errors.Join(err, childErr)
			}
			pid = now
			continue
		}
		if err != nil || connection != "" {
			return connection, err
		}
		child, pid = pid, parent
	}
	return "", nil
}

// connectionOf returns SSH_CONNECTION of a process, and its parent if it has none.
func connectionOf(root host.Root, pid int) (connection string, parent int, err error) {
	file := host.ProcessFile(pid, "environ")
	environ, err := root.ReadFile(file)
	if err != nil {
		return "", 0, err
	}
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if value, ok := strings.CutPrefix(variable, "SSH_CONNECTION="); ok {
			return value, 0, nil
		}
	}
	parent, err = parentOf(root, pid)
	return "", parent, err
}

func parentOf(root host.Root, pid int) (int, error) {
	file := host.ProcessFile(pid, "stat")
	text, err := root.ReadFile(file)
	var stat host.ProcessStat
	if err == nil {
		stat, err = host.ParseProcessStat(string(text))
	}
	if err != nil {
		return 0, host.OfFile(file, err)
	}
	return stat.Parent, nil
}
