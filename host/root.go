package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Root is the directory below which a machine's files lie: "/" for the machine that the program
// runs on. Its methods take paths on that machine ("etc/os-release", with or without a leading
// slash).
//
// Symbolic links are resolved as the machine itself would resolve them: an absolute target is a
// path below the root, and no link leads out of the root.
//
// An error of a method is a [FileError]: it names the file as a path on that machine.
type Root struct {
	dir    string
	top    *os.File // dir, opened as a path; nil if that failed
	rec    Recorder
	places *sync.Map // of a root with a recorder: names with links resolved
	memory *memory   // of a root that reads once
}

// rootHint says what a root is.
var rootHint = Textf("--root is the top folder of a machine's file tree; without --root it is this machine. '%s' makes such a tree of a snapshot",
	NewCommand("host unpack").Arg("FILE").Arg("DIR").Elsewhere())

// NewRoot returns the root at dir. It is an error if dir is not a directory.
func NewRoot(dir string) (Root, error) {
	if dir == "" {
		return Root{}, WithHint(errors.New("root: empty path"), rootHint)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Root{}, fmt.Errorf("root %s: %w", dir, err)
	}
	info, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return Root{}, WithHint(fmt.Errorf("root %s: %w", dir, Cause(err)), rootHint)
	}
	if err != nil {
		return Root{}, fmt.Errorf("root %s: %w", dir, Cause(err))
	}
	if !info.IsDir() {
		return Root{}, WithHint(fmt.Errorf("root %s: not a directory", dir), rootHint)
	}
	r := Root{dir: abs}
	if fd, err := open(unix.AT_FDCWD, abs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC); err == nil { // if not, files are opened by their paths
		r.top = os.NewFile(uintptr(fd), abs)
	}
	return r, nil
}

// IsMachine reports whether the root is that of the running machine.
func (r Root) IsMachine() bool { return r.Path("/") == "/" }

// Path returns the path of name on the machine that the program runs on, without resolving
// links: for messages, and for programs that resolve links themselves.
func (r Root) Path(name string) string {
	return filepath.Join(r.dir, filepath.FromSlash(path.Clean("/"+name)))
}

// maxFile is the size limit of ReadFile in bytes. Files that describe a machine are small, and
// the root may be an archive from an untrusted source.
const maxFile = 4 << 20

// ReadFile returns the content of a regular file. A file larger than 4 MiB is an error.
func (r Root) ReadFile(name string) ([]byte, error) {
	return r.readWhole(name, maxFile)
}

// maxTable is the size limit of ReadTable in bytes: more than 400,000 routes.
const maxTable = 64 << 20

// ReadTable returns the content of a procfs file that grows with the machine's networks and
// containers, such as routes and mounts. A file larger than 64 MiB is an error.
func (r Root) ReadTable(name string) ([]byte, error) {
	return r.readWhole(name, maxTable)
}

// ReadReduced is ReadFile for a file whose whole content must not be recorded: it passes the output
// of reduce to the recorder.
func (r Root) ReadReduced(name string, reduce func([]byte) []byte) ([]byte, error) {
	return r.readWith(name, maxFile, reduce)
}

func (r Root) readWhole(name string, most int64) ([]byte, error) {
	return r.readWith(name, most, func(data []byte) []byte { return data })
}

func (r Root) readWith(name string, most int64, reduce func([]byte) []byte) ([]byte, error) {
	read := func() ([]byte, error) {
		data, err := r.readFile(name, most)
		if r.rec != nil {
			r.recordFile(name, reduce(data), err)
		}
		return data, err
	}
	if r.memory != nil {
		return r.memory.file(name, most, true, read)
	}
	return read()
}

func (r Root) readFile(name string, most int64) ([]byte, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	if err != nil {
		return nil, OfFile(name, err)
	}
	var b bytes.Buffer
	b.Grow(int(min(info.Size(), most)) + bytes.MinRead) // procfs and sysfs show other sizes
	if _, err := b.ReadFrom(io.LimitReader(f, most+1)); err != nil {
		return nil, OfFile(name, err)
	}
	data := b.Bytes()
	if int64(len(data)) > most {
		return nil, OfFile(name, fmt.Errorf("larger than %d bytes", most))
	}
	return data, nil
}

// ReadHead returns the first n bytes of a regular file, or all of a shorter file.
func (r Root) ReadHead(name string, n int) ([]byte, error) {
	read := func() ([]byte, error) {
		data, err := r.readHead(name, n)
		r.recordFile(name, data, err)
		return data, err
	}
	if r.memory != nil {
		return r.memory.file(name, int64(n), false, read)
	}
	return read()
}

func (r Root) readHead(name string, n int) ([]byte, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(f, int64(n)))
	return data, OfFile(name, err)
}

// below returns name without a leading slash and without dot elements, the form of names in
// [Dir] and [Recorder].
func below(name string) string {
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}
