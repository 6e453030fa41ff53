package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/engine"
	"gpustack/host/rdma"
	"gpustack/host/rdma/trial"
)

// Time limits of rdma test.
const (
	pingTimeout   = 30 * time.Second
	perfTimeout   = 2 * time.Minute
	listenTimeout = 10 * time.Minute
)

// perfIterations is the default of --iterations with --perf: that of ib_write_bw.
const perfIterations = 5000

func newRDMATestCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "test",
		Usage: "move data through RDMA ports, here or to a peer",
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

With --container, each side is a container of an image that podman, docker or nerdctl has here,
and that has rping. It has no root, no capability, the machine's network, and the adapter's
devices: by the CDI device that gives them, such as one of 'gpustack container prepare', or else
by the nodes. What its limit of locked memory is, the engine decides. The other machine of a
test uses containers or not, as --container says there.

With --perf, the programs of perftest measure instead of rping, one after the other, through the
connection manager: ib_write_bw, ib_read_bw and ib_send_bw the bandwidth and the rate of messages
of 65536 bytes, and ib_write_lat, ib_read_lat and ib_send_lat the latency of messages of 2 bytes.
Bandwidths are shown in MB/s of 10^6 bytes and compared with what the port and the adapter's PCIe
link can carry, without their encodings; latencies as the typical time and the one that 99 per
cent of iterations did not exceed. There is no limit below which --perf fails. With --container,
the programs run on the machine and then in containers. Both machines of a test need the same
--iterations, and both or neither --container. Figures of one machine alone are those of the
adapter, without the network.

The test runs on this machine alone: --root must be /. It changes nothing. Programs are killed at
the time limit, by Ctrl-C, and if gpustack is killed.

EXAMPLES
  gpustack rdma test --device 0000:0c:00.0
  gpustack rdma test --listen --device mlx5_0 --wait 5m
  gpustack rdma test --peer 192.0.2.7 --iterations 1000 --size 65535
  gpustack rdma test --container localhost/rdma:latest
  gpustack rdma test --perf --peer 192.0.2.7`,
		Flags: reading(
			&cli.StringFlag{Name: "device", Usage: "test `DEVICE`: an adapter by its address or RDMA name; NAME/PORT is one port"},
			&cli.BoolFlag{Name: "listen", Usage: "wait for the test of one other machine"},
			&cli.StringFlag{Name: "peer", Usage: "test the way to `HOST`, which listens"},
			&cli.BoolFlag{Name: "perf", Usage: "measure bandwidth and latency with perftest"},
			&cli.StringFlag{Name: "container", Usage: "run the programs in containers of `IMAGE`, without privileges"},
			&cli.DurationFlag{Name: "wait", Usage: "wait at most `TIME` for the end of each test (default: 30s, with --perf 2m, with --listen 10m)"},
			&cli.IntFlag{Name: "port", Value: 7174, Usage: "port `NUMBER` of the connection manager, the same on both machines"},
			&cli.IntFlag{Name: "iterations", Value: 10, Usage: "`NUMBER` of iterations, the same on both machines (with --perf: 5000)"},
			&cli.IntFlag{Name: "size", Value: 64, Usage: "`NUMBER` of bytes of an iteration, the same on both machines; not with --perf"},
		),
		Action: action(u, parseRDMATest, runRDMATest),
	}
}

type rdmaTestOptions struct {
	peer   string
	listen bool
	trial.Request
}

func parseRDMATest(c *cli.Context, f *args.Faults) rdmaTestOptions {
	f.Exclude(c, "listen", "peer")
	f.Exclude(c, "perf", "size")
	opts := rdmaTestOptions{
		peer: c.String("peer"), listen: c.Bool("listen"),
		Request: trial.Request{
			Options: trial.Options{Perf: c.Bool("perf"), Port: c.Int("port"), Count: c.Int("iterations"), Size: c.Int("size"), Timeout: c.Duration("wait")},
			Device:  c.String("device"), Image: c.String("container"),
		},
	}
	if !c.IsSet("wait") {
		opts.Timeout = pingTimeout
		switch {
		case opts.listen:
			opts.Timeout = listenTimeout
		case opts.Perf:
			opts.Timeout = perfTimeout
		}
	}
	if opts.Perf {
		opts.Size = trial.PerfSize
		if !c.IsSet("iterations") {
			opts.Count = perfIterations
		}
	}
	f.Machine(c, "rdma test moves data through the adapters of the running machine", "rdma check")
	f.NotEmpty(c, "device", "peer")
	if c.IsSet("container") {
		err := engine.CheckImage(opts.Image)
		f.AddEach("--container "+strconv.Quote(opts.Image)+": ", err, host.HintOf(err))
	}
	f.AddEach("", opts.Check(), host.Plain(f.SeeHelp()))
	return opts
}

func runRDMATest(ctx context.Context, u *term.UI, o given, opts rdmaTestOptions) error {
	m, err := trial.Observe(ctx, o.root, opts.Request)
	if err != nil {
		return err
	}
	r := views.NewRDMATest(m)
	if opts.Image != "" { // a signal lets containers be removed
		if err := u.Run.Begin(host.Plain(remedyContainers)); err != nil {
			return err
		}
	}
	err = runTests(ctx, u, opts, r, m)
	u.Run.End()
	if ctx.Err() != nil && !errors.Is(err, engine.ErrLeft) { // what an interrupted program says is no result
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	u.Warn(r.Warnings...)
	return showReport(u, o.format, r, func() { views.PrintPortTests(u, *r) }, r.Verdict == trial.Pass)
}

// runTests tests the ports of a machine and completes the report.
func runTests(ctx context.Context, u *term.UI, opts rdmaTestOptions, r *views.RDMATest, m trial.Machine) error {
	var tests []trial.Tested
	var err error
	switch {
	case opts.listen:
		r.Sides = views.SidesListen
		tests, err = m.Listen(ctx, func(t trial.Test) {
			r.PeerCommand = t.PeerCommand()
			u.Note("%s listens at %s for %s; on the other machine run: %s", t.Target, t.Source.IP, t.Timeout, t.PeerCommand())
			if t.Target.Port.LinkLayer == rdma.LinkEthernet {
				u.Note("%s", trial.RoCEFirewall)
			}
		})
	case opts.peer != "":
		way, routeErr := m.Route(ctx, opts.peer)
		if routeErr != nil {
			return routeErr
		}
		r.Sides, r.Peer = views.SidesPeer, &way.Peer
		if way.Warning != "" {
			r.Warnings = append(r.Warnings, way.Warning)
		}
		tests, err = m.Peer(ctx, way, func(t trial.Test) { u.Waits("testing %s at %s to %s", t.Target, t.Source.IP, way.Peer) })
	default:
		tests, err = m.Loopback(ctx, func(t trial.Test) { u.Waits("testing %s at %s", t.Target, t.Source.IP) })
	}
	if err == nil {
		r.AddAll(tests)
	}
	return err
}
