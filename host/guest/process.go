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

// process is one as /proc shows it.
type process struct {
	pid     int
	comm    string
	state   byte
	threads int
	ticks   uint64 // from boot to its start
	argv    []string
	files   []string // targets of its descriptors that have to do with VFIO
}

// dir is the process's folder.
func (p process) dir() string {
	return fmt.Sprintf("/proc/%d", p.pid)
}

const procDir = "/proc"

// firstPIDs is what /proc/1/ns/pid leads to where process 1 is the machine's own: the
// first namespace has a number of its own (Linux, include/uapi/linux/nsfs.h,
// PID_NS_INIT_INO). In any other, /proc lacks the processes outside it.
const firstPIDs = "pid:[4026531836]"

// maxArguments is more than the arguments of a process can take: a third of its stack's
// limit, and 6 MiB at most (execve(2)).
const maxArguments = 6<<20 + 1

// processes reads all processes. One that ends meanwhile is none.
func (o *observer) processes() []process {
	l := o.look(sourceProcesses)
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
	o.allAreSeen(processes)
	l.read = append(l.read, fmt.Sprintf("%d of %s", len(processes), procDir))
	files := o.look(sourceVFIO)
	files.read = append(files.read, fmt.Sprintf("open files of %d processes", len(processes)))
	return processes
}

// allAreSeen faults a /proc that hides processes: of other users (proc(5), hidepid),
// or outside a container.
func (o *observer) allAreSeen(processes []process) {
	l := o.look(sourceProcesses)
	if len(processes) == 0 || processes[0].pid != 1 {
		l.faultf("%s: process 1 is not shown: it may hide others too", procDir)
		return
	}
	dir, err := o.root.OpenDir("/proc/1/ns")
	if err != nil {
		l.faultf("/proc/1/ns: %v", host.Cause(err))
		return
	}
	defer dir.Close() //nolint:errcheck // only read from
	switch target, err := dir.Readlink("pid"); {
	case err != nil:
		l.faultf("/proc/1/ns/pid: %v", err)
	case target != firstPIDs:
		l.faultf("/proc/1/ns/pid: %s: shows the processes of a container only", target)
	}
}

type processReader struct {
	*observer
	proc *host.Dir
	buf  []byte
}

// read reads a process; it is not ok where it has ended, or could not be read.
func (r processReader) read(name string, pid int) (process, bool) {
	p := process{pid: pid}
	l := r.look(sourceProcesses)
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
		// The files of the others are not shown here.
		l.faultf("%s: its first thread has ended before the others", p.dir())
	case !ended && len(p.argv) == 0 && err == nil && isQEMU(p.comm):
		// The arguments go first when a process ends, its devices much later.
		l.faultf("%s: %s is starting or ending, and does not show its arguments", p.dir(), p.comm)
	}
	p.files = r.files(p)
	return p, true
}

// note faults a source, unless the process has ended.
func (r processReader) note(l *look, p process, file string, err error) (ended bool) {
	if host.IsAbsent(err) || errors.Is(err, unix.ESRCH) {
		if there, err := r.root.Exists(p.dir()); err == nil && !there {
			return true
		}
	}
	l.faultf("%s: %v", path.Join(p.dir(), file), host.Cause(err))
	return false
}

// files returns where the descriptors lead that have to do with VFIO (proc_pid_fd(5)).
func (r processReader) files(p process) []string {
	l := r.look(sourceVFIO)
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
		case host.IsAbsent(err), errors.Is(err, unix.ESRCH): // closed meanwhile
		case err != nil: // and of the others too: once is enough
			l.faultf("%s: %v", path.Join(name, number), err)
			return files
		case strings.Contains(target, "vfio"):
			files = append(files, target)
		}
	}
	return files
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). The name stands in brackets and
// may hold any character, brackets too.
func (p *process) parseStat(text string) error {
	text = valid(text)
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return fmt.Errorf("has no name: %.40q", text)
	}
	p.comm = text[open+1 : end]
	// Fields by the numbers of the manual, which counts from 1.
	const state, threads, start = 3, 20, 22
	fields := append([]string{"", "", ""}, strings.Fields(text[end+1:])...)
	if len(fields) <= start {
		return fmt.Errorf("has %d fields", len(fields)-1)
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

// splitArguments reads /proc/PID/cmdline: each argument ends with a zero
// (proc_pid_cmdline(5)).
func splitArguments(text string) []string {
	if text = strings.TrimSuffix(text, "\x00"); text == "" {
		return nil
	}
	return strings.Split(valid(text), "\x00")
}

// program is the name of the program that a process was started as.
func (p process) program() string {
	if len(p.argv) == 0 {
		return ""
	}
	return path.Base(p.argv[0])
}

const novaCompute = "nova-compute"

// novaCompute returns the arguments up to the name of nova-compute, where the process
// is one: the kernel names a process after the script it was started by, Python shows
// that script as an argument. To take another for it is safe, to miss it is not.
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
