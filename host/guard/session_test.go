package guard_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// ways are the machine's routes: 192.0.2.0/24 directly through eth0, 10.0.0.0/8 directly through a
// VLAN on a bond, all else through a gateway on eth0, and 2001:db8::/32 through eth1.
const ways = `-- proc/net/route --
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0
eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0
bond0.7 0000000A 00000000 0001 0 0 0 000000FF 0 0 0
-- proc/net/ipv6_route --
20010db8000000000000000000000000 20 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth1
fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth1
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo
`

const loopback = "symlink sys/class/net/lo -> ../../devices/virtual/net/lo\nmkdir sys/devices/virtual/net/lo\n"

func TestSessionNeeds(t *testing.T) {
	const eth0, eth1 = "0000:03:00.0 carries this ssh session, through eth0\n", "0000:04:00.0 carries this ssh session, through eth1\n"
	const bond0, bond1 = "0000:03:00.0 carries this ssh session, through bond0.7\n", "0000:04:00.0 carries this ssh session, through bond0.7\n"
	for _, test := range []struct{ name, connection, want string }{
		{"none", "", ""},
		{"from a neighbour", "192.0.2.7 4711 192.0.2.1 22", eth0},
		{"from behind the gateway", "198.51.100.7 4711 192.0.2.1 22", eth0},
		{"by a VLAN on a bond, not the default route", "10.1.2.3 4711 10.0.0.1 22", bond0 + bond1},
		{"in by one, back by the other", "198.51.100.7 4711 10.0.0.1 22", bond0 + eth0 + bond1},
		{"mapped into IPv6", "::ffff:198.51.100.7 4711 ::ffff:10.0.0.1 22", bond0 + eth0 + bond1},
		{"IPv6", "2001:db8::7 4711 2001:db8::1 22", eth1},
		{"a link of IPv6", "fe80::7%eth0 4711 fe80::1%eth0 22", eth0 + eth1},
		{"from the machine itself", "::1 4711 ::1 22", ""},
		{"not over a socket of IP", "UNKNOWN 65535 UNKNOWN 65535",
			"0000:03:00.0 may carry this ssh session, through eth0: its client has no known address\n" +
				"0000:04:00.0 may carry this ssh session, through eth1: its client has no known address\n"},
		{"nowhere", "2001:db9::7 4711 2001:db9::1 22", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			needs, err := guard.Needs(hosttest.Lay(t, loopback+machine[1:]+ways), nil, guard.Running{Session: test.connection})
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, n := range needs {
				if strings.Contains(n.Reason, "ssh session") {
					fmt.Fprintf(&got, "%s %s\n", n.Address, n.Reason)
				}
			}
			if diff := cmp.Diff(test.want, got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSessionUnclear: a malformed address or route is an error.
func TestSessionUnclear(t *testing.T) {
	const connection = "192.0.2.7 4711 192.0.2.1 22"
	for _, test := range []struct{ name, tree, connection, want string }{
		{"not two addresses", "", "here 1 there 2", `SSH_CONNECTION: not two addresses with ports: "here 1 there 2"`},
		{"half", "", "192.0.2.7 4711", `SSH_CONNECTION: not two addresses with ports: "192.0.2.7 4711"`},
		{"a route of few words", "-- proc/net/route --\nIface\neth0 0\n", connection, "/proc/net/route: 2 fields"},
		{"not a network", "-- proc/net/route --\nIface\neth0 x 0 0 0 0 0 0\n", connection, `/proc/net/route: not a network: "x" with mask "0"`},
		{"a route of IPv6", "-- proc/net/ipv6_route --\n20 81 0 0 0 0 0 0 0 eth0\n", connection, `/proc/net/ipv6_route: not a network: "20"/"81"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := guard.Needs(hosttest.Lay(t, "mkdir etc\n"+test.tree), nil, guard.Running{Session: test.connection}); fmt.Sprint(err) != test.want {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestConnection: sudo and a shell do not pass SSH_CONNECTION on; the child of sshd has it.
func TestConnection(t *testing.T) {
	root := hosttest.Lay(t, `base64 proc/30/environ
-- proc/10/environ --
HOME=/root
-- proc/10/stat --
10 (sudo) S 20 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9
-- proc/20/environ --
-- proc/20/stat --
20 (a) b) S 30 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9
-- proc/30/environ --
SE9NRT0vAFNTSF9DT05ORUNUSU9OPTE5Mi4wLjIuNyA0NzExIDE5Mi4wLjIuMSAyMgBYPXkA
-- proc/40/environ --
-- proc/40/stat --
40 (systemd) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9
-- proc/50/stat --
`)
	for pid, want := range map[int]string{
		10: "192.0.2.7 4711 192.0.2.1 22 <nil>",
		40: " <nil>",
		50: " /proc/50/environ: no such file or directory",
	} {
		got, err := guard.Connection(root, pid)
		if text := fmt.Sprint(got, " ", err); text != want {
			t.Errorf("%d: %s", pid, text)
		}
		const warning = "cannot determine the interface of this ssh session: /proc/50/environ: no such file or directory"
		if pid == 50 && guard.UnknownSession(err) != warning {
			t.Errorf("%q, want %q", guard.UnknownSession(err), warning)
		}
	}
}

// ending removes a process once a file has been read.
type ending struct {
	counting
	file string
	then func()
}

func (e ending) File(name string, _ []byte, _ error) {
	if times := e.add(name); name == e.file && times == 1 {
		e.then()
	}
}

// TestConnectionEnded: an ancestor ends while it is read. The process then belongs to another one.
func TestConnectionEnded(t *testing.T) {
	stat := func(pid, parent int) string {
		return fmt.Sprintf("-- proc/%d/stat --\n%[1]d (sh) S %d 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n", pid, parent)
	}
	const environ = "-- proc/10/environ --\nSSH_CONNECTION=192.0.2.1 1 192.0.2.2 22\x00\n-- proc/11/environ --\n-- proc/12/environ --\n"
	tree := stat(10, 1) + stat(11, 10) + stat(12, 11) + strings.ReplaceAll(environ, "\x00\n", "\n")
	for _, test := range []struct {
		name   string
		parent int // of process 12 after 11 has ended
		err    bool
	}{
		{"the process has another parent", 10, false},
		{"nothing shows another parent", 11, true},
	} {
		root := hosttest.Lay(t, tree)
		e := ending{newCounting(), "proc/12/stat", func() {
			text := strings.Replace(stat(12, test.parent), "-- proc/12/stat --\n", "", 1)
			if err := errors.Join(os.RemoveAll(root.Path("/proc/11")), os.WriteFile(root.Path("/proc/12/stat"), []byte(text), 0o600)); err != nil {
				t.Error(err)
			}
		}}
		got, err := guard.Connection(root.Recorded(e), 12)
		if (err != nil) != test.err || !test.err && strings.TrimSpace(got) != "192.0.2.1 1 192.0.2.2 22" {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
}
