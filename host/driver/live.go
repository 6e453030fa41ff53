package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/change"
)

// DefaultTimeout is the maximum time for one write to sysfs. Unbinding the driver of a large GPU
// takes seconds.
const DefaultTimeout = 10 * time.Second

// Live is the running kernel.
type Live struct {
	Runner  host.Runner
	Timeout time.Duration // for one write
}

// ErrNotLive means that a tree's /sys or /proc is not that of the running kernel.
var ErrNotLive = host.WithHint(errors.New("does not belong to a running kernel"), "run it on the machine itself; --dry-run plans on any tree")

// Ready returns [Ready] of the machine that the runner starts programs of.
func (l Live) Ready() error { return Ready(l.Runner.Root) }

// Ready returns an error unless the kernel's own file systems are below the root: writing to a
// tree of plain files has no effect.
func Ready(root host.Root) error {
	var errs []error
	for _, fs := range []struct {
		dir   string
		magic int64
	}{{"/sys", unix.SYSFS_MAGIC}, {"/proc", unix.PROC_SUPER_MAGIC}} {
		var stat unix.Statfs_t
		place := root.Path(fs.dir)
		if err := unix.Statfs(place, &stat); err != nil || stat.Type != fs.magic {
			errs = append(errs, fmt.Errorf("%s: %w", place, ErrNotLive))
		}
	}
	return errors.Join(errs...)
}

// WriteCommand is the hidden command with which gpustack starts itself to make one write. "--", a
// file and a value follow.
const WriteCommand = "write-attribute"

// Write makes a write in a separate process, which prints the number of the kernel's error, if
// any.
func (l Live) Write(w Write) error {
	place, err := l.Runner.Root.Resolve(w.File)
	if err != nil {
		return err
	}
	out, err := host.RunSelf(l.Timeout, WriteCommand, "--", place, w.Value)
	if err == nil && len(out) > 0 {
		var number int
		if number, err = strconv.Atoi(strings.TrimSpace(string(out))); err == nil {
			err = unix.Errno(number)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", w.File, err)
	}
	return nil
}

// WriteAttribute is the work of that process: one write to an existing file, as sysfs requires it
// (Linux, Documentation/filesystems/sysfs.rst). It returns the number of the kernel's error, or 0.
func WriteAttribute(file, value string) int {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(value))
		unix.Close(fd) //nolint:errcheck // the kernel has already accepted or rejected the write
	}
	var errno unix.Errno
	errors.As(err, &errno)
	return int(errno)
}

// Load loads a driver's module of the same name with modprobe, and checks that the kernel then has
// the driver.
func (l Live) Load(ctx context.Context, driver string) error {
	if _, err := l.Runner.Run(ctx, []string{"modprobe", driver}); err != nil {
		return err
	}
	ok, err := l.Runner.Root.Exists(path.Join(driversDir, driver))
	if err == nil && !ok {
		err = fmt.Errorf("modprobe %s: %w", driver, errNoDriver)
	}
	return err
}

// programLimit is the maximum time for a program that stops, starts or shows services, none of
// which waits for a service. nvidia-smi initializes each GPU, which takes seconds.
const programLimit = 2 * time.Minute

// Run runs a program of the machine and returns its output, which is not shown.
func (l Live) Run(ctx context.Context, argv []string) ([]byte, error) {
	runner := l.Runner
	runner.Talk, runner.Limit = nil, programLimit
	return runner.Run(ctx, argv)
}

// errNoDriver means that the kernel does not have a driver although its module was loaded.
var errNoDriver = host.WithHint(errors.New("the kernel has no such driver afterwards"), "load the module that provides it with modprobe first")

// writer is a process that makes a write.
type writer struct {
	pid int
	Write
}

// Settled returns an error if an earlier run's sysfs write is still blocked in the kernel, or if
// an interrupted change of drivers cannot be read. Read-only commands call it first: reading
// driver_override would block too. Unprivileged users cannot read the journal, but they can see
// the writing process in /proc.
func (b Binder) Settled(ctx context.Context, journal change.Seen) error {
	open, err := journal.Unfinished()
	switch {
	case errors.Is(err, change.ErrLocked):
		// Between two writes functions can be read. If a write takes long, its own run reports
		// that.
		awaitErr := Await(ctx, b.Root, b.Patience)
		if !errors.Is(awaitErr, host.ErrStuck) {
			return awaitErr
		}
		return err
	case err != nil:
		return Await(ctx, b.Root, b.Patience)
	}
	for _, e := range open {
		if e.Changes != change.KindDrivers {
			continue
		}
		c, err := b.Open(ctx, e)
		if err == nil {
			err = c.Check(ctx, change.ToLook)
		}
		if err != nil {
			return fmt.Errorf("entry %d, which was interrupted: %w", e.ID, err)
		}
	}
	return nil
}

// Await waits until all writes of earlier runs have ended: a run that was killed leaves the
// process that makes its write. While that process is stuck in the kernel, reading the function's
// driver_override blocks too, since it acquires the same lock (Linux, driver_override_show in
// drivers/pci/pci-sysfs.c).
func Await(ctx context.Context, root host.Root, timeout time.Duration) error {
	end := time.After(timeout)
	for {
		left, err := writers(root)
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		case <-end:
			return errors.Join(host.Map(left, func(w writer) error {
				return fmt.Errorf("process %d of an earlier run writes %q to %s: %w", w.pid, w.Value, w.File, host.ErrStuck)
			})...)
		}
	}
}

// writers returns the processes that make a write, found by their arguments. A tree that is not a
// running machine has none.
func writers(root host.Root) ([]writer, error) {
	pids, err := host.IfPresent(host.PIDs(root))
	if err != nil {
		return nil, err
	}
	var list []writer
	for _, pid := range pids {
		argv := arguments(root, host.ProcessFile(pid, ""))
		switch {
		case len(argv) == 5 && argv[1] == WriteCommand && argv[2] == "--":
			list = append(list, writer{pid, Write{argv[3], argv[4]}})
		case len(argv) == 7 && argv[1] == RequestCommand && argv[2] == "--":
			if r, err := ParseRequest(argv[3:]); err == nil {
				list = append(list, writer{pid, Write{"the kernel by netlink", r.String()}})
			}
		}
	}
	return list, nil
}

// arguments returns the arguments of a process, none if it has ended or belongs to another user.
// If a process was killed while one of its threads blocks in the kernel, its first thread may have
// ended, and only the other threads still show the arguments.
func arguments(root host.Root, dir string) []string {
	data, err := root.ReadHead(path.Join(dir, "cmdline"), host.MaxAttribute)
	if err != nil {
		return nil
	}
	if len(data) == 0 {
		threads, err := root.ReadDir(path.Join(dir, "task"))
		if err != nil {
			return nil
		}
		for _, thread := range threads {
			if data, err = root.ReadHead(path.Join(dir, "task", thread, "cmdline"), host.MaxAttribute); err == nil && len(data) > 0 {
				break
			}
		}
	}
	return host.ParseArguments(string(data))
}
