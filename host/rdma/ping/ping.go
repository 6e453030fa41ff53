package ping

import (
	"bytes"
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

// Limits of options. rping accepts these sizes (rdma-core 44, librdmacm/examples/rping.c,
// RPING_MIN_BUFSIZE and RPING_BUFSIZE), and prints all data, which this package reads.
const (
	minSize  = 32
	MaxSize  = 65535
	MaxCount = 100_000
	maxData  = 64 << 20 // count times size
)

// Options are the options of a test.
type Options struct {
	Port    int // of the connection manager, which is no TCP port
	Count   int // of iterations: each moves the data to the listener and back
	Size    int // of the data, in bytes
	Timeout time.Duration
}

// Check returns all errors of options.
func (o Options) Check() error {
	err := o.CheckRange(1, MaxCount, minSize, MaxSize)
	if err == nil && o.Count*o.Size > maxData {
		err = fmt.Errorf("--iterations %d with --size %d: more than %d bytes", o.Count, o.Size, maxData)
	}
	return err
}

// CheckRange returns all errors of options of a test whose programs accept these numbers of
// iterations and sizes.
func (o Options) CheckRange(leastCount, mostCount, leastSize, mostSize int) error {
	var errs []error
	within := func(option string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, fmt.Errorf("%s %d: must be %d to %d", option, n, least, most))
		}
	}
	within("--port", o.Port, 1, 65535)
	within("--iterations", o.Count, leastCount, mostCount)
	within("--size", o.Size, leastSize, mostSize)
	if o.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("--wait %s: must be more than 0", o.Timeout))
	}
	return errors.Join(errs...)
}

// Errors of a machine on which no test can run.
var (
	ErrNoRping = host.WithHint(errors.New("rping is not installed"), "Debian, Ubuntu: apt install rdmacm-utils; RHEL: dnf install librdmacm-utils")
	ErrMemlock = host.WithHint(errors.New("the limit of locked memory (RLIMIT_MEMLOCK) is too low for a test"), unlimited)
)

// Verdict is the result of a test.
type Verdict string

// The verdicts of a test.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
)

// Result is the result of a test of one port.
type Result struct {
	Verdict    Verdict
	Seconds    *float64 // nil for a listener, which waits for its peer
	Iterations int      // that this side has completed
	Bytes      int64    // moved in each direction
	Counters   []Counter
	// Carried tells whether the port's counters of packets have moved; Unknown if the port has none.
	Carried  host.Bool
	Causes   []Cause
	Warnings []string
}

// Test tests one port.
type Test struct {
	Options
	Programs Programs
	Runner   host.Runner // starts them
	// Container, if it is set, starts them in containers.
	Container *engine.Container

	Root   host.Root // below which the counters of the port are
	Target Target
	Source Address // of the target
}

// Programs are the programs of a test, of one package.
type Programs struct {
	Names []string
	// Missing and MissingInImage are the errors of a machine and of an image without one of them.
	Missing, MissingInImage error
}

const program = "rping"

// Rping returns the program of tests with rping.
func Rping() Programs { return Programs{[]string{program}, ErrNoRping, ErrImageRping} }

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

// iterations returns how many iterations a side completed: rping prints the data of each, and exits
// with 0 also if the other side disconnects before the last one.
func (s Side) iterations() int {
	return bytes.Count(s.Stdout, []byte("ping data: rdma-ping-"))
}

// Messages returns what a side that failed printed to standard error.
func (s Side) Messages() string {
	var failed *host.ProgramError
	if errors.As(s.Err, &failed) {
		return failed.Stderr
	}
	return ""
}

// NotStarted returns the error of a side whose program could not be started, nil if it ran.
func (s Side) NotStarted() error {
	failed := new(host.ProgramError)
	if s.Err == nil || errors.As(s.Err, &failed) || errors.Is(s.Err, host.ErrLimit) || errors.Is(s.Err, host.ErrStopped) {
		return nil
	}
	return s.Err
}

// raced reports whether rping ended with an error only because it had closed the channel of events
// that its thread still reads. It closes it last of all, when its test is done (rdma-core 44,
// librdmacm/examples/rping.c, main and cm_thread).
func (s Side) raced() bool {
	text := strings.TrimSpace(s.Messages())
	return strings.HasSuffix(text, "rdma_get_cm_event: Bad file descriptor") && len(diagnose(text)) == 0
}

// Run runs the program of one side until it ends, the context ends or the limit is reached.
func (t Test) Run(ctx context.Context, limit time.Duration, argv ...string) Side {
	r := t.Runner
	r.Limit, r.Stop, r.Expendable = limit, ctx.Done(), true
	begun := time.Now()
	run := r.Run
	if t.Container != nil {
		run = t.Programs.contained(*t.Container, r)
	}
	stdout, err := run(ctx, argv)
	return Side{stdout, err, time.Since(begun).Seconds()}
}

// run runs one side's rping.
func (t Test) run(ctx context.Context, limit time.Duration, argv ...string) Side {
	return t.Run(ctx, limit, append(append([]string{program}, argv...), "-v", "-p", strconv.Itoa(t.Port), "-S", strconv.Itoa(t.Size))...)
}

func (t Test) server(ctx context.Context) Side {
	return t.run(ctx, t.Timeout, "-s", "-a", t.Source.IP.String())
}

func (t Test) client(ctx context.Context, limit time.Duration, peer netip.Addr) Side {
	return t.run(ctx, limit, "-c", "-a", peer.String(), "-I", t.Source.IP.String(), "-V", "-C", strconv.Itoa(t.Count))
}

// Loopback tests the port with both sides on this machine.
func (t Test) Loopback(ctx context.Context) (Result, error) {
	return t.Counted(func() (Result, error) {
		client, server := t.Pair(ctx, t.Timeout, t.server, func(ctx context.Context, limit time.Duration) Side {
			return t.client(ctx, limit, t.Source.IP)
		})
		return t.judge(client, server)
	})
}

// Pair runs both sides of a test on this machine, for at most a time. The client is started again
// until the server listens, and the server is ended some time after the client.
func (t Test) Pair(
	ctx context.Context, limit time.Duration, serve func(context.Context) Side, connect func(context.Context, time.Duration) Side,
) (client, server Side) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listener, ended := make(chan Side, 1), make(chan struct{})
	go func() {
		listener <- serve(ctx)
		close(ended)
	}()
	client = t.Connect(ctx, limit, ended, connect)
	select {
	case server = <-listener:
	case <-time.After(ending):
		stop()
		server = <-listener
	}
	return client, server
}

// Connect starts a client again until its server listens, the server has ended, or the time is over
// in which a server gets ready, within the limit.
func (t Test) Connect(ctx context.Context, limit time.Duration, ended <-chan struct{}, connect func(context.Context, time.Duration) Side) Side {
	ready := starting
	if t.Container != nil {
		ready = creating
	}
	begun := time.Now()
	for last := false; ; {
		client := connect(ctx, max(limit-time.Since(begun), pause))
		if client.Err == nil || !client.Refused() || last || time.Since(begun) > min(ready, limit-pause) {
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

// Refused reports whether no program listened at the port.
func (s Side) Refused() bool { return rejected().MatchString(s.Messages()) }

// Listen waits for one peer, and returns the result of its test.
func (t Test) Listen(ctx context.Context) (Result, error) {
	return t.CountedWay(func() (Result, error) {
		server := t.server(ctx)
		r, err := t.judge(server)
		r.Seconds = nil
		if errors.Is(server.Err, host.ErrLimit) {
			r.Causes = []Cause{t.NoPeer(t.PeerCommand())}
		}
		return r, err
	})
}

// NoPeer returns the cause of a listener to which no peer came in time. command is for the peer.
func (t Test) NoPeer(command string) Cause {
	return Cause{Cause: fmt.Sprintf("no peer completed a test within %s", t.Timeout),
		Remedy: host.Text("start the test on the other machine while this one listens: " + command)}
}

// Peer tests the way to a peer that listens.
func (t Test) Peer(ctx context.Context, peer netip.Addr) (Result, error) {
	return t.CountedWay(func() (Result, error) { return t.judge(t.client(ctx, t.Timeout, peer)) })
}

// PeerCommand returns the command that tests a listener from the other machine.
func (t Test) PeerCommand() string {
	command := host.NewCommand("rdma test").Flag("peer", t.Source.IP.String()).
		Flag("port", strconv.Itoa(t.Port)).Flag("iterations", strconv.Itoa(t.Count)).Flag("size", strconv.Itoa(t.Size))
	if t.Container != nil {
		command = command.Flag("container", t.Container.Image)
	}
	return command.String()
}

// judge returns the result of a test by what its sides printed. The first side is the one whose
// iterations count. A program that could not be started is an error.
func (t Test) judge(sides ...Side) (Result, error) {
	for _, s := range sides {
		if err := s.NotStarted(); err != nil {
			return Result{}, err
		}
	}
	first := sides[0]
	n := first.iterations()
	r := Result{Verdict: Fail, Seconds: &first.Seconds, Iterations: n, Bytes: int64(n) * int64(t.Size), Causes: []Cause{}, Warnings: []string{}}
	if n >= t.Count && (first.Err == nil || first.raced()) {
		r.Verdict = Pass
		return r, nil
	}
	r.Causes = append(r.Causes, t.Diagnose(sides...)...)
	if len(r.Causes) == 0 {
		r.Causes = []Cause{{Cause: fmt.Sprintf("the connection ended after %d of %d iterations", n, t.Count),
			Remedy: "see the messages of the other side; give both sides the same --iterations"}}
	}
	return r, nil
}

// Diagnose returns why a test failed, by what its sides printed and how the first one ended; none
// if that one succeeded and no side printed words that are explained.
func (t Test) Diagnose(sides ...Side) []Cause {
	var messages []string
	for _, s := range sides {
		messages = append(messages, s.Messages())
	}
	causes := inContainer(t.Container, diagnose(messages...))
	switch first := sides[0]; {
	case len(causes) > 0 || first.Err == nil:
		return causes
	case errors.Is(first.Err, host.ErrLimit):
		return []Cause{{Cause: fmt.Sprintf("the test did not end within %s", t.Timeout), Remedy: RoCEFirewall}}
	default:
		return []Cause{unexplained(first.Err)}
	}
}

// CountedWay runs a test of the way between two machines as Counted does, and warns if its packets
// did not pass the port.
func (t Test) CountedWay(test func() (Result, error)) (Result, error) {
	r, err := t.Counted(test)
	if err == nil && r.Verdict == Pass && r.Carried == host.No {
		r.Warnings = append(r.Warnings, t.Target.String()+": its counters of packets did not move: the test has used another port")
	}
	return r, err
}

// Counted runs a test and adds to its result which counters of the port have moved.
func (t Test) Counted(test func() (Result, error)) (Result, error) {
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
	for _, c := range r.Counters {
		if c.Error {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: the error counter %s rose by %d during the test", t.Target, c.Name, c.Delta))
		}
	}
	return r, nil
}
