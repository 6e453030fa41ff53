package trial_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/rdma"
	"gpustack/host/rdma/trial"
)

// sides of a played rping: $1 is -s or -c. A connection is a file.
const (
	both = `for a; do [ "$prev" = -C ] && count=$a; prev=$a; done
`
	serves = `: > $0.up; while [ ! -e $0.done ]; do sleep 0.01; done
n=0; while [ $n -lt 3 ]; do echo "server ping data: rdma-ping-$n: ABC"; n=$((n+1)); done; echo "server DISCONNECT EVENT..." >&2`
	pings = `[ -e $0.up ] || { echo "cma event RDMA_CM_EVENT_REJECTED, error 8" >&2; exit 255; }
n=0; while [ $n -lt $count ]; do echo "ping data: rdma-ping-$n: ABC"; n=$((n+1)); done
echo "client DISCONNECT EVENT..." >&2; : > $0.done`
)

// played returns a runner with an rping that is a script.
func played(t *testing.T, server, client string) host.Runner {
	t.Helper()
	root := hosttest.Root(t, "/")
	dir := t.TempDir()
	script := "#!/bin/sh\n" + both + "case $1 in\n-s)\n" + server + "\n;;\n-c)\n" + client + "\n;;\nesac\n"
	hosttest.Program(t, dir, "rping", script)
	return host.Runner{Root: root, Dirs: []string{dir}}
}

// newTest returns a test of a device that this machine does not have, and so without counters.
func newTest(r host.Runner) trial.Test {
	address := trial.Address{IP: netip.MustParseAddr("192.168.77.1"), Netdev: "eth9"}
	return trial.Test{
		Options: trial.Options{Port: 7174, Count: 3, Size: 64, Timeout: 20 * time.Second}, Programs: trial.Rping(), Runner: r, Root: r.Root, Source: address,
		Target: trial.Target{Adapter: rdma.Adapter{Name: "gpustack-none"}, Port: rdma.Port{Number: 1}, Addresses: []trial.Address{address}},
	}
}

// TestLoopback: the client waits for the listener, and the iterations that rping printed count.
func TestLoopback(t *testing.T) {
	t.Parallel()
	r, err := newTest(played(t, "sleep 0.3\n"+serves, pings)).Loopback(t.Context())
	if err != nil || r.Verdict != trial.Pass || r.Iterations != 3 || r.Bytes != 192 || r.Seconds == nil || len(r.Causes) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRpingRace: rping's thread of events may find its channel closed when the test is done, and
// then ends rping as if it had failed. What counts is whether the iterations are complete.
func TestRpingRace(t *testing.T) {
	t.Parallel()
	race := "\necho 'rdma_get_cm_event: Bad file descriptor' >&2; exit 255"
	for _, test := range []struct {
		name, server, client string
		want                 trial.Verdict
		cause                string
	}{
		{"client", serves, pings + race, trial.Pass, ""},
		{"both", serves + race, pings + race, trial.Pass, ""},
		{"too few", serves, strings.Replace(pings, "-lt $count", "-lt 2", 1) + race, trial.Fail, "Bad file descriptor"},
		{"too few, with a cause", serves, strings.Replace(pings, "-lt $count", "-lt 2", 1) + "\necho 'data mismatch!' >&2" + race, trial.Fail, "differ"},
		{"enough, with a cause", serves, pings + "\necho 'data mismatch!' >&2" + race, trial.Fail, "differ"},
		{"another channel", serves, pings + strings.Replace(race, "Bad file descriptor", "Input/output error", 1), trial.Fail, "Input/output error"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, err := newTest(played(t, test.server, test.client)).Loopback(t.Context())
			if err != nil || r.Verdict != test.want || (test.cause == "") != (len(r.Causes) == 0) {
				t.Fatalf("%+v, %v", r, err)
			}
			if test.cause != "" && !strings.Contains(r.Causes[0].Cause, test.cause) {
				t.Errorf("%+v", r.Causes)
			}
		})
	}
	t.Run("listener", func(t *testing.T) {
		t.Parallel()
		served := strings.TrimPrefix(serves, ": > $0.up; while [ ! -e $0.done ]; do sleep 0.01; done\n")
		r, err := newTest(played(t, served+race, "")).Listen(t.Context())
		if err != nil || r.Verdict != trial.Pass {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestFailures: each failure has its cause and a remedy. rping exits with 0 if the other side
// disconnects early.
func TestFailures(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, says, cause, remedy string }{
		{"no device", "No RDMA devices were detected", "no usable RDMA device", "gpustack rdma check"},
		{"provider", "libibverbs: Warning: couldn't load driver 'librxe-rdmav34.so': librxe-rdmav34.so: cannot open shared object file", "provider library", "ibverbs-providers"},
		{"abi", "libibverbs: Warning: Driver rxe does not support the kernel ABI of 9 (supports 1 to 2) for device /sys/x",
			"not of one release", "ibverbs-providers"},
		{"class abi", "libibverbs: Fatal: kernel ABI version 7 doesn't match library version 6.", "not of one release", "ibverbs-providers"},
		{"no rdma_cm", "failed to create RDMA CM event channel: No such file or directory", "is missing or cannot be opened", "modprobe rdma_ucm"},
		{"rdma_cm denied, librdmacm 44", "failed to create RDMA CM event channel: No such file or directory", "is missing or cannot be opened", "ls -l /dev/infiniband/rdma_cm"},
		{"rdma_cm denied", "failed to create RDMA CM event channel: Operation not permitted", "cannot be opened", "container"},
		{"memlock", "libibverbs: Warning: RLIMIT_MEMLOCK is 16384 bytes.\n    This will severely limit memory registrations.\nrecv_buf reg_mr failed", "RLIMIT_MEMLOCK", "ulimit -l"},
		{"memlock alone", "libibverbs: Warning: RLIMIT_MEMLOCK is 16384 bytes.", "RLIMIT_MEMLOCK", "ulimit -l"},
		{"pingpong's words", "Couldn't register MR", "RLIMIT_MEMLOCK", "ulimit -l"},
		{"queue pair", "rdma_create_qp: Cannot allocate memory", "refused a queue pair", "ulimit -l"},
		{"namespace", "rdma_bind_addr: Cannot assign requested address", "network namespace", "network namespace"},
		{"port taken", "rdma_bind_addr: Address already in use", "another program listens", "--port"},
		{"no RDMA there", "rdma_bind_addr: No such device", "cannot be used", "ip address"},
		{"no route", "rdma_resolve_addr: Network is unreachable", "no route", "ip route get"},
		{"no host", "cma event RDMA_CM_EVENT_ADDR_ERROR, error -113", "no route", "rdma scan --gids"},
		{"silent", "cma event RDMA_CM_EVENT_ADDR_ERROR, error -110", "no machine answers", "ping PEER"},
		{"unresolved", "cma event RDMA_CM_EVENT_ADDR_ERROR, error -22", "no route", "ip route get"},
		{"no path", "cma event RDMA_CM_EVENT_ROUTE_ERROR, error -22", "subnet manager", "sminfo"},
		{"unreachable", "cma event RDMA_CM_EVENT_UNREACHABLE, error -110", "does not answer", "4791"},
		{"no listener", "cma event RDMA_CM_EVENT_REJECTED, error 8", "no program listens", "--listen"},
		{"rejected", "cma event RDMA_CM_EVENT_REJECTED, error 28", "rejects the connection", "--listen"},
		{"not completed", "cma event RDMA_CM_EVENT_CONNECT_ERROR, error -110", "does not answer", "4791"},
		{"data", "data mismatch!", "differ", "cable"},
		{"retries", "cq completion failed status 12\nwait for RDMA_WRITE_ADV state 11", "acknowledge", "4791"},
		{"second namespace", "cq completion failed status 2\ncq completion failed status 5", "other side has ended", "other side"},
		{"flushed", "cq completion failed status 5", "other side has ended", "other side"},
		{"perftest, no device", " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device",
			"no usable RDMA device", "gpustack rdma check"},
		{"perftest, no listener", "Unexpected CM event bl blka 8\n Unable to perform rdma_client function\n Unable to init the socket connection",
			"no program listens", "--perf"},
		{"perftest, unreachable", "Unexpected CM event bl blka 7\n Unable to perform rdma_client function", "does not answer", "4791"},
		{"perftest, no path", "unexpected CM event 3", "subnet manager", "sminfo"},
		{"perftest, unresolved", "Received 10 times ADDR_ERROR\n Unable to perform rdma_client function", "no route", "ip route get"},
		{"perftest, rejected", "RDMA CM event error:\nEvent: RDMA_CM_EVENT_REJECTED; error: -111.\n\nERRNO: No such file or directory.\n" +
			"Failed to handle RDMA CM event.", "rejects the connection", "--listen"},
		{"perftest, port taken", " rdma_bind_addr failed\n Unable to perform rdma_server function", "another program listens", "--port"},
		{"perftest, no rdma_cm", " rdma_create_event_channel failed\n Unable to create RDMA_CM resources", "is missing or cannot be opened",
			"modprobe rdma_ucm"},
		{"perftest, memlock", "Couldn't allocate MR\nfailed to create mr\n Couldn't create IB resources", "RLIMIT_MEMLOCK", "ulimit -l"},
		{"perftest, queue pair", "Unable to create QP.\nFailed to create QP.", "refused a queue pair", "ulimit -l"},
		{"perftest, retries", " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0", "acknowledge", "4791"},
		{"perftest, lost", "ethernet_read_keys: Couldn't read remote address\n Unable to read to socket/rdma_cm\n Failed to exchange data between " +
			"server and clients", "other side has ended", "other side"},
		{"unknown", "something else", "rping -c -a 192.168.77.2 -I 192.168.77.1 -V -C 3 -v -p 7174 -S 64: exit status 255: something else", "gpustack rdma check"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			play := newTest(played(t, "exit 1", "cat >&2 <<'END'\n"+test.says+"\nEND\nexit 255"))
			r, err := play.Peer(t.Context(), netip.MustParseAddr("192.168.77.2"))
			if err != nil || r.Verdict != trial.Fail || len(r.Causes) != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			c := r.Causes[0]
			if !strings.Contains(c.Cause, test.cause) || !strings.Contains(c.Remedy.String(), test.remedy) || test.name != "unknown" && !strings.Contains(test.says, c.Words) {
				t.Errorf("%+v", c)
			}
			if test.name != "unknown" && c.Words == "" {
				t.Error("the words are not quoted")
			}
		})
	}
	t.Run("exit status 0", func(t *testing.T) {
		t.Parallel()
		play := newTest(played(t, "", `echo "ping data: rdma-ping-0: ABC"; echo "client DISCONNECT EVENT..." >&2`))
		r, err := play.Peer(t.Context(), netip.MustParseAddr("192.168.77.2"))
		if err != nil || r.Verdict != trial.Fail || r.Iterations != 1 || !strings.Contains(r.Causes[0].Cause, "ended after 1 of 3 iterations") {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("not started", func(t *testing.T) {
		t.Parallel()
		play := newTest(played(t, "", ""))
		hosttest.Program(t, play.Runner.Dirs[0], "rping", "#!/no/such/shell\n")
		if r, err := play.Peer(t.Context(), netip.MustParseAddr("192.168.77.2")); err == nil || !strings.Contains(err.Error(), "no such file") {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("the listener's words", func(t *testing.T) {
		t.Parallel()
		play := newTest(played(t, "echo 'recv_buf reg_mr failed' >&2; exit 1", `echo "cma event RDMA_CM_EVENT_REJECTED, error 8" >&2; exit 255`))
		r, err := play.Loopback(t.Context())
		if err != nil || r.Verdict != trial.Fail || !slices.ContainsFunc(r.Causes, func(c trial.Cause) bool { return c.Words == "recv_buf reg_mr failed" }) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestTimeLimit: no side outlives the limit, or the end of its context.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	const hangs = "trap '' INT TERM; echo $$ > $0.pid; sleep 600"
	ended := func(t *testing.T, r host.Runner) {
		t.Helper()
		pid := hosttest.Read(t, filepath.Join(r.Dirs[0], "rping.pid"))
		for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat("/proc/" + strings.TrimSpace(pid)); errors.Is(err, os.ErrNotExist) {
				return
			}
		}
		t.Error("rping still runs")
	}
	peer := netip.MustParseAddr("192.168.77.2")
	for name, test := range map[string]struct {
		run    func(trial.Test) (trial.Result, error)
		causes string
	}{
		"listen":   {func(p trial.Test) (trial.Result, error) { return p.Listen(t.Context()) }, "no peer completed a test within 300ms"},
		"peer":     {func(p trial.Test) (trial.Result, error) { return p.Peer(t.Context(), peer) }, "did not end within 300ms"},
		"loopback": {func(p trial.Test) (trial.Result, error) { return p.Loopback(t.Context()) }, "did not end within 300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play := newTest(played(t, hangs, hangs))
			play.Timeout = 300 * time.Millisecond
			r, err := test.run(play)
			if err != nil || r.Verdict != trial.Fail || len(r.Causes) != 1 || !strings.Contains(r.Causes[0].Cause, test.causes) {
				t.Errorf("%+v, %v", r, err)
			}
			ended(t, play.Runner)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		play := newTest(played(t, hangs, hangs))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var begun time.Time
		go func() { // once rping runs
			for ctx.Err() == nil {
				if text, err := os.ReadFile(filepath.Join(play.Runner.Dirs[0], "rping.pid")); err == nil && strings.HasSuffix(string(text), "\n") {
					begun = time.Now()
					cancel()
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		if r, err := play.Listen(ctx); err != nil || r.Verdict != trial.Fail || time.Since(begun) > 15*time.Second {
			t.Errorf("%+v, %v", r, err)
		}
		ended(t, play.Runner)
	})
}

// TestOptions: all errors of options at once.
func TestOptions(t *testing.T) {
	if err := (trial.Options{Port: 7174, Count: 10, Size: 64, Timeout: time.Second}).Check(); err != nil {
		t.Error(err)
	}
	err := trial.Options{Port: 70000, Size: 16}.Check()
	want := "--port 70000: must be 1 to 65535\n--iterations 0: must be 1 to 100000\n--size 16: must be 32 to 65535\n--wait 0s: must be more than 0"
	if err == nil || err.Error() != want {
		t.Error(cmp.Diff(want, err.Error()))
	}
	if err := (trial.Options{Port: 1, Count: trial.MaxCount, Size: trial.MaxSize, Timeout: 1}).Check(); err == nil {
		t.Error("accepts more data than it reads")
	}
}

// TestReady: a machine without rping.
func TestReady(t *testing.T) {
	r := played(t, "", "")
	if err := trial.Rping().Ready(r); err != nil {
		t.Error(err)
	}
	r.Dirs = []string{t.TempDir()}
	if err := trial.Rping().Ready(r); !errors.Is(err, trial.ErrNoRping) {
		t.Error(err)
	}
}

// port returns an adapter with one port.
func port(name string, set func(*rdma.Adapter, *rdma.Port)) rdma.Adapter {
	a := rdma.Adapter{Name: name, NodeType: "CA", Ports: []rdma.Port{{Number: 1, State: "ACTIVE", PhysState: "LinkUp", LinkLayer: rdma.LinkEthernet}}}
	set(&a, &a.Ports[0])
	return a
}

// TestTargets: which ports can be tested by which addresses, and why the others cannot.
func TestTargets(t *testing.T) {
	gid := func(ip, netdev string) rdma.GID {
		return rdma.GID{GID: netip.MustParseAddr(ip), Netdev: netdev, Type: "RoCE v2"}
	}
	address := hosttest.Address(t, "0000:0c:00.0")
	adapters := []rdma.Adapter{
		port("roce", func(a *rdma.Adapter, p *rdma.Port) {
			a.Address = &address
			p.GIDs = []rdma.GID{gid("fe80::1", "eth1"), gid("2001:db8::1", "eth1"), gid("::ffff:192.0.2.1", "eth1"), gid("::ffff:192.0.2.1", "eth1"), gid("::ffff:198.51.100.1", "eth1.7")}
		}),
		port("local", func(_ *rdma.Adapter, p *rdma.Port) { p.GIDs = []rdma.GID{gid("fe80::1", "eth2")} }),
		port("unread", func(_ *rdma.Adapter, p *rdma.Port) {
			p.GIDsErr = fmt.Errorf("/sys/x/gids: %w: input/output error", rdma.ErrGIDs)
		}),
		port("down", func(_ *rdma.Adapter, p *rdma.Port) { p.State, p.PhysState = "DOWN", "Polling" }),
		port("ib", func(_ *rdma.Adapter, p *rdma.Port) {
			p.LinkLayer, p.IPoIB = rdma.LinkInfiniBand, []rdma.IPoIB{{Name: "ib0"}}
		}),
		port("bare", func(_ *rdma.Adapter, p *rdma.Port) { p.LinkLayer = rdma.LinkInfiniBand }),
		port("numberless", func(_ *rdma.Adapter, p *rdma.Port) {
			p.LinkLayer, p.IPoIB = rdma.LinkInfiniBand, []rdma.IPoIB{{Name: "ib1"}}
		}),
		port("iwarp", func(a *rdma.Adapter, p *rdma.Port) { a.NodeType, a.Netdevs = "RNIC", []string{"eth3"} }),
		port("gone", func(a *rdma.Adapter, _ *rdma.Port) { a.NodeType, a.Netdevs = "RNIC", []string{"eth4"} }),
		{Address: &address, Driver: "vfio-pci"},
		{Address: &address},
	}
	of := map[string][]netip.Addr{"ib0": {netip.MustParseAddr("10.0.0.1")}, "ib1": nil, "eth3": {netip.MustParseAddr("10.0.0.3")}}
	targets, skipped := trial.Targets(adapters, func(name string) ([]netip.Addr, error) {
		if addresses, ok := of[name]; ok {
			return addresses, nil
		}
		return nil, errors.New("no such network interface")
	})
	var lines []string
	for _, x := range targets {
		line := x.String() + ":"
		for _, a := range x.Addresses {
			line += " " + a.IP.String() + "%" + a.Netdev
		}
		lines = append(lines, line)
	}
	for _, s := range skipped {
		lines = append(lines, s.Err.Error())
	}
	want := []string{
		"roce port 1: 192.0.2.1%eth1 198.51.100.1%eth1.7 2001:db8::1%eth1",
		"ib port 1: 10.0.0.1%ib0",
		"iwarp port 1: 10.0.0.3%eth3",
		"local port 1 has no IP address, and rdma_cm needs one",
		"unread port 1 /sys/x/gids: GID table cannot be read: input/output error",
		"down port 1 is not ACTIVE: its state is DOWN (Polling)",
		"bare port 1 has no IPoIB interface, and rdma_cm needs an IP address",
		"numberless port 1 has no IP address, and rdma_cm needs one",
		"gone port 1 eth4: no such network interface",
		"0000:0c:00.0 has no RDMA device: its driver is vfio-pci",
		"0000:0c:00.0 has no RDMA device: it is bound to no driver",
	}
	hosttest.Equal(t, want, lines)
	if x, a, ok := trial.At(targets, netip.MustParseAddr("198.51.100.1")); !ok || x.Adapter.Name != "roce" || a.Netdev != "eth1.7" {
		t.Errorf("%v, %v", x, a)
	}
	if _, _, ok := trial.At(targets, netip.MustParseAddr("198.51.100.2")); ok {
		t.Error("finds an address that no port has")
	}
	if _, err := targets[1].Like(netip.MustParseAddr("2001:db8::2")); !errors.Is(err, trial.ErrFamily) {
		t.Error(err)
	}
	for selector, want := range map[string]int{"": len(adapters), "roce": 1, "0000:0c:00.0": 3, "0c:00.0": 3} {
		found, err := trial.Select(rdma.Stack{Adapters: adapters}, selector)
		if err != nil || len(found) != want {
			t.Errorf("%q: %d, %v", selector, len(found), err)
		}
	}
	if _, err := trial.Select(rdma.Stack{Adapters: adapters}, "mlx5_9"); !errors.Is(err, trial.ErrUnknownDevice) {
		t.Error(err)
	}
	if _, err := trial.Select(rdma.Stack{Adapters: []rdma.Adapter{{Name: "mlx5_0", Parts: []string{"smi1"}}}}, "smi1"); err == nil ||
		!strings.Contains(err.Error(), "smi1 is a device of a part of") {
		t.Error(err)
	}
	if found, err := trial.Select(rdma.Stack{Adapters: adapters}, "roce/1"); err != nil || len(found) != 1 || len(found[0].Ports) != 1 {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := trial.Select(rdma.Stack{Adapters: adapters}, "roce/2"); !errors.Is(err, trial.ErrUnknownPort) || len(adapters[0].Ports) != 1 {
		t.Error(err)
	}
	if _, err := trial.Select(rdma.Stack{}, ""); !errors.Is(err, trial.ErrNoDevices) {
		t.Error(err)
	}
}

// TestCounters: counters that moved, of which errors are a warning; a port whose packets did not
// move has not carried the test.
func TestCounters(t *testing.T) {
	t.Parallel()
	root := hosttest.Lay(t, `
-- sys/class/infiniband/gpustack0/ports/1/hw_counters/lifespan --
10
-- sys/class/infiniband/gpustack0/ports/1/hw_counters/out_of_sequence --
4
-- sys/class/infiniband/gpustack0/ports/1/hw_counters/req_cqe_flush_error --
4
-- sys/class/infiniband/gpustack0/ports/1/counters/port_xmit_packets --
100
-- sys/class/infiniband/gpustack0/ports/1/counters/port_xmit_wait --
N/A (no PMA)
-- sys/class/infiniband/gpustack0/ports/2/counters/port_xmit_packets --
100
-- sys/class/infiniband/gpustack0/ports/3/counters/symbol_error --
0
`)
	for number, test := range map[int]struct {
		moves   string
		want    []trial.Counter
		carried host.Bool
		warning string
	}{
		1: {`cd $sys/1; echo 5 > hw_counters/out_of_sequence; echo 9 > hw_counters/req_cqe_flush_error; echo 11 > hw_counters/lifespan; echo 140 > counters/port_xmit_packets`,
			[]trial.Counter{{"out_of_sequence", 1, true}, {"port_xmit_packets", 40, false}, {"req_cqe_flush_error", 5, false}}, host.Yes,
			"gpustack0 port 1: the error counter out_of_sequence rose by 1 during the test"},
		2: {"", []trial.Counter{}, host.No, "gpustack0 port 2: its counters of packets did not move: the test has used another port"},
		3: {"", []trial.Counter{}, host.Unknown, ""},
	} {
		play := newTest(played(t, "", "sys="+root.Path("/sys/class/infiniband/gpustack0/ports")+"\n"+test.moves+"\n"+`n=0; while [ $n -lt 3 ]; do echo "ping data: rdma-ping-$n: "; n=$((n+1)); done`))
		play.Target.Adapter.Name, play.Target.Port.Number, play.Root = "gpustack0", number, root
		r, err := play.Peer(t.Context(), netip.MustParseAddr("192.168.77.2"))
		if err != nil || r.Verdict != trial.Pass {
			t.Fatalf("port %d: %+v, %v", number, r, err)
		}
		hosttest.EqualIn(t, fmt.Sprintf("port %d", number), test.want, r.Counters)
		hosttest.EqualIn(t, fmt.Sprintf("port %d", number), test.carried, r.Carried)
		hosttest.EqualIn(t, fmt.Sprintf("port %d", number), test.warning, strings.Join(r.Warnings, "\n"))
	}
}
