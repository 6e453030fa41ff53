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

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Errors of applying a change.
var (
	// ErrChanged means that a file differs from the one that the change was computed from.
	ErrChanged = host.WithHint(errors.New("changed since the plan was made"), "run the command again: it makes a new plan")
	// errMounted means that a file is bind-mounted, usually into a container: it can be written to,
	// but not replaced.
	errMounted = host.WithHint(errors.New("is a mount point, and cannot be replaced"), "it is mounted into a container: change the file that it is mounted from")
	// ErrTorn means that some files are changed and some are not.
	ErrTorn = host.WithHint(errors.New("the change stopped half-way and could not be rolled back"),
		"the next gpustack command that changes this machine recovers it")
)

// Apply makes the change, or changes nothing and returns an error. When it returns, the change is
// on disk.
func (c Change) Apply(root host.Root) error {
	return Changes{c}.Apply(context.Background(), root)
}

// Apply makes all changes, or none. It writes every new content to disk, next to its file, before
// it replaces the first file, so that a full disk is noticed early. If a file cannot be replaced,
// the ones before it are restored; ErrTorn means that this failed too. If ctx ends, Apply stops
// between two files in the same way and returns the cause of ctx.
func (p Changes) Apply(ctx context.Context, root host.Root) error {
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
	for _, c := range pending {
		if c.After != nil {
			continue
		}
		if err := RemoveDirs(root, c.Dirs); err != nil {
			return errors.Join(err, pending.revert(root), pending.clean(root))
		}
	}
	return nil
}

// revert reverts changes that have been made, the last one first.
func (p Changes) revert(root host.Root) error {
	for _, c := range slices.Backward(p) {
		if err := c.Inverse().Apply(root); err != nil {
			return fmt.Errorf("%w: %w", ErrTorn, err)
		}
	}
	return nil
}

// clean removes the temporary files and folders of changes that were not made.
func (p Changes) clean(root host.Root) error {
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
		err = errMounted
	}
	return host.OfFile(c.Name, err)
}

// Protected is the error for a file that an attribute protects against root too (chattr(1)).
type Protected struct {
	Place  string // path of the file or its directory, below the root and with links resolved
	IsDir  bool
	Append bool // content may only be appended
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

// place returns the path of the file, with links resolved. It is an error if the file differs from
// the one that the change was computed from.
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

// takePlace renames the temporary file to the file.
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
	const mode = 0o755 // whatever the umask is: users of services read what is below
	if err = os.Mkdir(place, mode); err == nil {
		err = os.Chmod(place, mode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(place))
}

// remove removes what is at a place. On a read-only file system the kernel says so also of what is
// not there, and of a folder that is not empty, which are no obstacles.
func remove(place string, by func(string) error) error {
	err := by(place)
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	entries, readErr := os.ReadDir(place)
	switch {
	case host.IsAbsent(readErr):
		return unix.ENOENT
	case len(entries) > 0:
		return unix.ENOTEMPTY
	}
	return err
}

// RemoveDirs removes folders that changes have made, innermost first, unless they contain files
// of others by now.
func RemoveDirs(root host.Root, dirs []string) error {
	for i := len(dirs) - 1; i >= 0; i-- {
		place, err := root.Resolve(dirs[i])
		if err == nil {
			err = remove(place, unix.Rmdir)
		}
		if err == nil {
			err = syncDir(filepath.Dir(place))
		}
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) {
			return host.OfFile(dirs[i], err)
		}
	}
	return nil
}

// Write writes a file of gpustack's, such as a record, which no plan shows. It replaces an
// existing file. The folder must exist.
func Write(root host.Root, name string, content []byte, mode uint32) error {
	place, err := root.Resolve(name)
	if err == nil {
		err = put(place, content, mode)
	}
	return host.OfFile(name, err)
}

// put replaces the file at a place by one of this user.
func put(place string, content []byte, mode uint32) error {
	err := writeBeside(place, &File{content, Meta{Mode: mode, UID: unix.Geteuid(), GID: unix.Getegid()}})
	if err != nil {
		return err
	}
	return takePlace(place)
}

// Replace writes a document that the operator has named, such as metrics, to the file at path on
// the machine where the program runs, whole or not at all. A link at path itself is replaced and
// not followed: in a folder of another user's, it may lead anywhere. The folder must exist.
func Replace(file string, content []byte, mode uint32) error {
	place, err := filepath.Abs(file)
	if err == nil {
		err = put(place, content, mode)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, host.Cause(err)) // not below a root
	}
	return nil
}

// RemoveLeftover removes the temporary file that a killed run may have left next to a file.
func RemoveLeftover(root host.Root, name string) error {
	place, err := root.Resolve(name)
	if err == nil {
		err = remove(temporary(place), os.Remove)
	}
	if err != nil && !host.IsAbsent(err) && !errors.Is(err, unix.ENOTDIR) {
		return host.OfFile(name, err)
	}
	return nil
}

// temporary returns the path of the temporary file with the new content of a file. Its name begins
// with a dot and ends as that of a backup, so that programs that read all files of a folder, or
// *.conf or *.cfg, ignore it. It is always the same, so that the next run finds the file that a
// killed one has left, and no other file's, for several of a folder are changed at once.
func temporary(place string) string {
	dir, base := filepath.Split(place)
	return path.Join(dir, ".gpustack-"+base+"~")
}

// writeBeside writes the temporary file that will replace a file. It is complete on disk, or does
// not exist, when writeBeside returns.
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

// finish sets the owner, mode and attributes of a new file, and syncs it to disk.
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
	// Set the mode after the owner, whose change clears set-id bits, and after an access control
	// list, which brings permissions of its own.
	if err := unix.Fchmod(fd, m.Mode); err != nil {
		return fmt.Errorf("mode: %w", err)
	}
	return host.Cause(out.Sync())
}

// setXattrs sets exactly these attributes of a file, apart from those that the kernel computes.
func setXattrs(fd int, want []Xattr) error {
	present, err := readXattrs(fd)
	if err != nil {
		return err
	}
	for _, x := range want {
		if slices.ContainsFunc(present, func(p Xattr) bool { return p.Name == x.Name && bytes.Equal(p.Value, x.Value) }) {
			continue // the default label of a new file
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
