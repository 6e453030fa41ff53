package host

import (
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Recorder receives everything that is read through a root, so that a snapshot can replay the
// same reads. Names are below the root, without a leading slash. Absent files are not recorded:
// they are absent from the snapshot too. Several goroutines call a Recorder at once. It must not
// keep data after a method returns.
type Recorder interface {
	// File records the content of a file, or the error of reading it. The content is nil where
	// only the existence of the file was asked for.
	File(name string, data []byte, err error)
	// Link records the target of a symbolic link, or the error of reading it.
	Link(name, target string, err error)
	// Dir records that a directory exists and the names in it that were listed, or the error
	// of reading it.
	Dir(name string, names []string, err error)
}

// Recorded returns the same root with every read through it recorded by rec.
func (r Root) Recorded(rec Recorder) Root {
	r.rec = rec
	return r
}

// Record records data as the content of a file, if the root has a recorder. Readers that need
// little of a large file open it with Open, which does not record, and record that part.
func (r Root) Record(name string, data []byte) {
	r.recordFile(name, data, nil)
}

// Real returns name with every symbolic link resolved below the root, and records those links,
// so that a snapshot contains both the links and the file they lead to.
func (r Root) Real(name string) (string, error) {
	if r.rec == nil {
		place, err := r.Resolve(name)
		return "/" + below(strings.TrimPrefix(place, r.dir)), err
	}
	const most = 40 // Linux, MAXSYMLINKS in include/linux/namei.h
	resolved, rest := "/", strings.Split(below(name), "/")
	for links := 0; len(rest) > 0; {
		at := path.Join(resolved, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(r.Path(at))
		if err != nil { // not a link, or absent
			resolved = at
			continue
		}
		if links++; links > most {
			return "", &fs.PathError{Op: "readlink", Path: r.Path(name), Err: unix.ELOOP}
		}
		r.recordLink(at, target, nil)
		if !path.IsAbs(target) {
			target = path.Join(resolved, target)
		}
		resolved, rest = "/", append(strings.Split(below(target), "/"), rest...)
	}
	return resolved, nil
}

func (r Root) recordFile(name string, data []byte, err error) {
	if r.rec != nil && !IsAbsent(err) {
		r.rec.File(below(name), data, err)
	}
}

func (r Root) recordLink(name, target string, err error) {
	if r.rec != nil && !IsAbsent(err) {
		r.rec.Link(below(name), target, err)
	}
}

func (r Root) recordDir(name string, names []string, err error) {
	if r.rec != nil && !IsAbsent(err) {
		r.rec.Dir(below(name), names, err)
	}
}
