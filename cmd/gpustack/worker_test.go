package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gpustack/host/hosttest"
)

// workerName is the name of a process that runs one command line of the program after the other.
const workerName = "worker"

// TestMain runs the tests. Processes that they start are the program if their name is gpustack, or
// workers: thousands of command lines are run by a few of these, since the start of a process takes
// longer than most commands. A command line that needs a process of its own (signals, terminals,
// other programs around it, a record of a process that has ended) starts the program, and so must one
// that depends on what Go reads once per process: the variables of proxies, the root certificates and
// the time zone.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if name != "gpustack" && name != workerName {
		os.Exit(runAll(m))
	}
	if os.Getenv("UNPRIVILEGED") == "1" && os.Geteuid() == 0 {
		unprivileged()
	}
	if name == "gpustack" {
		os.Exit(runChecked(os.Args))
	}
	os.Args = []string{"gpustack"} // of the processes that the program starts
	if err := work(); !errors.Is(err, io.EOF) {
		panic(err)
	}
}

// runAll runs the tests with this program as gpustack in the PATH.
func runAll(m *testing.M) int {
	bin, err := os.MkdirTemp("", "gpustack-bin-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(bin)
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	// Programs find the path of gpustack: no link to another name.
	if out, err := exec.Command("cp", self, filepath.Join(bin, "gpustack")).CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	os.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	debug.SetGCPercent(400) // as run sets it
	status := m.Run()
	for _, workers := range idle {
		close(workers)
		for w := range workers {
			if err := errors.Join(w.input.Close(), w.process.Wait()); err != nil {
				panic(err)
			}
		}
	}
	return status
}

// commandLine is one that a worker runs, without the name of the program.
type commandLine struct {
	Dir  string
	Env  []string
	Args []string
}

// work runs the command lines from the file descriptor 4. The status of each is written to the file
// descriptor 3 when it has ended.
func work() (err error) {
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	lines, ended := json.NewDecoder(os.NewFile(4, "lines")), json.NewEncoder(os.NewFile(3, "ended"))
	for err == nil {
		var line commandLine
		if err = lines.Decode(&line); err != nil {
			break
		}
		os.Clearenv()
		for _, v := range line.Env {
			name, value, _ := strings.Cut(v, "=")
			err = errors.Join(err, os.Setenv(name, value))
		}
		if err = errors.Join(err, os.Chdir(line.Dir)); err == nil {
			err = ended.Encode(runChecked(append([]string{"gpustack"}, line.Args...)))
		}
	}
	return err
}

// worker is a process that runs command lines.
type worker struct {
	process        *exec.Cmd
	input          io.Closer // of lines
	stdout, stderr *os.File
	lines          *json.Encoder
	ended          *json.Decoder
}

// idle are the workers that run nothing, those without privileges apart.
var idle = map[bool]chan worker{false: make(chan worker, 100), true: make(chan worker, 100)}

// startWorker starts a worker, which ends with this process.
func startWorker(env []string) (w worker, err error) {
	c := exec.Command("gpustack")
	c.Args[0], c.Env, c.Dir, w.process = workerName, env, "/", c
	for _, f := range []**os.File{&w.stdout, &w.stderr} {
		if *f, err = os.CreateTemp("", "worker-"); err == nil {
			err = os.Remove((*f).Name())
		}
		if err != nil {
			return w, err
		}
	}
	c.Stdout, c.Stderr = w.stdout, w.stderr
	theirLines, lines, err := os.Pipe()
	if err != nil {
		return w, err
	}
	defer theirLines.Close()
	ended, theirEnded, err := os.Pipe()
	if err != nil {
		return w, err
	}
	defer theirEnded.Close()
	c.ExtraFiles = []*os.File{theirEnded, theirLines}
	w.input, w.lines, w.ended = lines, json.NewEncoder(lines), json.NewDecoder(ended)
	return w, c.Start()
}

// runProgram runs a command line of the program in a folder. To the environment of this process,
// but for the variables of a cloud, env is added.
func runProgram(t testing.TB, dir string, env []string, args ...string) output {
	t.Helper()
	dir, err := filepath.Abs(dir)
	hosttest.NoError(t, err)
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OS_") })
	o, err := runLine(commandLine{dir, append(own, env...), args})
	if err != nil {
		t.Fatalf("gpustack %q: %v: %s", args, err, o.stderr)
	}
	return o
}

// runLine runs a command line by a worker.
func runLine(line commandLine) (o output, err error) {
	workers := idle[slices.Contains(line.Env, "UNPRIVILEGED=1")]
	var w worker
	select {
	case w = <-workers:
	default:
		if w, err = startWorker(line.Env); err != nil {
			return o, err
		}
	}
	if err = w.lines.Encode(line); err == nil {
		err = w.ended.Decode(&o.status)
	}
	for f, text := range map[*os.File]*string{w.stdout: &o.stdout, w.stderr: &o.stderr} {
		printed, readErr := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
		*text = string(printed)
		_, seekErr := f.Seek(0, io.SeekStart) // of the worker too
		err = errors.Join(err, readErr, seekErr, f.Truncate(0))
	}
	if err == nil {
		workers <- w
	}
	return o, err
}
