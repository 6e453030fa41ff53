package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// Root is the directory below which a machine's files lie: "/" for the machine
// the program runs on. Names given to its methods are paths on that machine
// ("etc/os-release", with or without a leading slash).
//
// Links are resolved as the machine itself would resolve them: an absolute link
// inside the root leads to a place inside the root, and no link leads out.
type Root struct {
	dir string
	rec Recorder
}

// NewRoot returns the root at dir. It is an error if dir is no directory.
func NewRoot(dir string) (Root, error) {
	if dir == "" {
		return Root{}, errors.New("root: empty path")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Root{}, fmt.Errorf("root %s: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if err != nil {
		return Root{}, fmt.Errorf("root %s: %w", dir, Cause(err))
	}
	if !info.IsDir() {
		return Root{}, fmt.Errorf("root %s: not a directory", dir)
	}
	return Root{dir: abs}, nil
}

// Path returns where name lies on the machine the program runs on, links not
// resolved: for messages, and for programs that follow links themselves.
func (r Root) Path(name string) string {
	return filepath.Join(r.dir, filepath.FromSlash(path.Clean("/"+name)))
}

// Resolve returns the same place with every link resolved below the root: for
// what goes past the methods here, such as a writer.
func (r Root) Resolve(name string) (string, error) {
	return securejoin.SecureJoin(r.dir, filepath.FromSlash(name))
}

// maxFile bounds what ReadFile reads: the files of a machine that describe it
// are small, and a root may be anybody's archive.
const maxFile = 4 << 20

// ReadFile returns the content of a regular file, 4 MiB at most.
func (r Root) ReadFile(name string) ([]byte, error) {
	data, err := r.readFile(name, maxFile)
	r.recordFile(name, data, err)
	return data, err
}

// maxTable bounds what ReadTable reads.
const maxTable = 64 << 20

// ReadTable returns the content of a file of procfs that grows with the machine's networks
// and containers: routes, mounts. 64 MiB at most, more than 400,000 routes.
func (r Root) ReadTable(name string) ([]byte, error) {
	data, err := r.readFile(name, maxTable)
	r.recordFile(name, data, err)
	return data, err
}

func (r Root) readFile(name string, most int64) ([]byte, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, &fs.PathError{Op: "read", Path: r.Path(name), Err: fmt.Errorf("larger than %d bytes", most)}
	}
	return data, nil
}

// ReadHead returns the first n bytes of a regular file, fewer if it is shorter.
func (r Root) ReadHead(name string, n int) ([]byte, error) {
	data, err := r.readHead(name, n)
	r.recordFile(name, data, err)
	return data, err
}

func (r Root) readHead(name string, n int) ([]byte, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	return io.ReadAll(io.LimitReader(f, int64(n)))
}

// Open opens a regular file for reading, past the recorder.
func (r Root) Open(name string) (*os.File, error) {
	place, err := r.Resolve(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(place)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // to open a pipe would wait for ever
		return nil, &fs.PathError{Op: "read", Path: r.Path(name), Err: errors.New("not a regular file")}
	}
	return os.Open(place)
}

// ReadDir returns the names in a directory, sorted.
func (r Root) ReadDir(name string) ([]string, error) {
	names, err := r.readDir(name)
	r.recordDir(name, names, err)
	return names, err
}

func (r Root) readDir(name string) ([]string, error) {
	place, err := r.Resolve(name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(place)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Exists tells whether something is at name: a file, a directory, or a link
// that leads to one. It is an error if that cannot be known.
func (r Root) Exists(name string) (bool, error) {
	place, err := r.Resolve(name)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(place)
	switch {
	case IsAbsent(err):
		return false, nil
	case err != nil:
		return false, err
	case info.IsDir():
		r.recordDir(name, nil, nil)
	default:
		r.recordFile(name, nil, nil)
	}
	return true, nil
}

// IsAbsent tells whether err says that a file is not there, as opposed to being
// there and unreadable. A file where a folder should be is not absence.
func IsAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist)
}

// Cause strips the operation and path that the standard library puts around a
// system error, for messages that name the file themselves.
func Cause(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// below returns name without a leading slash and without dot elements: the form
// in which a [Dir] and a [Recorder] hold names.
func below(name string) string {
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}
