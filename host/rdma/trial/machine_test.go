package trial_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/engine"
	"gpustack/host/hosttest"
	"gpustack/host/rdma"
	"gpustack/host/rdma/trial"
)

// rxe lays the tree of a real software adapter, with rping.
func rxe(t *testing.T) host.Root {
	t.Helper()
	root := hosttest.RDMA(t, "../../../integration/testdata/rdma/debian12-rxe.txtar")
	put(t, root, "usr/bin/rping", "")
	return root
}

// put writes a file below a root.
func put(t *testing.T, root host.Root, name, text string) {
	t.Helper()
	file := root.Path("/" + name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	hosttest.NoError(t, err)
}

// TestObserve: the ports that a request names, or all that prevents their test.
func TestObserve(t *testing.T) {
	t.Parallel()
	const (
		noRping  = "rping is not installed"
		noEngine = "neither podman, docker nor nerdctl is installed"
	)
	remove := func(name string) func(*testing.T, host.Root) {
		return func(t *testing.T, root host.Root) {
			hosttest.NoError(t, os.RemoveAll(root.Path("/"+name)))
		}
	}
	for name, test := range map[string]struct {
		change  func(*testing.T, host.Root)
		request trial.Request
		want    string // the targets, or the error
	}{
		"all":                 {nil, trial.Request{}, "rxe0 port 1 at 192.168.77.1"},
		"by name":             {nil, trial.Request{Device: "rxe0"}, "rxe0 port 1 at 192.168.77.1"},
		"one port":            {nil, trial.Request{Device: "rxe0/1"}, "rxe0 port 1 at 192.168.77.1"},
		"no such port":        {nil, trial.Request{Device: "rxe0/2"}, `rxe0: port "2" is no port of this device`},
		"no such name":        {nil, trial.Request{Device: "mlx5_7"}, "mlx5_7 is no RDMA device of this machine"},
		"no such function":    {nil, trial.Request{Device: "0000:0c:00.0"}, "0000:0c:00.0: no such PCI function"},
		"no rping":            {remove("usr/bin/rping"), trial.Request{}, noRping},
		"no rping, no device": {remove("usr/bin/rping"), trial.Request{Device: "mlx5_7"}, "mlx5_7 is no RDMA device of this machine\n" + noRping},
		"no image":            {nil, trial.Request{Image: "localhost/rdma"}, noEngine},
		"no image, no device": {nil, trial.Request{Image: "localhost/rdma", Device: "mlx5_7"}, "mlx5_7 is no RDMA device of this machine\n" + noEngine},
		"no stack":            {remove("sys"), trial.Request{}, "this machine has no RDMA device"},
		"a port that is down": {func(t *testing.T, root host.Root) {
			put(t, root, "sys/devices/virtual/infiniband/rxe0/ports/1/state", "1: DOWN\n")
		}, trial.Request{}, "rxe0 port 1 is not ACTIVE: its state is DOWN (LinkUp)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := rxe(t)
			if test.change != nil {
				test.change(t, root)
			}
			m, err := trial.Observe(t.Context(), root, test.request)
			var got []string
			for _, x := range m.Targets {
				got = append(got, x.String()+" at "+x.Addresses[0].IP.String())
			}
			if err != nil {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// machine returns a machine with ports of these addresses, and an rping that is a script.
func machine(t *testing.T, server, client string, addresses ...string) trial.Machine {
	t.Helper()
	r := played(t, server, client)
	m := trial.Machine{Root: r.Root, Runner: r, Programs: trial.Rping(), Request: trial.Request{
		Options: trial.Options{Port: 7174, Count: 3, Size: 64, Timeout: 20 * time.Second}}}
	for i, text := range addresses {
		a := trial.Address{IP: netip.MustParseAddr(text), Netdev: "eth9"}
		m.Targets = append(m.Targets, trial.Target{Adapter: rdma.Adapter{Name: "gpustack-none"}, Port: rdma.Port{Number: i + 1}, Addresses: []trial.Address{a}})
	}
	return m
}

// TestMachineLoopback: all ports are tested one after the other, and one that fails decides.
func TestMachineLoopback(t *testing.T) {
	t.Parallel()
	fails := `case $* in *"-a 192.0.2.2 "*) echo "cma event RDMA_CM_EVENT_UNREACHABLE, error -110" >&2; exit 255 ;; esac
`
	m := machine(t, "rm -f $0.done\n"+serves, fails+pings, "192.0.2.1", "192.0.2.3")
	var begun []string
	begins := func(x trial.Test) { begun = append(begun, x.Target.String()+" at "+x.Source.IP.String()) }
	tests, err := m.Loopback(t.Context(), begins)
	if err != nil || len(tests) != 2 || trial.VerdictOf(tests) != trial.Pass {
		t.Errorf("%+v, %v", tests, err)
	}
	if want := []string{"gpustack-none port 1 at 192.0.2.1", "gpustack-none port 2 at 192.0.2.3"}; !slices.Equal(begun, want) {
		t.Errorf("%q, want %q", begun, want)
	}
	m.Targets[0].Addresses[0].IP = netip.MustParseAddr("192.0.2.2")
	tests, err = m.Loopback(t.Context(), begins)
	if err != nil || len(tests) != 2 || tests[0].Verdict != trial.Fail || tests[1].Verdict != trial.Pass || trial.VerdictOf(tests) != trial.Fail {
		t.Errorf("%+v, %v", tests, err)
	}
}

// TestMachineListen: a listener has one port, and its peer gets the command before it waits.
func TestMachineListen(t *testing.T) {
	t.Parallel()
	m := machine(t, ": > $0.done\n"+serves, "", "192.0.2.1")
	command := ""
	r, err := m.Listen(t.Context(), func(x trial.Test) { command = x.PeerCommand() })
	if err != nil || trial.VerdictOf(r) != trial.Pass || command != "gpustack rdma test --peer 192.0.2.1 --port 7174 --iterations 3 --size 64" {
		t.Errorf("%q, %+v, %v", command, r, err)
	}
	m = machine(t, "", "", "192.0.2.1", "192.0.2.2", "192.0.2.3")
	_, err = m.Listen(t.Context(), func(trial.Test) { t.Error("begins at one of several ports") })
	want := "--listen: several ports can be tested: gpustack-none/1 (192.0.2.1), gpustack-none/2 (192.0.2.2) and gpustack-none/3 (192.0.2.3)"
	if err == nil || err.Error() != want || !strings.Contains(hintOf(err), "gpustack rdma test --listen --device gpustack-none/1") {
		t.Errorf("%v (%s), want %q", err, hintOf(err), want)
	}
}

func hintOf(err error) string {
	if h, ok := err.(interface{ Hint() string }); ok {
		return h.Hint()
	}
	return ""
}

// TestRoute: by which port and address a peer is tested, by the routes of this machine to itself.
func TestRoute(t *testing.T) {
	t.Parallel()
	const other = "--peer 127.0.0.1: the route to 127.0.0.1 leaves by the address 127.0.0.1, which no RDMA port that can be tested has"
	for name, test := range map[string]struct {
		ports        []string
		device, peer string
		want         string // way or error
	}{
		"the port of the route":        {[]string{"192.0.2.1", "127.0.0.1"}, "", "127.0.0.1", "gpustack-none port 2, 127.0.0.1 to 127.0.0.1"},
		"no port of the route":         {[]string{"192.0.2.1"}, "", "127.0.0.1", other},
		"several ports of the request": {[]string{"192.0.2.1", "192.0.2.2"}, "gpustack-none", "127.0.0.1", other},
		"the port of the request": {[]string{"192.0.2.1"}, "gpustack-none", "127.0.0.1",
			"gpustack-none port 1, 192.0.2.1 to 127.0.0.1: the route to 127.0.0.1 leaves by the address 127.0.0.1, not by gpustack-none port 1"},
		"another family":   {[]string{"2001:db8::1"}, "gpustack-none", "127.0.0.1", "--peer 127.0.0.1: gpustack-none port 1 has no address of this family: 127.0.0.1"},
		"a mapped address": {[]string{"127.0.0.1"}, "", "::ffff:127.0.0.1", "gpustack-none port 1, 127.0.0.1 to 127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, "", "", test.ports...)
			m.Device = test.device
			way, err := m.Route(t.Context(), test.peer)
			got := way.Target.String() + ", " + way.Source.IP.String() + " to " + way.Peer.String()
			if way.Warning != "" {
				got += ": " + way.Warning
			}
			if err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestMachinePeer: the client is started with both addresses of the way.
func TestMachinePeer(t *testing.T) {
	t.Parallel()
	m := machine(t, "", `[ "$*" = "-c -a 192.0.2.7 -I 192.0.2.1 -V -C 3 -v -p 7174 -S 64" ] || exit 1
n=0; while [ $n -lt 3 ]; do echo "ping data: rdma-ping-$n: "; n=$((n+1)); done`, "192.0.2.1")
	begun := false
	way := trial.Way{Target: m.Targets[0], Source: m.Targets[0].Addresses[0], Peer: netip.MustParseAddr("192.0.2.7")}
	r, err := m.Peer(t.Context(), way, func(trial.Test) { begun = true })
	if err != nil || trial.VerdictOf(r) != trial.Pass || !begun {
		t.Errorf("%+v, %v, begun: %v", r, err, begun)
	}
}

// TestMachineContainer: the containers of each test get the adapter of its port.
func TestMachineContainer(t *testing.T) {
	t.Parallel()
	m := machine(t, "", "", "192.0.2.1", "192.0.2.2")
	hosttest.Engine(t, m.Runner.Dirs[0], "podman", "exit 1")
	m.Container = &engine.Container{Image: "localhost/rdma", Engine: "podman"}
	for i, name := range []string{"uverbs0", "uverbs1"} {
		m.Targets[i].Adapter.Verbs = &rdma.Node{Name: name}
	}
	var started []string
	if _, err := m.Loopback(t.Context(), func(x trial.Test) { started = append(started, x.Container.String()) }); err != nil {
		t.Error(err)
	}
	const cm = " --device /dev/infiniband/rdma_cm:/dev/infiniband/rdma_cm:rw localhost/rdma"
	want := []string{
		"podman run --device /dev/infiniband/uverbs0:/dev/infiniband/uverbs0:rw" + cm,
		"podman run --device /dev/infiniband/uverbs1:/dev/infiniband/uverbs1:rw" + cm,
	}
	if !slices.Equal(started, want) {
		t.Errorf("%q, want %q", started, want)
	}
}
