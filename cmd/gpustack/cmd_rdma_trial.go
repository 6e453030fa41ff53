package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/ping"
)

// Time limits of rdma test.
const (
	pingTimeout   = 30 * time.Second
	listenTimeout = 10 * time.Minute
)

func newRDMATestCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "test",
		Usage: "move data through RDMA ports, on this machine or to another one, with rping",
		Description: `
Runs rping of rdma-core, which connects two sides by the RDMA connection manager and moves
data by RDMA READ and RDMA WRITE, and compares the data. Without --listen and --peer, both
sides are on this machine, and each port that can be tested is tested, or those of --device.
For a test between two machines, run --listen on the one first; it prints the command for
the other one.

The IP addresses decide which ports a test uses, and the output shows them: a RoCE port has
those of its GID table, an InfiniBand port those of its IPoIB interface. A port must be
ACTIVE. Counters of the port that moved during the test are listed; a counter of errors that
moved is a warning. A failure is explained by the words of rping.

RoCE v2 uses UDP port 4791, which firewalls between the machines must permit. --port is the
port of the connection manager, which is neither TCP nor UDP. Adapters may loop packets back
without counting them; a test between two machines proves the way through the port.

With --container, each side is a container of an image that podman or docker has on this machine
and that has rping. It has no root, no capability, the machine's network, and the adapter's
devices: by the CDI device that gives them, such as one of 'gpustack container prepare', or else
by the nodes. What its limit of locked memory is, the engine decides. The other machine of a
test uses containers or not, as --container says there.

The test runs on this machine alone: --root must be /. It changes nothing. rping is killed at
the time limit, by Ctrl-C, and if gpustack is killed.

EXAMPLES
  gpustack rdma test
  gpustack rdma test --device 0000:0c:00.0
  gpustack rdma test --listen --device mlx5_0 --timeout 5m
  gpustack rdma test --peer 192.0.2.7 --count 1000 --size 65535
  gpustack rdma test --container localhost/rdma:latest

EXIT STATUS
  0  all tested ports pass
  1  error or refusal: no port could be tested
  2  a test failed
  130  interrupted: rping was killed`,
		Flags: []cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
			&cli.StringFlag{Name: "device", Usage: "test the adapter at `ADDRESS`, or of this name; NAME/PORT is one port"},
			&cli.BoolFlag{Name: "listen", Usage: "wait for the test of one other machine"},
			&cli.StringFlag{Name: "peer", Usage: "test the way to `HOST`, which listens"},
			&cli.StringFlag{Name: "container", Usage: "run rping in containers of `IMAGE`, without privileges"},
			&cli.DurationFlag{Name: "timeout", Usage: "end each test after `TIME` (default 30s, with --listen 10m)"},
			&cli.IntFlag{Name: "port", Value: 7174, Usage: "port `NUMBER` of the connection manager, the same on both machines"},
			&cli.IntFlag{Name: "count", Value: 10, Usage: "`NUMBER` of iterations, each there and back, the same on both machines"},
			&cli.IntFlag{Name: "size", Value: 64, Usage: "`NUMBER` of bytes of an iteration, the same on both machines"},
		},
		Action: action(u, parseRDMATest, runRDMATest),
	}
}

type rdmaTestOptions struct {
	format, device, peer string
	container            string // the name of an image, or ""
	listen               bool
	ping.Options
}

func parseRDMATest(c *cli.Context, f *faults) rdmaTestOptions {
	f.arguments(c)
	f.exclude(c, "listen", "peer")
	opts := rdmaTestOptions{
		format: f.choice(c, "output"), device: c.String("device"), peer: c.String("peer"), container: c.String("container"), listen: c.Bool("listen"),
		Options: ping.Options{Port: c.Int("port"), Count: c.Int("count"), Size: c.Int("size"), Timeout: c.Duration("timeout")},
	}
	if !c.IsSet("timeout") {
		opts.Timeout = pingTimeout
		if opts.listen {
			opts.Timeout = listenTimeout
		}
	}
	if filepath.Clean(c.String("root")) != "/" {
		f.add(&usageError{"--root " + quoted(c.String("root")) + ": rdma test moves data through the adapters of the running machine, and needs --root /",
			"run it on the machine itself; gpustack rdma check reads the files of a tree"})
	}
	for _, name := range []string{"device", "peer"} {
		if c.IsSet(name) && c.String(name) == "" {
			f.add(&usageError{"--" + name + ": the value is missing", f.seeHelp()})
		}
	}
	if c.IsSet("container") {
		f.checkImage(opts.container)
	}
	if err := opts.Check(); err != nil {
		for _, e := range split(err) {
			f.add(&usageError{e.Error(), f.seeHelp()})
		}
	}
	return opts
}

// rdmaTestReport is the output of rdma test (docs/json.md).
type rdmaTestReport struct {
	Schema      int             `json:"schema"`
	Host        *string         `json:"host"`
	Version     string          `json:"version"`
	Time        time.Time       `json:"time"`
	Sides       string          `json:"sides"`
	Peer        *netip.Addr     `json:"peer"`
	PeerCommand *string         `json:"peer_command"`
	ServicePort int             `json:"service_port"`
	Iterations  int             `json:"requested_iterations"`
	Size        int             `json:"iteration_bytes"`
	Timeout     float64         `json:"timeout_seconds"`
	Containers  *testContainers `json:"containers"`
	Verdict     *ping.Verdict   `json:"verdict"`
	Tests       []portTest      `json:"tests"`
	Untested    []untested      `json:"untested"`
	Warnings    []string        `json:"warnings"`
}

// Values of rdmaTestReport.Sides.
const (
	sidesLoopback = "loopback"
	sidesListen   = "listen"
	sidesPeer     = "peer"
)

// portTest is the test of a port.
type portTest struct {
	Address    *pci.Address   `json:"address"`
	Name       string         `json:"name"`
	Port       int            `json:"port"`
	LinkLayer  string         `json:"link_layer"`
	Netdev     string         `json:"netdev"`
	IP         netip.Addr     `json:"ip"`
	Verdict    *ping.Verdict  `json:"verdict"`
	Elapsed    *float64       `json:"elapsed_seconds"`
	Iterations int            `json:"iterations"`
	Bytes      int64          `json:"bytes"`
	Counters   []ping.Counter `json:"counters"`
	Carried    *bool          `json:"packets_counted"`
	Causes     []ping.Cause   `json:"causes"`
	Devices    []string       `json:"container_devices"`

	title string
}

// untested is a port that could not be tested, or an adapter without one.
type untested struct {
	Address *pci.Address `json:"address"`
	Name    string       `json:"name"`
	Port    *int         `json:"port"`
	Reason  string       `json:"reason"`
	Hint    *string      `json:"hint"`
}

func runRDMATest(ctx context.Context, u *ui, opts rdmaTestOptions) error {
	root, err := host.NewRoot("/")
	if err != nil {
		return err
	}
	runner := host.Runner{Root: root}
	devices, stack, err := readStack(root, rdma.Options{GIDs: true})
	if errors.Is(err, pci.ErrNoPCI) {
		err = ping.ErrNoDevices
	}
	var adapters []rdma.Adapter
	if err == nil {
		adapters, err = ping.Select(stack, opts.device)
	}
	if opts.device != "" && errors.Is(err, ping.ErrUnknownDevice) {
		if address, notAddress := pci.ParseAddress(opts.device); notAddress == nil {
			err = noAdapter(address, devices)
		}
	}
	var container *ping.Container
	var folders cdi.Folders
	if opts.container == "" {
		err = errors.Join(err, ping.Ready(runner), memlock(opts.Options))
	} else {
		found, noImage := ping.FindImage(ctx, runner, opts.container)
		var unreadable error
		folders, unreadable = cdi.Read(root)
		container, err = &found, errors.Join(err, noImage, unreadable)
	}
	if err != nil {
		return err
	}
	targets, skipped := ping.Targets(adapters, netdevAddresses)
	report := rdmaTestReport{
		Schema: 1, Host: host.ReadHostname(root), Version: programVersion(), Time: time.Now().UTC().Truncate(time.Second), Sides: sidesLoopback,
		ServicePort: opts.Port, Iterations: opts.Count, Size: opts.Size, Timeout: opts.Timeout.Seconds(),
		Tests: []portTest{}, Untested: []untested{}, Warnings: append([]string{}, stack.Warnings...),
	}
	var refused []error
	for _, s := range skipped {
		refused = append(refused, s.Err)
		report.Untested = append(report.Untested, untested{s.Adapter.Address, s.Adapter.Name, s.Port, s.Err.Error(), optional(hint(s.Err))})
	}
	if len(targets) == 0 {
		return errors.Join(refused...)
	}
	t := rdmaTest{u: u, opts: opts, root: root, runner: runner, targets: targets, report: &report, container: container, folders: folders}
	if container != nil {
		report.Containers = &testContainers{container.Image, container.Engine}
	}
	switch {
	case opts.listen:
		err = t.listen(ctx)
	case opts.peer != "":
		err = t.peer(ctx)
	default:
		err = t.loopback(ctx)
	}
	if err != nil {
		return err
	}
	return t.end()
}

// memlock returns an error if this process may not lock the memory of a test. CAP_IPC_LOCK lifts
// the limit (capabilities(7)).
func memlock(o ping.Options) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("getrlimit(RLIMIT_MEMLOCK): %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0 {
		return nil
	}
	return ping.CheckMemlock(limit.Cur, o)
}

// netdevAddresses returns the IP addresses of a network interface of this machine.
func netdevAddresses(name string) ([]netip.Addr, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all, err := i.Addrs()
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, err
		}
		found = append(found, prefix.Addr())
	}
	return found, nil
}

// rdmaTest is a run of rdma test.
type rdmaTest struct {
	u       *ui
	opts    rdmaTestOptions
	root    host.Root
	runner  host.Runner
	targets []ping.Target
	report  *rdmaTestReport

	container *ping.Container // nil: rping runs on the machine
	folders   cdi.Folders     // in which its devices are
}

func (t rdmaTest) of(target ping.Target, source ping.Address) ping.Test {
	test := ping.Test{Options: t.opts.Options, Runner: t.runner, Root: t.root, Target: target, Source: source}
	if t.container != nil {
		container := *t.container
		container.Devices = containerDevices(t.folders, target)
		test.Container = &container
	}
	return test
}

// add adds the result of a test to the report.
func (t rdmaTest) add(test ping.Test, r ping.Result) {
	a, p := test.Target.Adapter, test.Target.Port
	title := a.Name
	if a.Address != nil {
		title = a.Title() + " (" + a.Name + ")"
	}
	t.report.Tests = append(t.report.Tests, portTest{
		Address: a.Address, Name: a.Name, Port: p.Number, LinkLayer: p.LinkLayer, Netdev: test.Source.Netdev, IP: test.Source.IP,
		Verdict: &r.Verdict, Elapsed: r.Seconds, Iterations: r.Iterations, Bytes: r.Bytes, Counters: r.Counters, Carried: r.Carried, Causes: r.Causes,
		title: fmt.Sprintf("%s port %d", title, p.Number),
	})
	if test.Container != nil {
		t.report.Tests[len(t.report.Tests)-1].Devices = test.Container.Devices
	}
	t.report.Warnings = append(t.report.Warnings, r.Warnings...)
	if t.report.Sides != sidesLoopback && r.Verdict == ping.Pass && r.Carried != nil && !*r.Carried {
		t.report.Warnings = append(t.report.Warnings, test.Target.String()+": its counters of packets did not move: the test has used another port")
	}
}

// loopback tests all ports one after the other.
func (t rdmaTest) loopback(ctx context.Context) error {
	for _, target := range t.targets {
		source := target.Addresses[0]
		t.u.waits("testing %s at %s", target, source.IP)
		test := t.of(target, source)
		r, err := test.Loopback(ctx)
		if err != nil {
			return err
		}
		t.add(test, r)
	}
	return nil
}

// listen waits for a peer at one port.
func (t rdmaTest) listen(ctx context.Context) error {
	if len(t.targets) > 1 {
		var names []string
		for _, target := range t.targets {
			names = append(names, fmt.Sprintf("%s/%d (%s)", target.Adapter.Name, target.Port.Number, target.Addresses[0].IP))
		}
		return &usageError{"--listen: several ports can be tested: " + listed(names, "and"),
			fmt.Sprintf("choose one: gpustack rdma test --listen --device %s/%d", t.targets[0].Adapter.Name, t.targets[0].Port.Number)}
	}
	target := t.targets[0]
	test := t.of(target, target.Addresses[0])
	command := test.PeerCommand()
	t.report.Sides, t.report.PeerCommand = sidesListen, &command
	t.u.note("%s listens at %s for %s; on the other machine run: %s", target, test.Source.IP, t.opts.Timeout, command)
	if target.Port.LinkLayer == rdma.LinkEthernet {
		t.u.note("%s", ping.RoCEFirewall)
	}
	r, err := test.Listen(ctx)
	if err == nil {
		t.add(test, r)
	}
	return err
}

// peer tests the way to a listener. The kernel's route to it decides which port is used, or
// --device.
func (t rdmaTest) peer(ctx context.Context) error {
	target, source, peer, err := t.route(ctx)
	if err != nil {
		return err
	}
	t.report.Sides, t.report.Peer = sidesPeer, &peer
	t.u.waits("testing %s at %s to %s", target, source.IP, peer)
	test := t.of(target, source)
	r, err := test.Peer(ctx, peer)
	if err == nil {
		t.add(test, r)
	}
	return err
}

// route returns the port and the address by which the peer is tested.
func (t rdmaTest) route(ctx context.Context) (target ping.Target, source ping.Address, peer netip.Addr, err error) {
	fail := func(err error) (ping.Target, ping.Address, netip.Addr, error) {
		return ping.Target{}, ping.Address{}, netip.Addr{}, fmt.Errorf("--peer %s: %w", t.opts.peer, err)
	}
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.opts.peer)
	if err != nil {
		return fail(host.WithHint(err, "give the IP address of the peer's RDMA port: gpustack rdma scan --gids, there"))
	}
	var errs []error
	for _, ip := range found {
		ip = ip.Unmap()
		local, err := sourceOf(ctx, ip, t.opts.Port)
		if err != nil {
			errs = append(errs, host.WithHint(err, "ip route get "+ip.String()))
			continue
		}
		if target, source, ok := ping.At(t.targets, local); ok {
			return target, source, ip, nil
		}
		if t.opts.device == "" || len(t.targets) > 1 {
			errs = append(errs, host.WithHint(fmt.Errorf("the route to %s leaves by the address %s, which no RDMA port that can be tested has", ip, local),
				"use an address of the RDMA network, or choose the port: --device ADDRESS"))
			continue
		}
		source, err := t.targets[0].Like(ip)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		warning := fmt.Sprintf("the route to %s leaves by the address %s, not by %s", ip, local, t.targets[0])
		t.report.Warnings = append(t.report.Warnings, warning)
		return t.targets[0], source, ip, nil
	}
	return fail(errors.Join(errs...))
}

// sourceOf returns the address by which the kernel's route to ip leaves. Connecting a UDP socket
// sends no packet (udp(7)).
func sourceOf(ctx context.Context, ip netip.Addr, port int) (netip.Addr, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(ip.String(), strconv.Itoa(port)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close() //nolint:errcheck // nothing was written
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	return local.Addr().Unmap(), err
}

// end prints the report and returns errDifferent if a test failed.
func (t rdmaTest) end() error {
	r, u := t.report, t.u
	verdict := ping.Pass
	for _, test := range r.Tests {
		if *test.Verdict != ping.Pass {
			verdict = ping.Fail
		}
	}
	r.Verdict = &verdict
	u.show(r)
	u.warn(r.Warnings...)
	if t.opts.format == formatTable {
		u.portTests(*r)
	}
	if verdict != ping.Pass {
		return errDifferent
	}
	return nil
}

// portTests prints the results of the tests, and the ports that were not tested.
func (u *ui) portTests(r rdmaTestReport) {
	for _, t := range r.Tests {
		colour, where := green, fmt.Sprintf("%s, %s %s", t.LinkLayer, t.Netdev, t.IP)
		if *t.Verdict != ping.Pass {
			colour = red
		}
		switch {
		case r.Peer != nil:
			where += " to " + r.Peer.String()
		case r.Sides == sidesListen:
			where += " for one peer"
		default:
			where += ", both sides here"
		}
		took := ""
		if t.Elapsed != nil {
			took = fmt.Sprintf(" in %.2f s", *t.Elapsed)
		}
		u.printf("%s: %s (%s): %d of %d iterations of %d bytes%s\n", u.paint(colour, string(*t.Verdict)), printable(t.title), printable(where),
			t.Iterations, r.Iterations, r.Size, took)
		if r.Containers != nil {
			u.printf("  in containers: %s\n", printable(r.Containers.describe(t.Devices)))
		}
		for _, c := range t.Causes {
			if c.Words != "" {
				u.printf("  rping: %s\n", printable(c.Words))
			}
			u.printf("  cause: %s\n  remedy: %s\n", printable(c.Cause), printable(c.Remedy))
		}
		for _, c := range t.Counters {
			u.printf("  %s +%d\n", printable(c.Name), c.Delta)
		}
		if t.Carried != nil && !*t.Carried && r.Sides == sidesLoopback && *t.Verdict == ping.Pass {
			u.printf("  no counter of packets moved: the adapter loops back by itself; --listen and --peer test the way through the port\n")
		}
	}
	for _, s := range r.Untested {
		u.printf("not tested: %s\n", printable(s.Reason))
		if s.Hint != nil {
			u.printf("  remedy: %s\n", printable(*s.Hint))
		}
	}
}
