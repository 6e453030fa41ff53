package guest

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

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
	files   []string // targets of its open file descriptors that contain "vfio" or "vhost-vdpa-"
}

// dir returns the directory of the process.
func (p process) dir() string {
	return host.ProcessFile(p.pid, "")
}

// firstPIDs is the target of /proc/1/ns/pid in the initial PID namespace, which has a fixed number
// (Linux, include/uapi/linux/nsfs.h, PID_NS_INIT_INO). In any other namespace, /proc lacks the
// processes outside it.
const firstPIDs = "pid:[4026531836]"

// Sizes of the arguments of a process: more than most have, and what the kernel allows (execve(2)).
const (
	usualArguments = 64 << 10
	maxArguments   = 6 << 20
)

// processes reads all processes, without those that end during the call.
func (o *observer) processes() []process {
	l := o.access(sourceProcesses)
	pids, err := host.PIDs(o.root)
	if err != nil {
		l.fail(host.ProcDir, err)
		return nil
	}
	proc, err := o.root.OpenDir(host.ProcDir)
	if err != nil {
		l.fail(host.ProcDir, err)
		return nil
	}
	defer proc.Close() //nolint:errcheck // only read from
	var processes []process
	reader := &processReader{o, proc, make([]byte, usualArguments)}
	for _, pid := range pids {
		if p, ok := reader.read(pid); ok {
			processes = append(processes, p)
		}
	}
	o.checkVisible(processes)
	l.read = append(l.read, fmt.Sprintf("%d of %s", len(processes), host.ProcDir))
	files := o.access(sourceVFIO)
	files.read = append(files.read, fmt.Sprintf("open files of %d processes", len(processes)))
	return processes
}

// checkVisible records a failure if /proc hides processes: those of other users (proc(5), hidepid)
// or those outside a container.
func (o *observer) checkVisible(processes []process) {
	l := o.access(sourceProcesses)
	if len(processes) == 0 || processes[0].pid != 1 {
		l.failf("%s: process 1 is hidden, others may be too", host.ProcDir)
		return
	}
	dir, err := o.root.OpenDir("/proc/1/ns")
	if err != nil {
		l.failf("%w", err)
		return
	}
	defer dir.Close() //nolint:errcheck // only read from
	switch target, err := dir.Readlink("pid"); {
	case err != nil:
		l.failf("/proc/1/ns/pid: %w", err)
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
func (r *processReader) read(pid int) (process, bool) {
	p := process{pid: pid}
	l := r.access(sourceProcesses)
	dir, _, err := r.proc.Enter(strconv.Itoa(pid))
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
	data, err = dir.ReadLong("cmdline", &r.buf, maxArguments)
	if err != nil && r.note(l, p, "cmdline", err) {
		return p, false
	}
	p.argv = host.ParseArguments(valid(string(data)))
	ended := p.state == 'Z' || p.state == 'X'
	switch {
	case ended && p.threads > 1:
		// The directory no longer shows the open files of the other threads.
		l.failf("%s: the first thread has ended before the others", p.dir())
	case !ended && len(p.argv) == 0 && err == nil && isQEMU(p.comm):
		// An ending process loses its arguments first and closes its devices much later.
		l.failf("%s: %s is starting or ending, its arguments are not available", p.dir(), p.comm)
	}
	if !ended {
		p.files = r.files(p)
	}
	return p, true
}

// note records a failure to read a file of a process, unless the process has ended.
func (r *processReader) note(l *access, p process, file string, err error) (ended bool) {
	if ended = r.hasEnded(p, err); !ended {
		l.failf("%w", host.OfFile(path.Join(p.dir(), file), err))
	}
	return ended
}

// hasEnded reports whether a process has ended, so that reading a file of it failed.
func (r *processReader) hasEnded(p process, err error) bool {
	if !host.HasEnded(err) {
		return false
	}
	there, err := r.root.Exists(p.dir())
	return err == nil && !there
}

// files returns the open files whose names contain "vfio" or "vhost-vdpa-".
func (r *processReader) files(p process) (files []string) {
	var opened []host.Descriptor
	_, err := host.ReadThreads(r.root, p.pid, func(thread int) (err error) {
		opened, err = host.Descriptors(r.root, thread)
		return err
	})
	if err != nil && !r.hasEnded(p, err) {
		r.access(sourceVFIO).failf("%w", err)
	}
	for _, d := range opened {
		if file := d.File(); strings.Contains(file, "vfio") || strings.Contains(file, nodePrefix) {
			files = append(files, file)
		}
	}
	return files
}

// parseStat parses /proc/PID/stat.
func (p *process) parseStat(text string) error {
	stat, err := host.ParseProcessStat(valid(text))
	p.comm, p.state, p.threads, p.ticks = stat.Name, stat.State, stat.Threads, stat.Start
	return err
}

// program returns the name of the program that a process was started as, or "".
func (p process) program() string {
	if len(p.argv) == 0 {
		return ""
	}
	return path.Base(p.argv[0])
}

const novaCompute = "nova-compute"

// runs reports whether the process runs a program of Nova, and returns its arguments up to the name
// of that. The kernel names a process after the script that started it; Python has the script among
// its arguments. It matches generously: to miss a nova-compute is dangerous, to see one too many is
// not.
func (p process) runs(program string) (command string, ok bool) {
	if strings.HasPrefix(p.program(), program) {
		return p.argv[0], true
	}
	if python := p.program(); strings.HasPrefix(python, "python") || strings.HasPrefix(python, "pypy") {
		for i, arg := range p.argv {
			if path.Base(arg) == program || arg == "nova.cmd."+strings.TrimPrefix(program, "nova-") {
				return strings.Join(p.argv[:i+1], " "), true
			}
		}
	}
	return p.comm, p.comm == program
}

// isOf reports whether the process runs a program of Nova as its own, or as the script that Python
// runs. Unlike runs, it misses processes rather than to see one of another program.
func (p process) isOf(program string) bool {
	argv := p.argv
	if strings.HasPrefix(p.program(), "python") {
		argv = argv[1:]
		for len(argv) > 0 && strings.HasPrefix(argv[0], "-") {
			argv = argv[1:]
		}
	}
	return len(argv) > 0 && path.Base(argv[0]) == program
}

// Started returns when the last process of each of Nova's programs was started: all others have
// started before. A program is left out if no process of it is seen, or processes of the machine
// below root may be hidden.
func Started(root host.Root, programs []string) map[string]time.Time {
	o := observer{root: root, accesses: map[string]*access{}}
	o.report.Booted = o.booted()
	processes, started := o.processes(), map[string]time.Time{}
	if !o.isRead(sourceProcesses, sourceBootTime) {
		return nil
	}
	for _, program := range programs {
		for _, p := range processes {
			if p.isOf(program) && o.started(p.ticks).After(started[program]) {
				started[program] = *o.started(p.ticks)
			}
		}
	}
	return started
}
