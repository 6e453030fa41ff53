package trial

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
)

// Limits of options. perftest accepts from 5 iterations on (MIN_ITER of perftest_parameters.h).
const (
	minPerfCount = 5
	// PerfSize is how many bytes a message of the measurements of bandwidth has, which is the default
	// of perftest.
	PerfSize    = 65536
	latencySize = 2 // bytes of a message of the measurements of latency, which is the default too
)

// ErrImagePerf says that an image has no perftest.
var ErrImagePerf = host.WithHint(errors.New("the image has no perftest"),
	"install perftest and ibverbs-providers (Debian, Ubuntu) or perftest and libibverbs (RHEL) in the image")

// program is a program of perftest.
type program struct {
	name string
	size int
	// silent says that only the side that connects reports: the other one takes no part in an RDMA
	// READ (perftest, src/read_lat.c).
	silent bool
}

// programs returns the programs of a measurement in their order, which is the same on both
// machines.
func programs() []program {
	return []program{
		{"ib_write_bw", PerfSize, false}, {"ib_read_bw", PerfSize, false}, {"ib_send_bw", PerfSize, false},
		{"ib_write_lat", latencySize, false}, {"ib_read_lat", latencySize, true}, {"ib_send_lat", latencySize, false},
	}
}

// Perftest returns the programs of measurements on a machine of a family of distributions.
func Perftest(f host.Family) Programs {
	p := Programs{MissingInImage: ErrImagePerf, Missing: host.WithHint(errors.New("perftest is not installed"),
		host.Plain(f.Install(host.Packages{host.DebianFamily: "perftest", host.RHELFamily: "perftest", host.SUSEFamily: "perftest"})))}
	p.Names = append(p.Names, host.Map(programs(), func(program program) string { return program.name })...)
	return p
}

// Measurement is what one program has measured.
type Measurement struct {
	// "ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat" or "ib_send_lat"
	Program   string `json:"program"`
	Contained bool   `json:"in_container"` // the program ran in a container
	// as the program reported; null for a listener's ib_read_lat, which the other machine reports
	Report *Report `json:"report"`
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

// perfSteps returns the steps of a measurement: all programs on the machine, and then in containers
// if the test has them.
func (t Test) perfSteps(ctx context.Context) (steps []step, err error) {
	rounds := []*engine.Container{nil}
	if t.Container != nil {
		rounds = append(rounds, t.Container)
	}
	for _, container := range rounds {
		options, err := t.perfOptions(ctx, container)
		if err != nil {
			return nil, err
		}
		for _, p := range programs() {
			argv := append([]string{p.name, "-s", strconv.Itoa(p.size)}, options...)
			steps = append(steps, step{name: p.name, container: container, perf: &p, listen: argv,
				connect: func(peer netip.Addr) []string { return append(argv[:len(argv):len(argv)], peer.String()) }})
		}
	}
	return steps, nil
}

// perfOptions returns the options that all programs of a round have in common. Options that only
// some releases have are looked up in the help of the programs, which exit with a failure after it.
func (t Test) perfOptions(ctx context.Context, container *engine.Container) ([]string, error) {
	helping := []string{programs()[0].name, "--help"}
	side := t.run(ctx, step{container: container}, min(asking, t.Timeout), helping)
	if err := side.notStarted(); err != nil {
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

// judgePerf adds what a step measured to a result, and returns what it lacks, or nil.
func (t Test) judgePerf(r *Result, s step, ran []Side, listens bool) *Cause {
	report, err := t.report(*s.perf, ran[0], listens)
	if err != nil {
		return &Cause{Cause: fmt.Sprintf("%s: %v", s.name, err), Remedy: host.Plain("see what it prints: " + strings.Join(s.listen, " "))}
	}
	if report != nil {
		r.Iterations += report.Iterations
		r.Bytes += int64(report.Iterations) * int64(report.Bytes)
	}
	if ran[0].Err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: %s failed after its report: %v", t.Target, s.name, ran[0].Err))
	}
	r.Measurements = append(r.Measurements, Measurement{s.name, s.container != nil, report})
	return nil
}

// report returns the report of a side; nil of one that has none to give.
func (t Test) report(p program, side Side, listens bool) (*Report, error) {
	r, err := Parse(side.Stdout)
	switch {
	case p.silent && listens && errors.Is(err, ErrNoReport) && side.Err == nil:
		return nil, nil
	case err != nil:
		return nil, err
	case r.Bytes != p.size || r.Iterations != t.Count || (r.Latency != nil) != (p.size == latencySize):
		return nil, fmt.Errorf("%w: it is about %s of %s", ErrMalformed, host.Numbered(r.Iterations, "iteration"), host.Numbered(r.Bytes, "byte"))
	}
	return &r, nil
}
