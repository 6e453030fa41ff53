package ping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
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
	var errs []error
	within := func(option string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, fmt.Errorf("%s %d: must be %d to %d", option, n, least, most))
		}
	}
	within("--port", o.Port, 1, 65535)
	within("--iterations", o.Count, 1, MaxCount)
	within("--size", o.Size, minSize, MaxSize)
	if len(errs) == 0 && o.Count*o.Size > maxData {
		errs = append(errs, fmt.Errorf("--iterations %d with --size %d: more than %d bytes", o.Count, o.Size, maxData))
	}
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
	Runner host.Runner // starts rping
	// Container, if it is set, starts rping in containers.
	Container *engine.Container

	Root   host.Root // below which the counters of the port are
	Target Target
	Source Address // of the target
}

const program = "rping"

// Ready returns an error unless rping is installed.
func Ready(r host.Runner) error {
	_, err := r.Find(program)
	if errors.Is(err, host.ErrNoProgram) {
		return ErrNoRping
	}
	return err
}

// How long the parts of a test may take besides its timeout.
const (
	starting = 5 * time.Second        // the listener of a loopback test is ready
	creating = 60 * time.Second       // the same, if it is in a container: engines can be slow
	ending   = 3 * time.Second        // the listener ends after its peer
	pause    = 100 * time.Millisecond // between attempts to connect
	settle   = 50 * time.Millisecond  // adapters cache counters (mlx5: 10 ms)
)

// side is one running rping.
type side struct {
	stdout  []byte
	err     error
	seconds float64
}

// iterations returns how many iterations a side completed: rping prints the data of each, and exits
// with 0 also if the other side disconnects before the last one.
func (s side) iterations() int {
	return bytes.Count(s.stdout, []byte("ping data: rdma-ping-"))
}

// messages returns what a side printed to standard error.
func (s side) messages() string {
	var failed *host.ProgramError
	if errors.As(s.err, &failed) {
		return failed.Stderr
	}
	return ""
}

// run runs one side until it ends, the context ends or the limit is reached.
func (t Test) run(ctx context.Context, limit time.Duration, argv ...string) side {
	r := t.Runner
	r.Limit, r.Stop, r.Expendable = limit, ctx.Done(), true
	argv = append([]string{program}, append(argv, "-v", "-p", strconv.Itoa(t.Port), "-S", strconv.Itoa(t.Size))...)
	begun := time.Now()
	if t.Container != nil {
		stdout, err := contained(ctx, *t.Container, r, argv)
		return side{stdout, err, time.Since(begun).Seconds()}
	}
	stdout, err := r.Run(ctx, argv)
	return side{stdout, err, time.Since(begun).Seconds()}
}

func (t Test) server(ctx context.Context) side {
	return t.run(ctx, t.Timeout, "-s", "-a", t.Source.IP.String())
}

func (t Test) client(ctx context.Context, limit time.Duration, peer netip.Addr) side {
	return t.run(ctx, limit, "-c", "-a", peer.String(), "-I", t.Source.IP.String(), "-V", "-C", strconv.Itoa(t.Count))
}

// Loopback tests the port with both sides on this machine.
func (t Test) Loopback(ctx context.Context) (Result, error) {
	return t.counted(func() (Result, error) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ready := starting
		if t.Container != nil {
			ready = creating
		}
		listener := make(chan side, 1)
		begun := time.Now()
		go func() { listener <- t.server(ctx) }()
		var client, server side
		for ended := false; ; {
			client = t.client(ctx, max(t.Timeout-time.Since(begun), pause), t.Source.IP)
			if client.err == nil || !refused(client) || ended || time.Since(begun) > min(ready, t.Timeout-pause) {
				break
			}
			select { // the listener may not be ready yet
			case server = <-listener:
				ended = true
				listener <- server
			case <-time.After(pause):
			}
		}
		select {
		case server = <-listener:
		case <-time.After(ending):
			stop()
			server = <-listener
		}
		return t.judge(client, server)
	})
}

// refused reports whether no program listened at the port.
func refused(s side) bool {
	return bytes.Contains([]byte(s.messages()), []byte("RDMA_CM_EVENT_REJECTED"))
}

// Listen waits for one peer, and returns the result of its test.
func (t Test) Listen(ctx context.Context) (Result, error) {
	return t.carried(func() (Result, error) {
		server := t.server(ctx)
		r, err := t.judge(server)
		r.Seconds = nil
		if errors.Is(server.err, host.ErrLimit) {
			r.Causes = []Cause{{Cause: fmt.Sprintf("no peer completed a test within %s", t.Timeout),
				Remedy: host.Text("start the test on the other machine while this one listens: " + t.PeerCommand())}}
		}
		return r, err
	})
}

// Peer tests the way to a peer that listens.
func (t Test) Peer(ctx context.Context, peer netip.Addr) (Result, error) {
	return t.carried(func() (Result, error) { return t.judge(t.client(ctx, t.Timeout, peer)) })
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
func (t Test) judge(sides ...side) (Result, error) {
	for _, s := range sides {
		failed := new(host.ProgramError)
		if s.err != nil && !errors.As(s.err, &failed) && !errors.Is(s.err, host.ErrLimit) && !errors.Is(s.err, host.ErrStopped) {
			return Result{}, s.err
		}
	}
	first := sides[0]
	n := first.iterations()
	r := Result{Verdict: Fail, Seconds: &first.seconds, Iterations: n, Bytes: int64(n) * int64(t.Size), Causes: []Cause{}, Warnings: []string{}}
	if first.err == nil && n >= t.Count {
		r.Verdict = Pass
		return r, nil
	}
	var messages []string
	for _, s := range sides {
		messages = append(messages, s.messages())
	}
	r.Causes = append(r.Causes, inContainer(t.Container, diagnose(messages...))...)
	if len(r.Causes) > 0 {
		return r, nil
	}
	switch {
	case errors.Is(first.err, host.ErrLimit):
		r.Causes = append(r.Causes, Cause{Cause: fmt.Sprintf("the test did not end within %s", t.Timeout), Remedy: RoCEFirewall})
	case first.err != nil:
		r.Causes = append(r.Causes, unexplained(first.err))
	default:
		r.Causes = append(r.Causes, Cause{Cause: fmt.Sprintf("the connection ended after %d of %d iterations", n, t.Count),
			Remedy: "see the messages of the other side; give both sides the same --iterations"})
	}
	return r, nil
}

// carried runs a test of the way between two machines, and warns if its packets did not pass the
// port.
func (t Test) carried(test func() (Result, error)) (Result, error) {
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
	for _, c := range r.Counters {
		if c.Error {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: the error counter %s rose by %d during the test", t.Target, c.Name, c.Delta))
		}
	}
	return r, nil
}
