package containertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/cuda/answer"
	"gpustack/host/edit"
	"gpustack/host/engine"
)

// Result is the result of a test.
type Result struct {
	Verdict Verdict `json:"verdict"` // "fail" if the run failed
	// the duration, with the start of the container
	Seconds float64 `json:"elapsed_seconds"`
	// the report of cudaprobe; null for a command, and if cudaprobe reported nothing
	Answer *answer.Answer `json:"cuda"`
	// what the command printed, standard output first; null without --console
	Lines []string `json:"output_lines" null:"zero"`
	// why the test failed; empty if it passed
	Causes   []Cause  `json:"causes"`
	Warnings []string `json:"warnings"` // such as other GPUs that the container has too
}

// inside is where containers see cudaprobe.
const inside = "/gpustack-cudaprobe"

// mostOutput is how many bytes of what a command prints are kept, of each stream. The rest is left
// out: a command may print without end.
const mostOutput = 1 << 20

// Test runs the program in a container.
func (m Observed) Test(ctx context.Context) (r Result, err error) {
	program := m.Command
	if len(program) == 0 {
		file, remove, failed := edit.Scratch(m.Root, "cudaprobe", m.probe)
		if failed != nil {
			return r, failed
		}
		defer func() { err = errors.Join(err, remove()) }()
		program, m.Container.Mounts = []string{inside}, []engine.Mount{{From: file, To: inside}}
	}
	if r, err = m.run(ctx, program); err != nil {
		return r, err
	}
	if r.Verdict = Pass; len(r.Causes) > 0 {
		r.Verdict = Fail
	}
	if m.denied {
		r.Warnings = append(r.Warnings, "SELinux denies device nodes to labelled containers: this one was started with --security-opt label=disable")
	}
	if r.Answer != nil && r.Verdict == Pass {
		if extra := m.extra(*r.Answer); len(extra) > 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("the container also has %s: %s gives it more than %s", strings.Join(extra, " and "),
				m.Container.Devices[0], m.Device))
		}
	}
	return r, nil
}

// noLoader are the words of engines and runtimes for a program whose loader is missing: the program
// itself is mounted.
var noLoader = host.LazyRegexp(`(?i)exec.*no such file or directory`)

// run runs the program. An error is that of what started it; a failure of the program is a cause.
func (m Observed) run(ctx context.Context, program []string) (r Result, err error) {
	runner := m.Runner
	runner.Limit, runner.Stop, runner.Expendable, runner.Most = m.Timeout, ctx.Done(), true, mostOutput
	begun := time.Now()
	stdout, err := m.Container.Run(ctx, runner, "gpustack-container-test-", program)
	r.Seconds = time.Since(begun).Seconds()
	failed := new(host.ProgramError)
	isProgram := errors.As(err, &failed)
	switch {
	case ctx.Err() != nil && !errors.Is(err, engine.ErrLeft): // without the words of the command, which may contain secrets
		return r, context.Cause(ctx)
	case len(m.Command) == 0 && (errors.Is(err, engine.ErrNoProgram) || isProgram && noLoader().MatchString(failed.Stderr)):
		return r, fmt.Errorf("%s: %w", m.Image, ErrNoGlibc)
	case errors.Is(err, host.ErrLimit):
		r.Causes = []Cause{{Cause: fmt.Sprintf("the program did not end within %s in the container", m.Timeout),
			Remedy: host.Plain("journalctl -k --grep NVRM; a longer time: --wait")}}
		return r, nil
	case errors.Is(err, engine.ErrStart), errors.Is(err, engine.ErrNoProgram), errors.Is(err, engine.ErrLeft):
		return r, err
	case err != nil && !isProgram: // likewise: errors of Run begin with them
		return r, fmt.Errorf("the program was not started in the container: %w", errors.Unwrap(err))
	case len(m.Command) > 0:
		for _, text := range []string{string(stdout), failed.Stderr} {
			if text = strings.TrimRight(text, "\n"); text != "" {
				r.Lines = append(r.Lines, strings.Split(text, "\n")...)
			}
		}
		if failed.Status != "" {
			r.Causes = []Cause{{Cause: fmt.Sprintf("the command ended with %s in the container", failed.Status), Remedy: host.Plain("see its output: --console")}}
		}
		return r, nil
	}
	a := new(answer.Answer)
	if json.Unmarshal(stdout, a) != nil || a.Version != answer.Version {
		words := failed.Last
		if words == "" {
			words = "it printed no answer"
		}
		r.Causes = []Cause{{Message: words, Cause: "cudaprobe failed in the container", Remedy: check}}
		return r, nil
	}
	r.Answer, r.Causes = a, m.judge(*a)
	return r, nil
}
