package edit

import (
	"cmp"
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Files are files as they were observed, by their names: changes of them are planned without
// reading the machine again.
type Files map[string]observed

// observed is a file as it was observed.
type observed struct {
	File *File    // nil if it does not exist
	Dirs []string // of a missing file, the missing folders above it, outermost first
	Err  error    // of reading it: it prevents changes of this file only
	// DirsErr is the error of looking for these folders, or that name is a link to nothing: it
	// prevents only that the file is made.
	DirsErr error
}

// Observe reads files. What cannot be read prevents changes of these files only.
func Observe(root host.Root, names ...string) Files {
	files := Files{}
	for _, name := range names {
		name = path.Clean("/" + name)
		var o observed
		o.File, o.Err = Read(root, name)
		if o.File == nil && o.Err == nil {
			o.Dirs, o.DirsErr = missing(root, path.Dir(name))
			o.DirsErr = cmp.Or(o.DirsErr, refuseLink(root, name))
		}
		files[name] = o
	}
	return files
}

// Read returns a file, or nil if it did not exist.
func (f Files) Read(name string) (*File, error) {
	o, ok := f[path.Clean("/"+name)]
	if !ok {
		return nil, fmt.Errorf("%s: was not observed", name)
	}
	return o.File, o.Err
}

// Put plans that the file at name has this content. An existing file keeps its owner, attributes
// and permissions; a new one belongs to the user who runs gpustack and gets mode. With exact set,
// as for a script, an existing file gets mode too.
func (f Files) Put(name string, content []byte, mode uint32, exact bool) (Change, error) {
	name = path.Clean("/" + name)
	before, err := f.Read(name)
	if err != nil {
		return Change{}, err
	}
	c := Change{Name: name, Before: before, Dirs: f[name].Dirs}
	if before == nil {
		c.After = &File{content, Meta{Mode: mode, UID: unix.Geteuid(), GID: unix.Getegid()}}
		return c, f[name].DirsErr
	}
	c.After = before.With(content)
	if exact {
		c.After.Mode = mode
	}
	return c, nil
}

// Remove plans that no file exists at name.
func (f Files) Remove(name string) (Change, error) {
	name = path.Clean("/" + name)
	before, err := f.Read(name)
	return Change{Name: name, Before: before}, err
}

// RemoveAll plans that none of the files exists.
func (f Files) RemoveAll(names ...string) (plan Changes, err error) {
	for _, name := range names {
		c, readErr := f.Remove(name)
		plan, err = append(plan, c), errors.Join(err, readErr)
	}
	return plan, err
}
