package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Node is a device node or a named pipe.
type Node struct {
	Type         string // "c", "b" or "p", as mknod(1) names it
	Major, Minor int    // 0 of a pipe
	Mode         fs.FileMode
}

// ErrNotNode means that a file is neither a device node nor a named pipe. A link to a node is not
// one.
var ErrNotNode = errors.New("not a device node")

// Node returns the device node name, or nil if nothing is there. Links on the way to it are
// resolved below the root, and a link in its place is not followed: runtimes of containers do not
// follow it either (CDI library v1.1.1, deviceInfoFromPath). A snapshot contains a node as a line
// of text, "c 231:192 666", because ordinary users cannot unpack a node.
func (r Root) Node(name string) (*Node, error) {
	dir, err := r.Resolve(path.Dir(path.Clean("/" + name)))
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(path.Join(dir, path.Base(name)))
	}
	switch {
	case IsAbsent(err):
		return nil, nil
	case err != nil:
		return nil, OfFile(name, err)
	case info.Mode().IsRegular():
		data, err := r.ReadHead(name, len("c 4294967295:4294967295 7777\n")+1)
		if err != nil {
			return nil, err
		}
		node, err := parseNode(string(data))
		return node, OfFile(name, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, OfFile(name, ErrNotNode)
	}
	n := Node{Mode: info.Mode().Perm()}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		n.Type = "c"
	case unix.S_IFBLK:
		n.Type = "b"
	case unix.S_IFIFO:
		n.Type = "p"
	default:
		return nil, OfFile(name, ErrNotNode)
	}
	if n.Type != "p" {
		n.Major, n.Minor = int(unix.Major(stat.Rdev)), int(unix.Minor(stat.Rdev))
	}
	r.Record(name, []byte(n.String()+"\n"))
	return &n, nil
}

// String returns the node in the form of a snapshot.
func (n Node) String() string {
	return fmt.Sprintf("%s %d:%d %o", n.Type, n.Major, n.Minor, n.Mode.Perm())
}

func parseNode(text string) (*Node, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 || !slices.Contains([]string{"c", "b", "p"}, fields[0]) {
		return nil, ErrNotNode
	}
	major, minor, _ := strings.Cut(fields[1], ":")
	a, err := strconv.ParseUint(major, 10, 32)
	b, minorErr := strconv.ParseUint(minor, 10, 32)
	mode, modeErr := strconv.ParseUint(fields[2], 8, 12)
	if errors.Join(err, minorErr, modeErr) != nil {
		return nil, ErrNotNode
	}
	return &Node{Type: fields[0], Major: int(a), Minor: int(b), Mode: fs.FileMode(mode).Perm()}, nil
}
