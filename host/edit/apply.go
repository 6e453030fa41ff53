package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Errors of applying a change.
var (
	// ErrChanged says that a file is no longer what the change was computed from.
	ErrChanged = host.WithHint(errors.New("changed since the plan was made"), "run the command again: it makes a new plan")
	// ErrMounted says that a file is bind-mounted, into a container most often:
	// it can be written to, but not replaced.
	ErrMounted = host.WithHint(errors.New("is a mount point, and cannot be replaced"), "it is mounted into a container: change the file that it is mounted from")
	// ErrTorn says that some files are changed and some are not.
	ErrTorn = host.WithHint(errors.New("the change stopped half-way and could not be rolled back"), "the next gpustack command that changes this machine recovers it")
)

// Apply makes the change, or changes nothing and returns an error. When it
// returns, the change is on the disk.
func (c Change) Apply(root host.Root) error {
	return Plan{c}.Apply(context.Background(), root)
}

// Apply makes all changes, or none. Every new content is on the disk, beside its
// file, before the first file is touched: a full disk shows then. Should a file
// fail to change after all, those before it are changed back; ErrTorn says that
// this failed too. It stops in the same way between two files when ctx has ended, and returns
// its cause.
func (p Plan) Apply(ctx context.Context, root host.Root) error {
	pending := p.Pending()
	for _, c := range pending {
		err := context.Cause(ctx)
		if err == nil {
			err = c.explain(c.stage(root))
		}
		if err != nil {
			return errors.Join(err, pending.clean(root))
		}
	}
	for i, c := range pending {
		err := context.Cause(ctx)
		if err == nil {
			err = c.explain(c.commit(root))
		}
		if err != nil {
			return errors.Join(err, pending[:i].revert(root), pending.clean(root))
		}
	}
	return nil
}

// revert takes changes back that have been made, the last first.
func (p Plan) revert(root host.Root) error {
	for _, c := range slices.Backward(p) {
		if err := c.Inverse().Apply(root); err != nil {
			return fmt.Errorf("%w: %w", ErrTorn, err)
		}
	}
	return nil
}

// clean removes what was made for changes that did not come to be.
func (p Plan) clean(root host.Root) error {
	for _, c := range slices.Backward(p) {
		if err := errors.Join(RemoveLeftover(root, c.Name), RemoveDirs(root, c.Dirs)); err != nil {
			return fmt.Errorf("%w: %w", ErrTorn, err)
		}
	}
	return nil
}

func (c Change) explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EBUSY) {
		err = ErrMounted
	}
	return fmt.Errorf("%s: %w", c.Name, host.Cause(err))
}

// Protected is the error of a file that an attribute protects (chattr(1)) against root too.
type Protected struct {
	Place  string // of the file, or of its directory, below the root and with links resolved
	IsDir  bool
	Append bool // may only be appended to
}

func (e *Protected) Error() string {
	text := "is immutable"
	if e.Append {
		text = "is append-only"
	}
	if e.IsDir {
		return "its directory " + text
	}
	return text
}

// Hint returns the command that removes the protection.
func (e *Protected) Hint() string {
	return e.Command() + ", then run gpustack again (lsattr -d " + e.Place + " shows the attribute)"
}

// Command returns the command that removes the protection.
func (e *Protected) Command() string {
	if e.Append {
		return "chattr -a " + e.Place
	}
	return "chattr -i " + e.Place
}

// unprotected returns an error of type *Protected if the file at a place, or the nearest directory
// above it that exists, cannot be changed. It returns nil where the file system does not report
// attributes (statx(2), stx_attributes): there the change itself fails.
func unprotected(place string) error {
	dir := filepath.Dir(place)
	for dir != filepath.Dir(dir) && errors.Is(unix.Access(dir, unix.F_OK), unix.ENOENT) {
		dir = filepath.Dir(dir)
	}
	for _, e := range []Protected{{Place: place}, {Place: dir, IsDir: true}} {
		var stat unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, e.Place, unix.AT_SYMLINK_NOFOLLOW, 0, &stat); err != nil {
			continue
		}
		e.Append = stat.Attributes&unix.STATX_ATTR_APPEND != 0
		if e.Append || stat.Attributes&unix.STATX_ATTR_IMMUTABLE != 0 {
			return &e
		}
	}
	return nil
}

// place is where the file lies, if it is still what the change was computed from.
func (c Change) place(root host.Root) (string, error) {
	place, err := root.Resolve(c.Name)
	if err != nil {
		return "", err
	}
	now, err := read(place)
	if err != nil {
		return "", err
	}
	if !now.Equal(c.Before) {
		return "", ErrChanged
	}
	return place, nil
}

func (c Change) stage(root host.Root) error {
	place, err := c.place(root)
	if err == nil {
		err = unprotected(place)
	}
	if err != nil || c.After == nil {
		return err
	}
	for _, dir := range c.Dirs {
		if err := makeDir(root, dir); err != nil {
			return err
		}
	}
	return writeBeside(place, c.After)
}

func (c Change) commit(root host.Root) error {
	place, err := c.place(root)
	if err != nil {
		return err
	}
	if c.After != nil {
		return takePlace(place)
	}
	if err := os.Remove(place); err != nil {
		return err
	}
	return syncDir(filepath.Dir(place))
}

// takePlace gives what was written beside a file the file's place, or removes it.
func takePlace(place string) error {
	temp := temporary(place)
	if err := unix.Rename(temp, place); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return syncDir(filepath.Dir(place))
}

func makeDir(root host.Root, dir string) error {
	place, err := root.Resolve(dir)
	if err != nil {
		return err
	}
	if err := os.Mkdir(place, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(place))
}

// RemoveDirs removes those folders that are empty, innermost first: what the
// changes that made them have made, less what somebody has put there since.
func RemoveDirs(root host.Root, dirs []string) error {
	for i := len(dirs) - 1; i >= 0; i-- {
		place, err := root.Resolve(dirs[i])
		if err == nil {
			err = unix.Rmdir(place)
		}
		if err == nil {
			err = syncDir(filepath.Dir(place))
		}
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("%s: %w", dirs[i], host.Cause(err))
		}
	}
	return nil
}

// Write puts a file of our own in place, whatever is there: for records that no
// plan shows. The folder must be there.
func Write(root host.Root, name string, content []byte, mode uint32) error {
	place, err := root.Resolve(name)
	if err == nil {
		err = writeBeside(place, &File{content, Meta{Mode: mode, UID: unix.Geteuid(), GID: unix.Getegid()}})
	}
	if err == nil {
		err = takePlace(place)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	return nil
}

// RemoveLeftover removes what a run that was killed may have left beside a file.
func RemoveLeftover(root host.Root, name string) error {
	place, err := root.Resolve(name)
	if err == nil {
		err = os.Remove(temporary(place))
	}
	if err != nil && !host.IsAbsent(err) && !errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	return nil
}

// temporary is where the new content of a file is written before it takes the
// old one's place. The name begins with a dot and has no suffix, so that nothing
// that reads *.conf or *.cfg takes it for configuration, and it is always the
// same, so that the next run finds what a killed one left.
func temporary(place string) string {
	dir, base := filepath.Split(place)
	return path.Join(dir, ".gpustack-"+strings.ReplaceAll(base, ".", "_"))
}

// writeBeside writes what is to take the place of a file. It is on the disk, or
// not there, when this returns.
func writeBeside(place string, f *File) error {
	return makeBeside(place, f.Meta, func(out *os.File) error {
		_, err := out.Write(f.Content)
		return err
	})
}

func makeBeside(place string, meta Meta, write func(*os.File) error) error {
	temp := temporary(place)
	if err := os.Remove(temp); err != nil && !host.IsAbsent(err) {
		return err
	}
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = host.Cause(write(out))
	if err == nil {
		err = finish(out, meta)
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// finish gives a new file what it is to have beside its content, and sees it to the disk.
func finish(out *os.File, m Meta) error {
	fd := int(out.Fd())
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if m.UID != int(stat.Uid) || m.GID != int(stat.Gid) {
		if err := unix.Fchown(fd, m.UID, m.GID); err != nil {
			return fmt.Errorf("owner %d:%d: %w", m.UID, m.GID, err)
		}
	}
	if m.Xattrs != nil {
		if err := setXattrs(fd, m.Xattrs); err != nil {
			return err
		}
	}
	// After the owner, whose change takes set-id bits away, and after an access
	// control list, which brings permissions of its own.
	if err := unix.Fchmod(fd, m.Mode); err != nil {
		return fmt.Errorf("mode: %w", err)
	}
	return host.Cause(out.Sync())
}

// setXattrs gives a file those attributes and no other, apart from those that the kernel computes.
func setXattrs(fd int, want []Xattr) error {
	present, err := readXattrs(fd)
	if err != nil {
		return err
	}
	for _, x := range want {
		if slices.ContainsFunc(present, func(p Xattr) bool { return p.Name == x.Name && bytes.Equal(p.Value, x.Value) }) {
			continue // the label that a new file gets by itself
		}
		if !x.isPortable() {
			continue
		}
		if err := unix.Fsetxattr(fd, x.Name, x.Value, 0); err != nil {
			return fmt.Errorf("extended attribute %s: %w", x.Name, err)
		}
	}
	for _, p := range present {
		if p.Name == attributeIMA || p.Name == attributeEVM || slices.ContainsFunc(want, func(x Xattr) bool { return x.Name == p.Name }) {
			continue
		}
		if err := unix.Fremovexattr(fd, p.Name); err != nil {
			return fmt.Errorf("extended attribute %s: %w", p.Name, err)
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
