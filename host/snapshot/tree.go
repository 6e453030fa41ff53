// Package snapshot records the files that were read on a machine as a small tree, writes it to an
// archive, and unpacks it, so that the same can be read elsewhere with --root.
//
// It does not decide what to read: it records as a host.Recorder.
package snapshot

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	unreadable // exists, but reading it failed
)

type entry struct {
	kind kind
	data string // a file's content, a link's target
}

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
	if before, known := t.entries[name]; known && weak && (e.kind == folder || before.kind != folder) {
		return
	}
	t.entries[name] = e
}

// File implements host.Recorder.
func (t *Tree) File(name string, data []byte, err error) {
	if err != nil {
		t.put(name, entry{kind: unreadable})
		return
	}
	t.record(name, entry{file, string(data)}, data == nil)
}

// Link implements host.Recorder.
func (t *Tree) Link(name, target string, err error) {
	if err != nil {
		t.put(name, entry{kind: unreadable})
		return
	}
	t.put(name, entry{link, target})
}

// Dir implements host.Recorder. It records the names in the directory as directories until they are
// read.
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

// Len returns the number of entries.
func (t *Tree) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
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
		return fmt.Errorf("%s: not empty", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is left to write
	var links, closed []string
	for _, name := range t.names() {
		e := t.entries[name]
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		switch e.kind {
		case folder:
			err = root.MkdirAll(name, 0o755)
		case file:
			err = root.WriteFile(name, []byte(e.data), 0o644)
		case link:
			links = append(links, name) // last, so that nothing is written through one
		case unreadable:
			err = root.WriteFile(name, nil, 0o644)
			closed = append(closed, name)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range links {
		if err := root.Symlink(t.entries[name].data, name); err != nil {
			return err
		}
	}
	for _, name := range closed {
		if err := root.Chmod(name, 0); err != nil {
			return err
		}
	}
	return nil
}
