package vm

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// An archive is written in the form that Linux unpacks as its first file system:
// Documentation/driver-api/early-userspace/buffer-format.rst. Several may follow each
// other in one file.
type archive struct {
	to    io.Writer
	inode int
	err   error // the first
}

// Modes of stat(2) that archives have.
const (
	modeFolder = 0o040000
	modeFile   = 0o100000
	modeLink   = 0o120000
)

func (a *archive) folder(name string) {
	a.add(name, modeFolder|0o755, nil)
}

func (a *archive) link(name, target string) {
	a.add(name, modeLink|0o777, []byte(target))
}

// file adds what a file of this machine holds.
func (a *archive) file(name string, perm fs.FileMode, from string) {
	data, err := os.ReadFile(from)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.add(name, modeFile|int(perm), data)
}

// close ends the archive, and returns the first error.
func (a *archive) close() error {
	a.add("TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) add(name string, mode int, data []byte) {
	a.inode++
	links := 1
	if mode&modeFolder != 0 && mode&modeFile != modeFile {
		links = 2
	}
	const header = 6 + 13*8
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.write([]byte(head), []byte(name), make([]byte, 1+pad(header+len(name)+1)))
	a.write(data, make([]byte, pad(len(data))))
}

// pad is how many bytes are missing to a multiple of four.
func pad(n int) int {
	return -n & 3
}

func (a *archive) write(parts ...[]byte) {
	for _, part := range parts {
		if a.err == nil {
			_, a.err = a.to.Write(part)
		}
	}
}
