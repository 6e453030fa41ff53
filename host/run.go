package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Runner starts programs of the machine below its root: as they are where that is
// "/", else with the root as theirs (chroot(2)), for which one must be root.
type Runner struct {
	Root Root
	// Talk, if it is set, gets what programs print. Its errors are ignored: a program does not
	// fail because its output cannot be shown.
	Talk io.Writer
	// Stop, if it is set, ends running programs once it is closed, and lets none start.
	Stop <-chan struct{}
	// Limit, if it is not 0, is the time after which a running program is killed. It is for
	// programs that write no files.
	Limit time.Duration
	// Expendable programs write no files and may be killed at any time: they are killed when Stop is
	// closed, and by the kernel when this process ends, however it ends (prctl(2), PR_SET_PDEATHSIG).
	Expendable bool
	// Most, if it is not 0, is how many bytes are kept of what a program writes to standard output,
	// and how many of what it writes to standard error; the rest is dropped.
	Most int
	// Input, if it is set, is what programs read from standard input.
	Input []byte
	// Unprivileged programs run as nobody, if this process is root's.
	Unprivileged bool
	// Dirs are where programs are looked for; nil for the folders of administration programs
	// (hier(7)).
	Dirs []string
}

// programDirs are where a machine's administration programs lie (hier(7)).
var programDirs = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// Errors of programs.
var (
	// ErrNoProgram says that a program is not installed.
	ErrNoProgram = WithHint(errors.New("no such program"), "install it, or run it later: with --no-rebuild")
	// ErrStopped says that a program was ended, or not started, because Runner.Stop was closed.
	ErrStopped = errors.New("was stopped")
	// ErrLimit means that a program was killed because it did not end within Runner.Limit.
	ErrLimit = WithHint(errors.New("did not end in time"), "run it by hand to see where it hangs; the kernel's log may say more: journalctl -k")
)

// nobody is the user and group of unprivileged programs, as all distributions number it.
const nobody = 65534

// Find returns where a program lies below the root. A path is the program's own.
func (r Runner) Find(program string) (string, error) {
	dirs := r.Dirs
	switch {
	case path.IsAbs(program):
		dirs = []string{"/"}
	case dirs == nil:
		dirs = programDirs
	}
	for _, dir := range dirs {
		name := path.Join(dir, program)
		switch ok, err := r.Root.Exists(name); {
		case err != nil:
			return "", err
		case ok:
			return name, nil
		}
	}
	return "", fmt.Errorf("%s: %w", program, ErrNoProgram)
}

// errNotMounted is the error of a root without the kernel's file systems, which programs need.
var errNotMounted = WithHint(errors.New("is not mounted below the root, but programs that run there need it"), "mount them, or run the programs on the machine itself: without --rebuild")

// Ready is an error unless, on a root elsewhere, the file systems of the kernel are mounted below
// it, and every program is there: grub-mkconfig without them writes menus that do not boot.
func (r Runner) Ready(programs []Program) error {
	programs = slices.DeleteFunc(slices.Clone(programs), func(p Program) bool { return p.Kind == RevertBoot }) // this program itself
	if len(programs) == 0 {
		return nil
	}
	var errs []error
	for _, mount := range []struct {
		dir   string
		magic int64
	}{{"/proc", unix.PROC_SUPER_MAGIC}, {"/sys", unix.SYSFS_MAGIC}} {
		var stat unix.Statfs_t
		if err := unix.Statfs(r.Root.Path(mount.dir), &stat); err != nil || stat.Type != mount.magic {
			errs = append(errs, fmt.Errorf("%s: %w", r.Root.Path(mount.dir), errNotMounted))
		}
	}
	var stat unix.Stat_t
	if err := unix.Stat(r.Root.Path("/dev/null"), &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		errs = append(errs, fmt.Errorf("%s: %w", r.Root.Path("/dev"), errNotMounted))
	}
	if errs != nil { // a tree of files alone may have no program either
		return errors.Join(errs...)
	}
	for _, p := range programs {
		_, err := r.Find(p.Argv()[0])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ProgramError tells of a program that failed.
type ProgramError struct {
	Argv   []string
	Status string // "exit status 1", "signal: killed"
	Last   string // the last line it wrote to standard error
	Stderr string // all that it wrote to standard error
}

func (e *ProgramError) Error() string {
	s := strings.Join(e.Argv, " ") + ": " + e.Status
	if e.Last != "" {
		s += ": " + e.Last
	}
	return s
}

// Run runs a program to its end and returns what it wrote to standard output. It
// gets no environment but PATH and a locale that programs speak English in.
//
// Once ctx has ended no program starts, but a running one is left to end by itself: a program
// that writes a boot menu or an initramfs must not be stopped half-way. For the same reason it
// runs in a session of its own, where the terminal's Ctrl-C does not reach it, and where it
// cannot read from the terminal. Only Runner.Stop ends it.
func (r Runner) Run(ctx context.Context, argv []string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(argv, " "), context.Cause(ctx))
	}
	name, err := r.Find(argv[0])
	if err != nil {
		return nil, err
	}
	stdout, stderr := kept{most: r.Most}, kept{most: r.Most}
	cmd := exec.Command(name, argv[1:]...) //nolint:gosec // to run programs is what this is for
	cmd.Args[0] = argv[0]
	cmd.Env = []string{"PATH=" + strings.Join(programDirs, ":"), "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if r.Talk != nil {
		talk := unfailing{r.Talk}
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, talk), io.MultiWriter(&stderr, talk)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if r.Input != nil {
		cmd.Stdin = bytes.NewReader(r.Input)
	}
	if r.Unprivileged && unix.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.Dir = "/"
	}
	if r.Expendable {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		// The signal is sent when the thread ends that has started the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	if dir := r.Root.Path("/"); dir != "/" {
		cmd.Path = name // below the new root
		cmd.Dir = "/"
		cmd.SysProcAttr.Chroot = dir
		cmd.Err = nil
	}
	err = r.wait(cmd)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		lines := strings.Split(strings.TrimSpace(stderr.buffer.String()), "\n")
		return stdout.buffer.Bytes(), &ProgramError{argv, exit.String(), lines[len(lines)-1], stderr.buffer.String()}
	case err != nil:
		return stdout.buffer.Bytes(), fmt.Errorf("%s: %w", strings.Join(argv, " "), Cause(err))
	}
	return stdout.buffer.Bytes(), nil
}

// kept is a buffer that keeps the first bytes that are written to it: most of them, or all if most
// is 0.
type kept struct {
	buffer bytes.Buffer // not embedded: its ReadFrom would keep all
	most   int
}

func (k *kept) Write(p []byte) (int, error) {
	keep := p
	if k.most > 0 {
		keep = p[:min(len(p), max(k.most-k.buffer.Len(), 0))]
	}
	k.buffer.Write(keep)
	return len(p), nil
}

// unfailing is a writer whose errors are ignored. An error would close the pipe that a running
// program writes to, and SIGPIPE would end the program half-way.
type unfailing struct{ io.Writer }

func (u unfailing) Write(p []byte) (int, error) {
	u.Writer.Write(p) //nolint:errcheck // see above
	return len(p), nil
}

// again is the time after which a program that is still running gets SIGINT again. A shell loses
// the signal between vfork(2) and execve(2) of a program that it starts (dash, Debian 12).
const again = 3 * time.Second

// wait runs a program to its end, or until Stop is closed: then it gets the SIGINT that Ctrl-C
// would have sent, with all processes that it started.
func (r Runner) wait(cmd *exec.Cmd) error {
	select {
	case <-r.Stop:
		return ErrStopped
	default:
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var late <-chan time.Time
	if r.Limit > 0 {
		late = time.After(r.Limit)
	}
	select {
	case err := <-ended:
		return err
	case <-late:
		return errors.Join(fmt.Errorf("%w (%s)", ErrLimit, r.Limit), kill(cmd, ended))
	case <-r.Stop:
		if r.Expendable {
			return errors.Join(ErrStopped, kill(cmd, ended))
		}
	}
	repeat := time.NewTicker(again)
	defer repeat.Stop()
	for {
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGINT); err != nil && !errors.Is(err, unix.ESRCH) {
			<-ended //nolint:errcheck // the program ended without the signal
			return errors.Join(ErrStopped, err)
		}
		select {
		case <-ended: //nolint:errcheck // that the signal has ended it
			return ErrStopped
		case <-repeat.C:
		}
	}
}

// kill kills a program with all processes that it started. A process in uninterruptible sleep is
// left behind.
func kill(cmd *exec.Cmd, ended <-chan error) error {
	err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	if errors.Is(err, unix.ESRCH) {
		err = nil
	}
	select {
	case <-ended: //nolint:errcheck // that it was killed
	case <-time.After(killed):
	}
	return err
}
