package trial

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"gpustack/host"
	"gpustack/host/engine"
)

// Options are the options of a test.
type Options struct {
	Perf    bool // measure with perftest instead of a test with rping
	Port    int  // of the connection manager, which is no TCP port
	Count   int  // of iterations: with rping each moves the data to the listener and back
	Size    int  // of the data, in bytes; with Perf [PerfSize]
	Timeout time.Duration
}

// Check returns all errors of options.
func (o Options) Check() error {
	var errs []error
	within := func(option string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, fmt.Errorf("%s %d: must be %d to %d", option, n, least, most))
		}
	}
	leastCount, leastSize, mostSize := 1, minSize, MaxSize
	if o.Perf {
		leastCount, leastSize, mostSize = minPerfCount, PerfSize, PerfSize
	}
	within("--port", o.Port, 1, 65535)
	within("--iterations", o.Count, leastCount, MaxCount)
	within("--size", o.Size, leastSize, mostSize)
	if o.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("--wait %s: must be more than 0", o.Timeout))
	}
	if errs == nil && !o.Perf && o.Count*o.Size > maxData {
		errs = append(errs, fmt.Errorf("--iterations %d with --size %d: more than %d bytes", o.Count, o.Size, maxData))
	}
	return errors.Join(errs...)
}

// MaxCount is the largest number of iterations.
const MaxCount = 100_000

// Verdict is the result of a test.
type Verdict string

// The verdicts of a test.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
)

// Result is the result of a test of one port.
type Result struct {
	Verdict Verdict `json:"verdict"` // whether the test passed
	// the duration on the side that connects; null for a listener, which waits
	Seconds *float64 `json:"elapsed_seconds"`
	// how many were completed: rping prints the data of each; with --perf, those of all
	// measurements
	Iterations int `json:"iterations"`
	// how many were moved in each direction; with --perf, in all measurements
	Bytes int64 `json:"bytes"`
	// counters of the port that are higher than before; those of errors first
	Counters []Counter `json:"counters"`
	// counters of packets rose; null if the port has none. Adapters may loop packets back uncounted
	Carried  host.Bool `json:"packets_counted"`
	Causes   []Cause   `json:"causes"` // why it failed; empty if it passed
	Warnings []string
	// the completed measurements, in order; empty without --perf
	Measurements []Measurement `json:"measurements"`
}

// Test tests one port.
type Test struct {
	Options
	Programs Programs
	Runner   host.Runner // starts them
	// Container, if it is set, starts them in containers; with Options.Perf after the same programs of
	// the machine.
	Container *engine.Container

	Root     host.Root // below which the counters of the port are
	Target   Target
	Source   Address  // of the target
	Hardware Hardware // with Options.Perf

	steps []step // nil before they are prepared
}

// Programs are the programs of a test, of one package.
type Programs struct {
	Names []string
	// Missing and MissingInImage are the errors of a machine and of an image without one of them.
	Missing, MissingInImage error
}

// Ready returns an error unless all programs are installed.
func (p Programs) Ready(r host.Runner) error {
	for _, name := range p.Names {
		if _, err := r.Find(name); errors.Is(err, host.ErrNoProgram) {
			return p.Missing
		} else if err != nil {
			return err
		}
	}
	return nil
}

// How long the parts of a test may take besides its timeout.
const (
	starting = 5 * time.Second        // the listener of a loopback test is ready
	creating = 60 * time.Second       // the same, if it is in a container: engines can be slow
	ending   = 3 * time.Second        // the listener ends after its peer
	pause    = 100 * time.Millisecond // between attempts to connect
	settle   = 50 * time.Millisecond  // adapters cache counters (mlx5: 10 ms)
)

// Side is one side of a test: a program that has ended.
type Side struct {
	Stdout  []byte
	Err     error
	Seconds float64
}

// Messages returns what a side that failed printed to standard error.
func (s Side) Messages() string {
	var failed *host.ProgramError
	if errors.As(s.Err, &failed) {
		return failed.Stderr
	}
	return ""
}

// notStarted returns the error of a side whose program could not be started, nil if it ran.
func (s Side) notStarted() error {
	failed := new(host.ProgramError)
	if s.Err == nil || errors.As(s.Err, &failed) || errors.Is(s.Err, host.ErrLimit) || errors.Is(s.Err, host.ErrStopped) {
		return nil
	}
	return s.Err
}

// step is one program of a test.
type step struct {
	name      string
	container *engine.Container
	listen    []string                       // the command of the side that listens
	connect   func(peer netip.Addr) []string // and of the one that connects
	perf      *program                       // nil for rping
}

// prepared returns the test with its steps. What prevents a later one is an error before the first
// one runs.
func (t Test) prepared(ctx context.Context) (Test, error) {
	if t.steps != nil {
		return t, nil
	}
	var err error
	if t.Perf {
		t.steps, err = t.perfSteps(ctx)
	} else {
		t.steps = []step{t.rping()}
	}
	return t, err
}

// run runs a command of a step until it ends, the context ends or the limit is reached.
func (t Test) run(ctx context.Context, s step, limit time.Duration, argv []string) Side {
	r := t.Runner
	r.Limit, r.Stop, r.Expendable = limit, ctx.Done(), true
	begun := time.Now()
	run := r.Run
	if s.container != nil {
		run = t.Programs.contained(*s.container, r)
	}
	stdout, err := run(ctx, argv)
	return Side{stdout, err, time.Since(begun).Seconds()}
}

// sides runs a step for at most a time, and returns the sides that are here, first the one that
// reports. first says that it is the first of the test.
type sides func(ctx context.Context, s step, limit time.Duration, first bool) []Side

// all runs all steps one after the other. A program that fails is the last one.
func (t Test) all(ctx context.Context, listens bool, run sides) (Result, error) {
	t, err := t.prepared(ctx)
	if err != nil {
		return Result{}, err
	}
	seconds := 0.0
	r := Result{Verdict: Fail, Seconds: &seconds, Causes: []Cause{}, Warnings: []string{}}
	if t.Hardware.Err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: its PCIe link cannot be read: %v", t.Target, t.Hardware.Err))
	}
	begun, left := time.Now(), t.Timeout
	for i, s := range t.steps {
		ran := []Side{{Err: host.ErrLimit}}
		if left > 0 {
			ran = run(ctx, s, left, i == 0)
		}
		left = t.Timeout - time.Since(begun)
		seconds += ran[0].Seconds
		for _, side := range ran {
			if err := side.notStarted(); err != nil {
				return Result{}, err
			}
		}
		failed := t.judgeRping
		if s.perf != nil {
			failed = t.judgePerf
		}
		if cause := failed(&r, s, ran, listens); cause != nil {
			r.Causes = t.causes(s, ran, listens, i == 0, *cause)
			return r, nil
		}
	}
	r.Verdict = Pass
	return r, nil
}

// causes returns why a step failed, by what its sides printed and how the first one ended, or what
// it lacks.
func (t Test) causes(s step, ran []Side, listens, first bool, lacks Cause) []Cause {
	limit := errors.Is(ran[0].Err, host.ErrLimit)
	switch {
	case limit && listens && first:
		return []Cause{{Cause: fmt.Sprintf("no peer completed a test within %s", t.Timeout),
			Remedy: host.Plain("start the test on the other machine while this one listens: " + t.PeerCommand())}}
	case limit && listens:
		return []Cause{{Cause: fmt.Sprintf("the peer did not start %s within %s", s.name, t.Timeout),
			Remedy: host.Plain("see what it prints; give both machines the same --iterations, and both or neither --container")}}
	}
	messages := host.Map(ran, Side.Messages)
	causes := inContainer(s.container, diagnose(messages...))
	switch {
	case len(causes) > 0:
		return causes
	case limit:
		return []Cause{{Cause: fmt.Sprintf("the test did not end within %s", t.Timeout), Remedy: host.Plain(RoCEFirewall)}}
	case ran[0].Err != nil:
		return []Cause{unexplained(ran[0].Err)}
	}
	return []Cause{lacks}
}

// Loopback tests the port with both sides on this machine.
func (t Test) Loopback(ctx context.Context) (Result, error) {
	return t.counted(func() (Result, error) {
		return t.all(ctx, false, func(ctx context.Context, s step, limit time.Duration, _ bool) []Side {
			client, server := t.pair(ctx, s, limit)
			return []Side{client, server}
		})
	})
}

// pair runs both sides of a step on this machine, for at most a time. The client is started again
// until the server listens, and the server is ended some time after the client.
func (t Test) pair(ctx context.Context, s step, limit time.Duration) (client, server Side) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listener, ended := make(chan Side, 1), make(chan struct{})
	go func() {
		listener <- t.run(ctx, s, limit, s.listen)
		close(ended)
	}()
	client = t.connect(ctx, s, limit, t.Source.IP, ended)
	select {
	case server = <-listener:
	case <-time.After(ending):
		stop()
		server = <-listener
	}
	return client, server
}

// connect starts a client again until its server listens, the server has ended, or the time is over
// in which a server gets ready, within the limit.
func (t Test) connect(ctx context.Context, s step, limit time.Duration, peer netip.Addr, ended <-chan struct{}) Side {
	ready := starting
	if s.container != nil {
		ready = creating
	}
	begun := time.Now()
	for last := false; ; {
		client := t.run(ctx, s, max(limit-time.Since(begun), pause), s.connect(peer))
		if client.Err == nil || !client.refused() || last || time.Since(begun) > min(ready, limit-pause) {
			return client
		}
		select {
		case <-ended:
			last = true
		case <-ctx.Done():
			last = true
		case <-time.After(pause):
		}
	}
}

// rejected are the words of rping and of perftest (rdma_client_connect of perftest_communication.c)
// for a REJ message of the connection manager.
var rejected = host.LazyRegexp(`RDMA_CM_EVENT_REJECTED|CM event (bl blka )?8\b`)

// refused reports whether no program listened at the port.
func (s Side) refused() bool { return rejected().MatchString(s.Messages()) }

// Listen waits for one peer, and returns the result of its test.
func (t Test) Listen(ctx context.Context) (Result, error) {
	return t.countedWay(func() (Result, error) {
		r, err := t.all(ctx, true, func(ctx context.Context, s step, limit time.Duration, _ bool) []Side {
			return []Side{t.run(ctx, s, limit, s.listen)}
		})
		r.Seconds = nil
		return r, err
	})
}

// Peer tests the way to a peer that listens. Between two programs the peer is given the time to
// start its next one.
func (t Test) Peer(ctx context.Context, peer netip.Addr) (Result, error) {
	return t.countedWay(func() (Result, error) {
		return t.all(ctx, false, func(ctx context.Context, s step, limit time.Duration, first bool) []Side {
			if first {
				return []Side{t.run(ctx, s, limit, s.connect(peer))}
			}
			return []Side{t.connect(ctx, s, limit, peer, nil)}
		})
	})
}

// PeerCommand returns the command that tests a listener from the other machine.
func (t Test) PeerCommand() string {
	command := host.NewCommand("rdma test")
	if t.Perf {
		command = command.Flag("perf")
	}
	command = command.Flag("peer", t.Source.IP.String()).Flag("port", strconv.Itoa(t.Port)).Flag("iterations", strconv.Itoa(t.Count))
	if !t.Perf {
		command = command.Flag("size", strconv.Itoa(t.Size))
	}
	if t.Container != nil {
		command = command.Flag("container", t.Container.Image)
	}
	return command.String()
}

// countedWay runs a test of the way between two machines as counted does, and warns if its packets
// did not pass the port.
func (t Test) countedWay(test func() (Result, error)) (Result, error) {
	r, err := t.counted(test)
	if err == nil && r.Verdict == Pass && r.Carried == host.No {
		r.Warnings = append(r.Warnings, t.Target.String()+": its counters of packets did not move: the test has used another port")
	}
	return r, err
}

// counted runs a test and adds to its result which counters of the port have moved.
func (t Test) counted(test func() (Result, error)) (Result, error) {
	before, err := readCounters(t.Root, t.Target.Adapter.Name, t.Target.Port.Number)
	if err != nil {
		return Result{}, err
	}
	r, err := test()
	if err != nil {
		return Result{}, err
	}
	time.Sleep(settle)
	after, err := readCounters(t.Root, t.Target.Adapter.Name, t.Target.Port.Number)
	if err != nil {
		return Result{}, err
	}
	r.Counters = before.moved(after)
	r.Carried = before.carried(r.Counters)
	r.Warnings = append(r.Warnings, host.Map(host.Filter(r.Counters, func(c Counter) bool { return c.Error }),
		func(c Counter) string {
			return fmt.Sprintf("%s: the error counter %s rose by %d during the test", t.Target, c.Name, c.Delta)
		})...)
	return r, nil
}
