package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ProcDir is where the kernel shows processes (proc(5)). Paths and formats of its files are known
// here alone.
const ProcDir = "/proc"

// PIDs returns the ids of all processes, in order. On a tree without processes the error says that
// the folder is absent, or there are none.
func PIDs(root Root) ([]int, error) {
	names, err := root.ReadDir(ProcDir)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// ProcessFile returns the name of a file of a process, or with "" of its folder.
func ProcessFile(pid int, file string) string {
	return path.Join(ProcDir, strconv.Itoa(pid), file)
}

// HasEnded reports whether an error of reading a file of a process says that the process has ended
// meanwhile, or has closed the descriptor.
func HasEnded(err error) bool {
	return IsAbsent(err) || errors.Is(err, unix.ESRCH)
}

// ProcessStat is what /proc/PID/stat shows.
type ProcessStat struct {
	Name    string // of the program, as the kernel cuts it off
	State   byte   // Z for a process that has ended
	Exiting bool   // it is ending, and releases what it has (Linux, PF_EXITING in include/linux/sched.h)
	Parent  int
	Threads int
	Start   uint64 // ticks from boot to its start
}

// ParseProcessStat parses /proc/PID/stat (proc_pid_stat(5)). The name stands in brackets and may
// contain any character, brackets too.
func ParseProcessStat(text string) (ProcessStat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return ProcessStat{}, fmt.Errorf("no name in parentheses: %.40q", text)
	}
	s := ProcessStat{Name: text[open+1 : end]}
	// Fields by the numbers of the manual, which counts from 1.
	const state, parent, flags, threads, start = 3, 4, 9, 20, 22
	fields := append([]string{"", "", ""}, strings.Fields(text[end+1:])...)
	if len(fields) <= start {
		return s, fmt.Errorf("only %d fields", len(fields)-1)
	}
	s.State = fields[state][0]
	var err error
	if s.Parent, err = strconv.Atoi(fields[parent]); err != nil {
		return s, fmt.Errorf("ppid: %w", err)
	}
	of, err := strconv.ParseUint(fields[flags], 10, 32)
	if err != nil {
		return s, fmt.Errorf("flags: %w", err)
	}
	const exiting = 0x4
	s.Exiting = of&exiting != 0
	if s.Threads, err = strconv.Atoi(fields[threads]); err != nil {
		return s, fmt.Errorf("num_threads: %w", err)
	}
	if s.Start, err = strconv.ParseUint(fields[start], 10, 64); err != nil {
		return s, fmt.Errorf("starttime: %w", err)
	}
	return s, nil
}

// ParseArguments parses /proc/PID/cmdline: each argument ends with a zero byte
// (proc_pid_cmdline(5)). It returns nil for a process that shows none.
func ParseArguments(text string) []string {
	if text = strings.TrimSuffix(text, "\x00"); text == "" {
		return nil
	}
	return strings.Split(text, "\x00")
}

// MappedDevices returns the device nodes that a process has mapped into its memory, each once
// (proc_pid_maps(5)). A mapping keeps its file open after the descriptor is closed. An error names
// the file; HasEnded reports whether it says that the process has ended. Only lines of device nodes
// are recorded: the others only show addresses of the process's memory.
func MappedDevices(root Root, pid int) (files []string, err error) {
	name := ProcessFile(pid, "maps")
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	var kept []byte
	empty := true
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		empty = empty && len(line) == 0
		// Address, permissions, offset, device and inode have no slash but that of the path.
		if i := bytes.IndexByte(line, '/'); i >= 0 && bytes.HasPrefix(line[i:], []byte("/dev/")) {
			kept = append(kept, line...)
			if file := strings.TrimSuffix(string(line[i:]), "\n"); !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
		if errors.Is(err, io.EOF) {
			root.Record(name, kept)
			if empty {
				return nil, emptyBecauseEnded(root, pid, name)
			}
			return files, nil
		}
		if err != nil {
			return nil, OfFile(name, err)
		}
	}
}
