package containertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/cuda"
	"gpustack/host/cuda/answer"
	"gpustack/host/edit"
	"gpustack/host/engine"
)

// Place is where a program ran.
type Place string

// The places.
const (
	InContainer Place = "container"
	OnHost      Place = "host"
)

func (p Place) String() string {
	if p == OnHost {
		return "on the host"
	}
	return "in the container"
}

// Run is one run of the program.
type Run struct {
	Place   Place
	Seconds float64 // in a container with its start
	// Answer is what cudaprobe said, nil for a command.
	Answer *answer.Answer
	// Lines are what a command has printed, on standard output and then on standard error.
	Lines    []string
	Programs []cuda.Program // that were recognized in these lines
	Causes   []Cause        // why the run failed; none if it has not
}

// Result is the result of a test.
type Result struct {
	Verdict  Verdict
	Runs     []Run // the first one is in the container
	Compared []Compared
	Warnings []string
}

// Causes returns why the test failed: those of the first run that failed.
func (r Result) Causes() []Cause {
	for _, run := range r.Runs {
		if len(run.Causes) > 0 {
			return run.Causes
		}
	}
	return nil
}

// inside is where containers see cudaprobe.
const inside = "/gpustack-cudaprobe"

// mostOutput is how many bytes of what a command prints are kept, of each stream. The rest is left
// out: a command may print without end.
const mostOutput = 1 << 20

// rounds are how many runs a comparison has in each place.
const rounds = 5

// programs are what is run in each place.
type programs map[Place][]string

// Test runs the program in a container, and with Compare in both places in turn, until one fails.
// begins is called before each run.
func (m Machine) Test(ctx context.Context, begins func(Place)) (r Result, err error) {
	run := programs{OnHost: m.Command, InContainer: m.Command}
	if len(m.Command) == 0 {
		file, remove, failed := edit.Scratch(m.Root, "cudaprobe", m.probe)
		if failed != nil {
			return r, failed
		}
		defer func() { err = errors.Join(err, remove()) }()
		run = programs{OnHost: {file}, InContainer: {inside}}
		m.Container.Mounts = []engine.Mount{{From: file, To: inside}}
	}
	places := []Place{InContainer}
	if m.Compare {
		places = slices.Repeat([]Place{InContainer, OnHost}, rounds)
	}
	r.Verdict = Pass
	for _, p := range places {
		begins(p)
		ran, err := m.run(ctx, p, run[p])
		if err != nil {
			return r, err
		}
		r.Runs = append(r.Runs, ran)
		if len(ran.Causes) > 0 {
			r.Verdict = Fail
			break
		}
	}
	if m.denied {
		r.Warnings = append(r.Warnings, "SELinux denies device nodes to labelled containers: this one was started with --security-opt label=disable")
	}
	if first := r.Runs[0]; first.Answer != nil {
		if extra := m.extra(*first.Answer); len(extra) > 0 && r.Verdict == Pass {
			r.Warnings = append(r.Warnings, fmt.Sprintf("the container also has %s: %s gives it more than %s", strings.Join(extra, " and "),
				m.Container.Devices[0], m.Device))
		}
	}
	if m.Compare && r.Verdict == Pass {
		r.Compared = compare(r.Runs)
	}
	return r, nil
}

// asNobody returns the command that runs a program on the host as the container's user, without a
// capability and without the right to gain one, so that libcuda makes no device node: neither
// itself nor by nvidia-modprobe, which is setuid. Of several GPUs it sees the one that is tested.
func (m Machine) asNobody(program []string) []string {
	user := strconv.Itoa(engine.User)
	argv := []string{
		"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all",
		// The kernel kills no program with gpustack that has become another user (prctl(2)).
		"timeout", "--foreground", "--signal=KILL", strconv.Itoa(int(m.Timeout/time.Second) + 5),
	}
	if gpu := m.Driver.GPU(m.Device); gpu != nil && gpu.UUID != nil {
		argv = append(argv, "env", "CUDA_VISIBLE_DEVICES="+*gpu.UUID)
	}
	return append(argv, program...)
}

// noLoader are the words of engines and runtimes for a program whose loader is missing: the program
// itself is mounted.
var noLoader = host.LazyRegexp(`(?i)exec.*no such file or directory`)

// run runs the program once. An error is that of what started it; a failure of the program is a
// cause.
func (m Machine) run(ctx context.Context, p Place, program []string) (Run, error) {
	runner := m.Runner
	runner.Limit, runner.Stop, runner.Expendable, runner.Most = m.Timeout, ctx.Done(), true, mostOutput
	begun := time.Now()
	var stdout []byte
	var err error
	if p == OnHost {
		stdout, err = runner.Run(ctx, m.asNobody(program))
	} else {
		stdout, err = m.Container.Run(ctx, runner, "gpustack-container-test-", program)
	}
	run := Run{Place: p, Seconds: time.Since(begun).Seconds()}
	failed := new(host.ProgramError)
	isProgram := errors.As(err, &failed)
	switch {
	case ctx.Err() != nil && !errors.Is(err, engine.ErrLeft): // without the words of the command, which may contain secrets
		return run, context.Cause(ctx)
	case len(m.Command) == 0 && p == InContainer && (errors.Is(err, engine.ErrNoProgram) || isProgram && noLoader().MatchString(failed.Stderr)):
		return run, fmt.Errorf("%s: %w", m.Image, ErrNoGlibc)
	case errors.Is(err, host.ErrLimit):
		run.Causes = []Cause{{Cause: fmt.Sprintf("the program did not end within %s %s", m.Timeout, p),
			Remedy: "journalctl -k --grep NVRM; a longer time: --wait"}}
		return run, nil
	case errors.Is(err, engine.ErrStart), errors.Is(err, engine.ErrNoProgram), errors.Is(err, engine.ErrLeft):
		return run, err
	case err != nil && !isProgram: // likewise: errors of Run begin with them
		return run, fmt.Errorf("the program was not started %s: %w", p, errors.Unwrap(err))
	}
	if len(m.Command) > 0 {
		run.command(stdout, failed)
		return run, nil
	}
	a := new(answer.Answer)
	if json.Unmarshal(stdout, a) != nil || a.Version != answer.Version {
		words := failed.Last
		if words == "" {
			words = "it printed no answer"
		}
		run.Causes = []Cause{{Message: words, Cause: fmt.Sprintf("cudaprobe failed %s", p), Remedy: check}}
		return run, nil
	}
	run.Answer, run.Causes = a, m.judge(*a, p.String())
	return run, nil
}

// command completes the run of a command by what it printed.
func (r *Run) command(stdout []byte, failed *host.ProgramError) {
	for _, text := range []string{string(stdout), failed.Stderr} {
		if text = strings.TrimRight(text, "\n"); text != "" {
			r.Lines = append(r.Lines, strings.Split(text, "\n")...)
		}
	}
	output := cuda.Output{Lines: r.Lines}
	if len(stdout) == mostOutput {
		output.Gap = new(len(r.Lines))
	}
	r.Programs = cuda.Programs(output)
	if failed.Status != "" {
		r.Causes = append(r.Causes, Cause{Cause: fmt.Sprintf("the command ended with %s %s", failed.Status, r.Place),
			Remedy: "see its output: --console"})
	}
	for _, p := range r.Programs {
		if p.GPUs != nil && *p.GPUs == 0 {
			r.Causes = append(r.Causes, Cause{Cause: fmt.Sprintf("%s finds no GPU %s", p.Name, r.Place), Remedy: check})
		}
	}
}
