package guest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// process is a process as /proc shows it.
type process struct {
	pid     int
	comm    string
	state   byte
	threads int
	ticks   uint64 // start time, in ticks since boot
	argv    []string
	files   []string // targets of its open file descriptors that contain "vfio"
}

// dir returns the directory of the process.
func (p process) dir() string {
	return fmt.Sprintf("/proc/%d", p.pid)
}

const procDir = "/proc"

// firstPIDs is the target of /proc/1/ns/pid in the initial PID namespace, which has a fixed number
// (Linux, include/uapi/linux/nsfs.h, PID_NS_INIT_INO). In any other namespace, /proc lacks the
// processes outside it.
const firstPIDs = "pid:[4026531836]"

// maxArguments is more than the size of a process's arguments, which is 6 MiB at most (execve(2)).
const maxArguments = 6<<20 + 1

// processes reads all processes, without those that end during the call.
func (o *observer) processes() []process {
	l := o.access(sourceProcesses)
	names, err := o.root.ReadDir(procDir)
	if err != nil {
		l.fail(procDir, err)
		return nil
	}
	proc, err := o.root.OpenDir(procDir)
	if err != nil {
		l.fail(procDir, err)
		return nil
	}
	defer proc.Close() //nolint:errcheck // only read from
	var processes []process
	reader := processReader{o, proc, make([]byte, maxArguments)}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 {
			continue
		}
		if p, ok := reader.read(name, pid); ok {
			processes = append(processes, p)
		}
	}
	slices.SortFunc(processes, func(a, b process) int { return a.pid - b.pid })
	o.checkVisible(processes)
	l.read = append(l.read, fmt.Sprintf("%d of %s", len(processes), procDir))
	files := o.access(sourceVFIO)
	files.read = append(files.read, fmt.Sprintf("open files of %d processes", len(processes)))
	return processes
}

// checkVisible records a failure if /proc hides processes: those of other users (proc(5), hidepid)
// or those outside a container.
func (o *observer) checkVisible(processes []process) {
	l := o.access(sourceProcesses)
	if len(processes) == 0 || processes[0].pid != 1 {
		l.failf("%s: process 1 is hidden, others may be too", procDir)
		return
	}
	dir, err := o.root.OpenDir("/proc/1/ns")
	if err != nil {
		l.failf("/proc/1/ns: %v", host.Cause(err))
		return
	}
	defer dir.Close() //nolint:errcheck // only read from
	switch target, err := dir.Readlink("pid"); {
	case err != nil:
		l.failf("/proc/1/ns/pid: %v", err)
	case target != firstPIDs:
		l.failf("/proc/1/ns/pid: %s: only the processes of a container are visible", target)
	}
}

type processReader struct {
	*observer
	proc *host.Dir
	buf  []byte
}

// read reads a process. It returns false if the process has ended or cannot be read.
func (r processReader) read(name string, pid int) (process, bool) {
	p := process{pid: pid}
	l := r.access(sourceProcesses)
	dir, _, err := r.proc.Enter(name)
	if err != nil {
		r.note(l, p, "", err)
		return p, false
	}
	defer dir.Close() //nolint:errcheck // only read from
	data, err := dir.ReadAttribute("stat", r.buf)
	if err == nil {
		err = p.parseStat(string(data))
	}
	if err != nil {
		r.note(l, p, "stat", err)
		return p, false
	}
	data, err = dir.ReadAttribute("cmdline", r.buf)
	if err != nil && r.note(l, p, "cmdline", err) {
		return p, false
	}
	p.argv = splitArguments(string(data))
	ended := p.state == 'Z' || p.state == 'X'
	switch {
	case ended && p.threads > 1:
		// The directory no longer shows the open files of the other threads.
		l.failf("%s: the first thread has ended before the others", p.dir())
	case !ended && len(p.argv) == 0 && err == nil && isQEMU(p.comm):
		// An ending process loses its arguments first and closes its devices much later.
		l.failf("%s: %s is starting or ending, its arguments are not available", p.dir(), p.comm)
	}
	p.files = r.files(p)
	return p, true
}

// note records a failure to read a file of a process, unless the process has ended.
func (r processReader) note(l *access, p process, file string, err error) (ended bool) {
	if host.IsAbsent(err) || errors.Is(err, unix.ESRCH) {
		if there, err := r.root.Exists(p.dir()); err == nil && !there {
			return true
		}
	}
	l.failf("%s: %v", path.Join(p.dir(), file), host.Cause(err))
	return false
}

// files returns the targets of open file descriptors that contain "vfio" (proc_pid_fd(5)).
func (r processReader) files(p process) []string {
	l := r.access(sourceVFIO)
	name := path.Join(p.dir(), "fd")
	numbers, err := r.root.ReadDir(name)
	if err != nil {
		r.note(l, p, "fd", err)
		return nil
	}
	if len(numbers) == 0 {
		return nil
	}
	dir, err := r.root.OpenDir(name)
	if err != nil {
		r.note(l, p, "fd", err)
		return nil
	}
	defer dir.Close() //nolint:errcheck // only read from
	var files []string
	for _, number := range numbers {
		target, err := dir.Readlink(number)
		switch {
		case host.IsAbsent(err), errors.Is(err, unix.ESRCH): // just closed
		case err != nil: // the other descriptors would fail alike
			l.failf("%s: %v", path.Join(name, number), err)
			return files
		case strings.Contains(target, "vfio"):
			files = append(files, target)
		}
	}
	return files
}

// parseStat parses /proc/PID/stat (proc_pid_stat(5)). The name is in parentheses and may contain
// any character, even parentheses.
func (p *process) parseStat(text string) error {
	text = valid(text)
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return fmt.Errorf("no name in parentheses: %.40q", text)
	}
	p.comm = text[open+1 : end]
	// Fields are numbered as in the manual, from 1.
	const state, threads, start = 3, 20, 22
	fields := append([]string{"", "", ""}, strings.Fields(text[end+1:])...)
	if len(fields) <= start {
		return fmt.Errorf("only %d fields", len(fields)-1)
	}
	p.state = fields[state][0]
	var err error
	if p.threads, err = strconv.Atoi(fields[threads]); err != nil {
		return fmt.Errorf("num_threads: %w", err)
	}
	if p.ticks, err = strconv.ParseUint(fields[start], 10, 64); err != nil {
		return fmt.Errorf("starttime: %w", err)
	}
	return nil
}

// splitArguments parses /proc/PID/cmdline, in which each argument ends with a zero byte
// (proc_pid_cmdline(5)).
func splitArguments(text string) []string {
	if text = strings.TrimSuffix(text, "\x00"); text == "" {
		return nil
	}
	return strings.Split(valid(text), "\x00")
}

// program returns the name of the program that a process was started as, or "".
func (p process) program() string {
	if len(p.argv) == 0 {
		return ""
	}
	return path.Base(p.argv[0])
}

const novaCompute = "nova-compute"

// novaCompute reports whether the process is nova-compute, and returns its arguments up to that
// name. The kernel names a process after the script that started it; Python has the script among
// its arguments. It matches generously: to miss a nova-compute is dangerous, to see one too many is
// not.
func (p process) novaCompute() (command string, ok bool) {
	if strings.HasPrefix(p.program(), novaCompute) {
		return p.argv[0], true
	}
	if program := p.program(); strings.HasPrefix(program, "python") || strings.HasPrefix(program, "pypy") {
		for i, arg := range p.argv {
			if path.Base(arg) == novaCompute || arg == "nova.cmd.compute" {
				return strings.Join(p.argv[:i+1], " "), true
			}
		}
	}
	return p.comm, p.comm == novaCompute
}
