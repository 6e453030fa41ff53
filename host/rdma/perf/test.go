package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/engine"
	"gpustack/host/rdma/ping"
)

// Limits of options. perftest accepts from 5 iterations on (MIN_ITER of perftest_parameters.h).
const (
	minCount = 5
	MaxCount = 100_000
	// Size is how many bytes a message of the measurements of bandwidth has, which is the default of
	// perftest.
	Size        = 65536
	latencySize = 2 // bytes of a message of the measurements of latency, which is the default too
)

// CheckOptions returns all errors of options of a test. Their size must be Size.
func CheckOptions(o ping.Options) error { return o.CheckRange(minCount, MaxCount, Size, Size) }

// ErrImage says that an image has no perftest.
var ErrImage = host.WithHint(errors.New("the image has no perftest"),
	"install perftest and ibverbs-providers (Debian, Ubuntu) or perftest and libibverbs (RHEL) in the image")

// program is a program of perftest.
type program struct {
	name string
	size int
	// silent says that only the side that connects reports: the other one takes no part in an RDMA
	// READ (perftest, src/read_lat.c).
	silent bool
}

// all returns the programs of a test in their order, which is the same on both machines.
func all() []program {
	return []program{{"ib_write_bw", Size, false}, {"ib_read_bw", Size, false}, {"ib_write_lat", latencySize, false}, {"ib_read_lat", latencySize, true}}
}

// Programs returns the programs of tests on a machine of a family of distributions.
func Programs(f host.Family) ping.Programs {
	p := ping.Programs{MissingInImage: ErrImage, Missing: host.WithHint(errors.New("perftest is not installed"),
		host.Text(f.Install(host.Packages{host.DebianFamily: "perftest", host.RHELFamily: "perftest", host.SUSEFamily: "perftest"})))}
	for _, program := range all() {
		p.Names = append(p.Names, program.name)
	}
	return p
}

// Measurement is what one program has measured.
type Measurement struct {
	Program   string
	Container *engine.Container // nil: on the machine
	// Report is nil of a listener's ib_read_lat, which the peer reports alone.
	Report *Report
}

// Result is the result of a test of one port.
type Result struct {
	ping.Result
	Measurements []Measurement // those that were completed, in their order
}

// Test measures one port: on the machine, and then in containers if it has them.
type Test struct {
	ping.Test
	Hardware Hardware
	options  [][]string // of the programs in each round; nil before they were asked
}

// asked returns the test with the options of its programs. All are asked before the first one runs,
// so that what prevents a later one costs no figures.
func (t Test) asked(ctx context.Context) (Test, error) {
	if t.options != nil {
		return t, nil
	}
	for _, round := range t.rounds() {
		options, err := options(ctx, round)
		if err != nil {
			return t, err
		}
		t.options = append(t.options, options)
	}
	return t, nil
}

// rounds returns the test on the machine and the one in containers.
func (t Test) rounds() []ping.Test {
	native := t.Test
	native.Container = nil
	if t.Container == nil {
		return []ping.Test{native}
	}
	return []ping.Test{native, t.Test}
}

// asking is the time limit of a program's help, which may be printed in a container.
const asking = 60 * time.Second

// Options of perftest that not all releases have: 4.5 (Debian 12, version 6.06) has --source_ip,
// which 25.01 (Debian 13, version 6.24) calls --bind_source_ip, and needs IPv4.
const (
	bindSource = "--bind_source_ip"
	oldSource  = "--source_ip"
	ipv6       = "--ipv6-addr"
)

// ErrIPv6 says that the installed perftest connects by IPv4 only.
var ErrIPv6 = host.WithHint(errors.New("this release of perftest connects by IPv4 only: it has no option "+ipv6),
	"give the ports of both machines IPv4 addresses, or install a later release")

// options returns the options that all programs of a round have in common. Options that only some
// releases have are looked up in the help of the programs, which exit with a failure after it.
func options(ctx context.Context, t ping.Test) ([]string, error) {
	helping := []string{all()[0].name, "--help"}
	side := t.Run(ctx, min(asking, t.Timeout), helping...)
	if err := side.NotStarted(); err != nil {
		return nil, err
	}
	help := string(side.Stdout)
	if !strings.Contains(help, "--rdma_cm") {
		if side.Err != nil {
			return nil, host.WithHint(fmt.Errorf("perftest cannot be used: %w", side.Err), strings.Join(helping, " "))
		}
		return nil, host.WithHint(fmt.Errorf("%s: its help names no option --rdma_cm", helping[0]), "install perftest of this distribution")
	}
	argv := []string{"-R", "-F", "-d", t.Target.Adapter.Name, "-i", strconv.Itoa(t.Target.Port.Number), "-p", strconv.Itoa(t.Port), "-n", strconv.Itoa(t.Count)}
	if t.Source.IP.Is6() {
		if !strings.Contains(help, ipv6) {
			return nil, fmt.Errorf("%s at %s: %w", t.Target, t.Source.IP, ErrIPv6)
		}
		argv = append(argv, "--ipv6", ipv6)
	}
	for _, option := range []string{bindSource, oldSource} {
		if strings.Contains(help, option+" ") {
			return append(argv, option, t.Source.IP.String()), nil
		}
	}
	return argv, nil
}

// PeerCommand returns the command that tests a listener from the other machine.
func (t Test) PeerCommand() string {
	command := host.NewCommand("rdma test").Flag("perf").Flag("peer", t.Source.IP.String()).
		Flag("port", strconv.Itoa(t.Port)).Flag("iterations", strconv.Itoa(t.Count))
	if t.Container != nil {
		command = command.Flag("container", t.Container.Image)
	}
	return command.String()
}

// step is one program of a test.
type step struct {
	ping.Test
	program
	argv  []string
	first bool // of the whole test
	limit time.Duration
	// listens says that the side that reports is the one that listens.
	listens bool
}

// steps runs all programs one after the other, each by run, which returns the sides that are here.
// The first side is the one that reports. A program that fails is the last one.
func (t Test) steps(
	ctx context.Context, listens bool, run func(context.Context, step) []ping.Side, failed func(step, []ping.Side) []ping.Cause,
) (Result, error) {
	t, err := t.asked(ctx)
	if err != nil {
		return Result{}, err
	}
	r := Result{Result: ping.Result{Verdict: ping.Fail, Causes: []ping.Cause{}, Warnings: []string{}}}
	begun, seconds := time.Now(), 0.0
	r.Seconds = &seconds
	for i, round := range t.rounds() {
		for _, p := range all() {
			s := step{round, p, append([]string{p.name, "-s", strconv.Itoa(p.size)}, t.options[i]...), r.Measurements == nil, t.Timeout - time.Since(begun),
				listens}
			sides := []ping.Side{{Err: host.ErrLimit}}
			if s.limit > 0 {
				sides = run(ctx, s)
			}
			for _, side := range sides {
				if err := side.NotStarted(); err != nil {
					return Result{}, err
				}
			}
			seconds = time.Since(begun).Seconds()
			report, err := s.report(sides[0])
			if err != nil {
				if r.Causes = append(r.Causes, failed(s, sides)...); len(r.Causes) == 0 {
					r.Causes = []ping.Cause{{Cause: fmt.Sprintf("%s: %v", p.name, err), Remedy: host.Text("see what it prints: " + strings.Join(s.argv, " "))}}
				}
				return r, nil
			}
			if report != nil {
				r.Iterations += report.Iterations
				r.Bytes += int64(report.Iterations) * int64(report.Bytes)
			}
			if sides[0].Err != nil {
				r.Warnings = append(r.Warnings, fmt.Sprintf("%s: %s failed after its report: %v", t.Target, p.name, sides[0].Err))
			}
			r.Measurements = append(r.Measurements, Measurement{p.name, round.Container, report})
		}
	}
	r.Verdict = ping.Pass
	return r, nil
}

// report returns the report of a side; nil of one that has none to give.
func (s step) report(side ping.Side) (*Report, error) {
	r, err := Parse(side.Stdout)
	switch {
	case s.silent && s.listens && errors.Is(err, ErrNoReport) && side.Err == nil:
		return nil, nil
	case err != nil:
		return nil, err
	case r.Bytes != s.size || r.Iterations != s.Count || (r.Latency != nil) != (s.size == latencySize):
		return nil, fmt.Errorf("%w: it is about %s of %s", ErrMalformed, host.Numbered(r.Iterations, "iteration"), host.Numbered(r.Bytes, "byte"))
	}
	return &r, nil
}

// Loopback measures the port with both sides on this machine.
func (t Test) Loopback(ctx context.Context) (Result, error) {
	return t.counted(t.Counted, func() (Result, error) {
		return t.steps(ctx, false, func(ctx context.Context, s step) []ping.Side {
			client, server := s.Pair(ctx, s.limit, func(ctx context.Context) ping.Side { return s.Run(ctx, s.limit, s.argv...) },
				func(ctx context.Context, limit time.Duration) ping.Side { return s.connect(ctx, limit, t.Source.IP) })
			return []ping.Side{client, server}
		}, diagnose)
	})
}

// connect runs the side that connects.
func (s step) connect(ctx context.Context, limit time.Duration, peer netip.Addr) ping.Side {
	return s.Run(ctx, limit, append(append([]string{}, s.argv...), peer.String())...)
}

func diagnose(s step, sides []ping.Side) []ping.Cause { return s.Diagnose(sides...) }

// Listen waits for one peer, and returns the result of its test.
func (t Test) Listen(ctx context.Context) (Result, error) {
	return t.counted(t.CountedWay, func() (Result, error) {
		r, err := t.steps(ctx, true, func(ctx context.Context, s step) []ping.Side { return []ping.Side{s.Run(ctx, s.limit, s.argv...)} },
			func(s step, sides []ping.Side) []ping.Cause {
				switch limit := errors.Is(sides[0].Err, host.ErrLimit); {
				case limit && !s.first:
					return []ping.Cause{{Cause: fmt.Sprintf("the peer did not start %s within %s", s.name, t.Timeout),
						Remedy: "see what it prints; give both machines the same --iterations, and both or neither --container"}}
				case limit:
					return []ping.Cause{t.NoPeer(t.PeerCommand())}
				}
				return s.Diagnose(sides...)
			})
		r.Seconds = nil
		return r, err
	})
}

// Peer measures the way to a peer that listens. Between two programs the peer is given the time to
// start its next one.
func (t Test) Peer(ctx context.Context, peer netip.Addr) (Result, error) {
	return t.counted(t.CountedWay, func() (Result, error) {
		return t.steps(ctx, false, func(ctx context.Context, s step) []ping.Side {
			connect := func(ctx context.Context, limit time.Duration) ping.Side { return s.connect(ctx, limit, peer) }
			if s.first {
				return []ping.Side{connect(ctx, s.limit)}
			}
			return []ping.Side{s.Connect(ctx, s.limit, nil, connect)}
		}, diagnose)
	})
}

// counted runs a test within one that reads the counters of the port.
func (t Test) counted(within func(func() (ping.Result, error)) (ping.Result, error), test func() (Result, error)) (Result, error) {
	var r Result
	counted, err := within(func() (ping.Result, error) {
		var err error
		r, err = test()
		return r.Result, err
	})
	if r.Result = counted; err != nil {
		return Result{}, err
	}
	return r, nil
}
