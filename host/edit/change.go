package edit

import (
	"errors"
	"fmt"
	"path"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"
	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Action is the effect of a change on a file.
type Action string

// The four actions. None means that the file already is as planned.
const (
	None   Action = "none"
	Create Action = "create"
	Update Action = "update"
	Delete Action = "delete"
)

// Change is the planned change of one file. It is only applied to the file that it was computed
// from.
type Change struct {
	Name   string // path on the machine, with a leading slash
	Before *File  // nil if the file does not exist
	After  *File  // nil if the file is removed
	// Dirs are the missing parent folders of the file, outermost first. They are created with the
	// file and removed with it. Of a file that is removed, they are folders to remove with the last
	// file in them.
	Dirs []string
	// Transient means that the file may be removed together with what it belongs to, such as a boot
	// entry with its kernel: then there is nothing to revert.
	Transient bool
	// Meaning, if not nil, is the change by its values. It is recorded even if nothing changes.
	Meaning *Meaning
	// Purpose says in a few words what a file that gpustack generates is for. A plan shows it
	// instead of the content of a new file. It is empty for a file whose content is to be shown.
	Purpose string
	// Shown, if not nil, returns the part of a content that a diff may show, line by line: a file may
	// contain secrets.
	Shown func(content []byte) []byte
}

// Changes are changes of files, in the order in which they are made.
type Changes []Change

// Pending returns the changes whose action is not None.
func (p Changes) Pending() Changes {
	return host.Filter(p, func(c Change) bool { return c.Action() != None })
}

// Put is [Files.Put] for a file that is read now.
func Put(root host.Root, name string, content []byte, mode uint32, exact bool) (Change, error) {
	return Observe(root, name).Put(name, content, mode, exact)
}

// missing returns the folders on the path to dir, dir included, that do not exist.
func missing(root host.Root, dir string) ([]string, error) {
	var dirs []string
	for ; dir != "/"; dir = path.Dir(dir) {
		place, err := root.Resolve(dir)
		if err != nil {
			return nil, err
		}
		var stat unix.Stat_t
		err = unix.Lstat(place, &stat)
		switch {
		case errors.Is(err, unix.ENOENT):
			dirs = append([]string{dir}, dirs...)
			continue
		case err != nil:
			return nil, fmt.Errorf("%s: %w", dir, err)
		case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
			return nil, fmt.Errorf("%s: not a directory", dir)
		}
		if _, err := root.Exists(dir); err != nil { // for a recorder
			return nil, err
		}
		break
	}
	return dirs, nil
}

// Action returns the effect of the change.
func (c Change) Action() Action {
	switch {
	case c.Before.Equal(c.After):
		return None
	case c.Before == nil:
		return Create
	case c.After == nil:
		return Delete
	}
	return Update
}

// Inverse returns the change that reverts this one.
func (c Change) Inverse() Change {
	return Change{Name: c.Name, Before: c.After, After: c.Before, Dirs: c.Dirs}
}

// Diff returns the change as a unified diff, with a line for a changed mode. It is empty if
// nothing changes.
func (c Change) Diff() string { return c.diff(udiff.Unified) }

// Brief returns the change as [Change.Diff] does, with one line of context around each difference and
// the section of an INI file in which that is.
func (c Change) Brief() string { return c.diff(brief) }

func (c Change) diff(unified func(from, to, before, after string) string) string {
	if c.Action() == None {
		return ""
	}
	var b strings.Builder
	from, to := c.Name, c.Name
	before, after := host.Value(c.Before).Content, host.Value(c.After).Content
	if c.Before == nil {
		from = "/dev/null"
	}
	if c.After == nil {
		to = "/dev/null"
	}
	switch {
	case c.Before == nil && c.After.Mode&0o111 != 0:
		fmt.Fprintf(&b, "new file mode %o\n", c.After.Mode)
	case c.Before != nil && c.After != nil && c.Before.Mode != c.After.Mode:
		fmt.Fprintf(&b, "old mode %o\nnew mode %o\n", c.Before.Mode, c.After.Mode)
	}
	if c.Shown != nil {
		before, after = c.Shown(before), c.Shown(after)
	}
	b.WriteString(unified(from, to, string(before), string(after)))
	return b.String()
}
