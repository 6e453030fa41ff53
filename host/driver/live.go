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
)

// DefaultTimeout is how long the kernel has for one write to sysfs. A driver takes
// seconds to let go of a large GPU.
const DefaultTimeout = 10 * time.Second

// Live is the kernel that runs here.
type Live struct {
	Runner  host.Runner
	Timeout time.Duration // for one write
}

// ErrNotLive says that a tree's sys or proc is none.
var ErrNotLive = errors.New("is not that of a running kernel")

// Ready is an error unless the root has the kernel's own file systems below it: a tree
// of files does nothing when it is written to.
func (l Live) Ready() error {
	var errs []error
	for _, fs := range []struct {
		dir   string
		magic int64
	}{{"/sys", unix.SYSFS_MAGIC}, {"/proc", unix.PROC_SUPER_MAGIC}} {
		var stat unix.Statfs_t
		place := l.Runner.Root.Path(fs.dir)
		if err := unix.Statfs(place, &stat); err != nil || stat.Type != fs.magic {
			errs = append(errs, fmt.Errorf("%s: %w", place, ErrNotLive))
		}
	}
	return errors.Join(errs...)
}

// WriteCommand is the argument with which gpustack starts itself to make one write. A
// file and a value follow, after "--".
const WriteCommand = "write-attribute"

// Write makes a write in a process of its own, which answers with the number of the
// kernel's error, if there is one.
func (l Live) Write(w Write) error {
	place, err := l.Runner.Root.Resolve(w.File)
	if err != nil {
		return fmt.Errorf("%s: %w", w.File, host.Cause(err))
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

// WriteAttribute is what that process does: one write, as sysfs wants it (Linux,
// Documentation/filesystems/sysfs.rst), to a file that is there. It returns the number
// of the kernel's error, or 0.
func WriteAttribute(file, value string) int {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(value))
		unix.Close(fd) //nolint:errcheck // the kernel has answered
	}
	var errno unix.Errno
	errors.As(err, &errno)
	return int(errno)
}

// Load has modprobe load the module of a driver, which has its name, and sees that the
// kernel has the driver then.
func (l Live) Load(ctx context.Context, driver string) error {
	if _, err := l.Runner.Run(ctx, []string{"modprobe", driver}); err != nil {
		return err
	}
	ok, err := l.Runner.Root.Exists(path.Join(driversDir, driver))
	if err == nil && !ok {
		err = fmt.Errorf("modprobe %s: %w", driver, ErrNoDriver)
	}
	return err
}

// ErrNoDriver says that the kernel does not have a driver.
var ErrNoDriver = errors.New("the kernel has no such driver then")

// writer is a process that makes a write.
type writer struct {
	pid int
	Write
}

// Await waits until all writes of runs before have ended: one that was killed leaves the
// process that makes its write. While the kernel is stuck with one, whoever reads that
// function's driver_override waits too, for it takes the same lock (Linux,
// driver_override_show in drivers/pci/pci-sysfs.c).
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
			var errs []error
			for _, w := range left {
				errs = append(errs, fmt.Errorf("process %d of a run before writes %q to %s: %w", w.pid, w.Value, w.File, host.ErrStuck))
			}
			return errors.Join(errs...)
		}
	}
}

// writers lists the processes that make a write, by their arguments. On a tree that runs
// nothing there are none.
func writers(root host.Root) ([]writer, error) {
	names, err := root.ReadDir("/proc")
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("/proc: %w", host.Cause(err))
	}
	var list []writer
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		argv := arguments(root, path.Join("/proc", name))
		if len(argv) == 5 && argv[1] == WriteCommand && argv[2] == "--" {
			list = append(list, writer{pid, Write{argv[3], argv[4]}})
		}
	}
	return list, nil
}

// arguments reads those of a process, none where it has ended, or is somebody else's. Of
// one that was killed while the kernel holds a thread of it, the first thread may have
// ended, and only the others still show them.
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
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}
