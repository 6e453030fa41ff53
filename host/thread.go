package host

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReadThreads calls read for a process. If its first thread has ended, which the kernel still lists
// as a zombie, the others have its files and namespaces, and read is called for these until one
// could be read; /proc shows a thread as it does a process (proc_pid_task(5)). ended says that none
// is left.
func ReadThreads(root Root, pid int, read func(thread int) error) (ended bool, err error) {
	first := read(pid)
	if first == nil {
		return false, nil
	}
	if !threadHasEnded(root, pid, first) {
		return false, first
	}
	threads, err := root.ReadDir(ProcessFile(pid, "task"))
	if HasEnded(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, name := range threads {
		thread, err := strconv.Atoi(name)
		if err != nil || thread == pid {
			continue
		}
		err = read(thread)
		if err == nil || !threadHasEnded(root, thread, err) {
			return false, err
		}
	}
	return true, nil
}

// threadHasEnded reports whether an error of reading a file of a thread only says that the thread
// has ended. A zombie is still listed, but has neither open files nor namespaces, and the kernel
// refuses to show them (EINVAL: Linux, mounts_open_common in fs/proc_namespace.c; EACCES or EPERM
// where other users may not read it), and so it is with one that is ending (exit_task_namespaces in
// kernel/nsproxy.c).
func threadHasEnded(root Root, thread int, err error) bool {
	if HasEnded(err) {
		return true
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return false
	}
	text, err := root.ReadFile(ProcessFile(thread, "stat"))
	if errors.Is(err, unix.ESRCH) {
		return true
	}
	if IsAbsent(err) {
		there, err := root.Exists(ProcessFile(thread, ""))
		return err == nil && !there
	}
	stat, parseErr := ParseProcessStat(string(text))
	return errors.Join(err, parseErr) == nil && stat.hasEnded()
}

// hasEnded reports whether the thread that the file is of has ended, or is ending.
func (s ProcessStat) hasEnded() bool { return s.Exiting || s.State == 'Z' || s.State == 'X' }

// emptyBecauseEnded returns ESRCH if a file of a thread is empty because the thread has ended: the
// kernel then shows no file and no memory of it, without an error (Linux, proc_readfd_common in
// fs/proc/fd.c, m_start in fs/proc/task_mmu.c).
func emptyBecauseEnded(root Root, thread int, name string) error {
	text, err := root.ReadFile(ProcessFile(thread, "stat"))
	if err != nil {
		return nil //nolint:nilerr // a tree has processes without it, and of one that is gone nothing is left to read
	}
	if stat, err := ParseProcessStat(string(text)); err == nil && stat.hasEnded() {
		return fmt.Errorf("%s: %w", name, unix.ESRCH)
	}
	return nil
}
