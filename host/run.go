package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Runner starts programs of the machine below its root: as they are where that is
// "/", else with the root as theirs (chroot(2)), for which one must be root.
type Runner struct {
	Root Root
	Talk io.Writer // gets what programs print
}

// programDirs are where a machine's administration programs lie (hier(7)).
var programDirs = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// ErrNoProgram says that a program is not installed.
var ErrNoProgram = errors.New("no such program")

// Find returns where a program lies below the root.
func (r Runner) Find(program string) (string, error) {
	for _, dir := range programDirs {
		name := path.Join(dir, program)
		switch ok, err := r.Root.Exists(name); {
		case err != nil:
			return "", fmt.Errorf("%s: %w", name, Cause(err))
		case ok:
			return name, nil
		}
	}
	return "", fmt.Errorf("%s: %w", program, ErrNoProgram)
}

// ErrNotMounted says that a root lacks what programs need that ask the kernel.
var ErrNotMounted = errors.New("is not mounted there, and programs run there would ask it")

// Ready is an error unless every program is there, and, on a root elsewhere, the
// file systems of the kernel are mounted below it: grub-mkconfig without them writes
// menus that do not boot.
func (r Runner) Ready(programs [][]string) error {
	var errs []error
	for _, argv := range programs {
		_, err := r.Find(argv[0])
		errs = append(errs, err)
	}
	for dir, magic := range map[string]int64{"/proc": unix.PROC_SUPER_MAGIC, "/sys": unix.SYSFS_MAGIC} {
		var stat unix.Statfs_t
		if err := unix.Statfs(r.Root.Path(dir), &stat); err != nil || stat.Type != magic {
			errs = append(errs, fmt.Errorf("%s: %w", r.Root.Path(dir), ErrNotMounted))
		}
	}
	var stat unix.Stat_t
	if err := unix.Stat(r.Root.Path("/dev/null"), &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFCHR {
		errs = append(errs, fmt.Errorf("%s: %w", r.Root.Path("/dev"), ErrNotMounted))
	}
	return errors.Join(errs...)
}

// ProgramError tells of a program that failed.
type ProgramError struct {
	Argv   []string
	Status string // "exit status 1", "signal: killed"
	Last   string // the last line it wrote to standard error
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
func (r Runner) Run(ctx context.Context, argv []string) ([]byte, error) {
	name, err := r.Find(argv[0])
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, argv[1:]...) //nolint:gosec // to run programs is what this is for
	cmd.Args[0] = argv[0]
	cmd.Env = []string{"PATH=" + strings.Join(programDirs, ":"), "LC_ALL=C"}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if r.Talk != nil {
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, r.Talk), io.MultiWriter(&stderr, r.Talk)
	}
	if dir := r.Root.Path("/"); dir != "/" {
		cmd.Path = name // below the new root
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
		cmd.Err = nil
	}
	// A program that writes menus is not stopped half-way by a signal meant for us.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return stdout.Bytes(), &ProgramError{argv, exit.String(), lines[len(lines)-1]}
	case err != nil:
		return stdout.Bytes(), fmt.Errorf("%s: %w", strings.Join(argv, " "), Cause(err))
	}
	return stdout.Bytes(), nil
}
