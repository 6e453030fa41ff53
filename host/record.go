package host

import (
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Recorder is told of everything that is read through a root, so that the same
// reads can be answered elsewhere. Names are below the root, without a leading
// slash. What is absent is not told: its absence is what a replay shows too.
// It is called by several goroutines at once, and may not keep data.
type Recorder interface {
	// File tells that a file held data, or could not be read.
	File(name string, data []byte, err error)
	// Link tells that a link has target, or could not be read.
	Link(name, target string, err error)
	// Dir tells that a directory is there and holds names, as far as it was
	// listed, or that it could not be read.
	Dir(name string, names []string, err error)
}

// Recorded returns the same root, with every read through it told to rec.
func (r Root) Recorded(rec Recorder) Root {
	r.rec = rec
	return r
}

// Tell tells the recorder, if there is one, that a file held data: for a reader
// that needs little of a large file, and reads it unrecorded.
func (r Root) Tell(name string, data []byte) {
	r.recordFile(name, data, nil)
}

// Real returns name with every link resolved below the root, and records those links: what
// is read by that name is in a snapshot where the links lead.
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
		if err != nil { // no link, or absent
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
