package host

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
)

// Once returns the same root, which remembers what its methods read of files and folders: each is
// read once, and all readers see the same content. It is for one observation of a machine, of which
// several packages read the same files. What is read through a [Dir] or through Open is not
// remembered: the attributes of a device have one reader.
func (r Root) Once() Root {
	r.memory = &memory{files: map[string]*remembered{}, dirs: map[string]*remembered{}}
	return r
}

// memory is what was read through a root. It is used by several goroutines at once.
type memory struct {
	sync.Mutex
	files, dirs map[string]*remembered
}

// remembered is one file or folder. Its lock is held while it is read, so that other readers wait.
type remembered struct {
	sync.Mutex
	done  bool
	data  []byte
	whole bool // data is all of the file
	names []string
	err   error
}

// of returns the place of a name, locked.
func (m *memory) of(places map[string]*remembered, name string) *remembered {
	m.Lock()
	place := places[name]
	if place == nil {
		place = &remembered{}
		places[name] = place
	}
	m.Unlock()
	place.Lock()
	return place
}

// file returns the first n bytes of a file, or all of it with all set: it is an error then if it is
// longer. read reads them if they are not known yet.
func (m *memory) file(name string, n int64, all bool, read func() ([]byte, error)) ([]byte, error) {
	place := m.of(m.files, below(name))
	defer place.Unlock()
	switch size := int64(len(place.data)); {
	case !place.done:
	case place.err != nil:
		return nil, place.err
	case place.whole && size <= n:
		return slices.Clip(place.data), nil
	case !all && size >= n:
		return slices.Clip(place.data[:n]), nil
	}
	data, err := read()
	if err == nil {
		place.done, place.data, place.whole = true, data, all || int64(len(data)) < n
	} else if IsAbsent(err) || errors.Is(err, fs.ErrPermission) { // other errors may depend on n
		place.done, place.err = true, err
	}
	return slices.Clip(data), err
}

// dir returns the names in a folder. read reads them if they are not known yet.
func (m *memory) dir(name string, read func() ([]string, error)) ([]string, error) {
	place := m.of(m.dirs, below(name))
	defer place.Unlock()
	if !place.done {
		place.names, place.err = read()
		place.done = true
	}
	return slices.Clone(place.names), place.err
}
