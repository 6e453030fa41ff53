// Package snapshot records the files that were read on a machine as a small tree, writes it to an
// archive, and unpacks it, so that the same can be read elsewhere with --root. A [Tree] is a
// host.Recorder; [ReadFile] reads an archive.
//
// It does not decide what to read, and never writes outside of the folder that it is given.
package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gpustack/host"
)

// Tree is a set of files, links and directories by name below a root. The zero Tree is empty and
// ready to record.
type Tree struct {
	mu      sync.Mutex
	entries map[string]entry
}

type kind int

const (
	folder kind = iota
	file
	link
	unreadable // a folder or link that exists, but reading it failed
)

type entry struct {
	kind kind
	data string      // a file's content, a link's target
	mode fs.FileMode // a file's permissions; 0 for those of most files
}

// usual are the permissions of most files.
const usual fs.FileMode = 0o644

// put records an entry. A directory never replaces another entry, since names in a directory's
// listing are recorded as directories until they are read.
func (t *Tree) put(name string, e entry) {
	t.record(name, e, e.kind == folder)
}

// record records an entry. A weak one never replaces another entry than a directory.
func (t *Tree) record(name string, e entry, weak bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries == nil {
		t.entries = map[string]entry{}
	}
	before, known := t.entries[name]
	if known && weak && (e.kind == folder || before.kind != folder) {
		return
	}
	if e.mode == 0 && before.kind == file && e.kind == file {
		e.mode = before.mode
	}
	t.entries[name] = e
}

// Mode implements host.Recorder. A file that its owner may not read would be unreadable in the
// snapshot too, where root has read it: it keeps the usual permissions.
func (t *Tree) Mode(name string, mode fs.FileMode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, known := t.entries[name]; known && e.kind == file && mode.Perm()&0o400 != 0 && mode.Perm() != usual {
		e.mode = mode.Perm()
		t.entries[name] = e
	}
}

// perm returns the permissions of a file.
func (e entry) perm() fs.FileMode {
	return cmp.Or(e.mode, usual)
}

// File implements host.Recorder. A file that could not be read is recorded as a link to itself,
// which is an error for all readers: an empty file without permissions is none for root, and would
// look like a file in which nothing is set.
func (t *Tree) File(name string, data []byte, err error) {
	if err != nil {
		t.put(name, entry{kind: link, data: path.Base(name)})
		return
	}
	t.record(name, entry{kind: file, data: string(data)}, data == nil)
}

// Link implements host.Recorder. In place of a link that could not be read is a file, which is an
// error for readers of links.
func (t *Tree) Link(name, target string, err error) {
	if err != nil {
		t.put(name, entry{kind: unreadable})
		return
	}
	t.put(name, entry{kind: link, data: target})
}

// Dir implements host.Recorder. It records the names in the directory as directories until they are
// read. In place of a directory that could not be read is a file, which cannot be listed.
func (t *Tree) Dir(name string, names []string, err error) {
	if err != nil {
		t.put(name, entry{kind: unreadable})
		return
	}
	t.put(name, entry{kind: folder})
	for _, n := range names {
		t.put(path.Join(name, n), entry{kind: folder})
	}
}

// Remove removes files from the tree.
func (t *Tree) Remove(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		delete(t.entries, name)
	}
}

// Unreadable returns the names of files and folders that exist but could not be read, sorted.
func (t *Tree) Unreadable() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return host.Filter(t.names(), func(name string) bool {
		e := t.entries[name]
		return e.kind == unreadable || e.kind == link && e.data == path.Base(name)
	})
}

func (t *Tree) names() []string {
	return slices.Sorted(maps.Keys(t.entries))
}

// check returns an error unless a name from an archive is valid in a tree.
func check(name string) error {
	if name == "" || name == "." || path.IsAbs(name) || path.Clean(name) != name ||
		name == ".." || strings.HasPrefix(name, "../") || strings.ContainsAny(name, "\n\r\x00") {
		return fmt.Errorf("not a relative path below a root: %q", name)
	}
	return nil
}

// Unpack writes the tree to dir, which must be empty or not exist. No archive makes it write
// outside dir.
func (t *Tree) Unpack(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return host.WithHint(fmt.Errorf("%s: not empty", dir), "name a folder that does not exist yet")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	way := descent{open: []*os.Root{root}}
	defer way.leave(0)
	var links, closed []string
	for _, name := range t.names() {
		e := t.entries[name]
		switch e.kind {
		case folder:
			_, err = way.to(name)
		case file:
			err = way.write(name, e)
		case link:
			links = append(links, name) // last, so that nothing is written through one
		case unreadable:
			err = way.write(name, entry{})
			closed = append(closed, name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	for _, name := range links {
		if err := way.link(name, t.entries[name].data); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
	}
	for _, name := range closed {
		if err := root.Chmod(name, 0); err != nil {
			return err
		}
	}
	return nil
}

// A descent is the way to a folder. Those on it stay open, for the next name is mostly near; the
// first is where the way begins.
type descent struct {
	open  []*os.Root
	names []string // of all but the first
}

// to goes to a folder, which it makes where there is none, as all on the way.
func (d *descent) to(dir string) (*os.Root, error) {
	names := strings.FieldsFunc(dir, func(r rune) bool { return r == filepath.Separator })
	same := 0
	for same < min(len(names), len(d.names)) && names[same] == d.names[same] {
		same++
	}
	d.leave(same + 1)
	for _, name := range names[same:] {
		last := d.open[len(d.open)-1]
		if err := last.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		next, err := last.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		d.open, d.names = append(d.open, next), append(d.names, name)
	}
	return d.open[len(d.open)-1], nil
}

// write writes a file, in a folder that is made if there is none.
func (d *descent) write(name string, e entry) error {
	parent, base := filepath.Split(name)
	in, err := d.to(parent)
	if err != nil {
		return err
	}
	if err := in.WriteFile(base, []byte(e.data), usual); err != nil || e.perm() == usual {
		return err
	}
	return in.Chmod(base, e.perm())
}

// link makes a link, as write does a file.
func (d *descent) link(name, target string) error {
	parent, base := filepath.Split(name)
	in, err := d.to(parent)
	if err != nil {
		return err
	}
	return in.Symlink(target, base)
}

// leave goes back until so many folders are open.
func (d *descent) leave(left int) {
	for len(d.open) > left {
		last := len(d.open) - 1
		_ = d.open[last].Close() // nothing is written through it any more
		d.open = d.open[:last]
	}
	d.names = d.names[:max(0, left-1)]
}
