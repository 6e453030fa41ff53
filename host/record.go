package host

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

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
	// Mode records the permissions of a file whose content is recorded too, where they were asked
	// for.
	Mode(name string, mode fs.FileMode)
	// Link records the target of a symbolic link, or the error of reading it.
	Link(name, target string, err error)
	// Dir records that a directory exists and the names in it that were listed, or the error
	// of reading it.
	Dir(name string, names []string, err error)
}

// Recorded returns the same root with every read through it recorded by rec.
func (r Root) Recorded(rec Recorder) Root {
	r.rec, r.places = rec, &sync.Map{}
	return r
}

// RecordMode records the content and permissions of a file, or the error of reading it, if the root
// has a recorder: for readers that open the file themselves because they need more of it.
func (r Root) RecordMode(name string, data []byte, mode fs.FileMode, err error) {
	r.recordFile(name, data, err)
	if r.rec != nil && err == nil {
		r.rec.Mode(r.place(name), mode)
	}
}

// Mode returns the type and permissions of what a name leads to, and whether anything is there. It
// records them, so that a snapshot is judged as the machine was.
func (r Root) Mode(name string) (mode fs.FileMode, present bool, err error) {
	if present, err = r.Exists(name); err != nil || !present {
		return 0, false, err
	}
	place, err := r.Resolve(name)
	if err != nil {
		return 0, false, err
	}
	info, err := os.Stat(place)
	if err != nil {
		return 0, false, OfFile(name, err)
	}
	if r.rec != nil && info.Mode().IsRegular() {
		r.rec.Mode(r.place(name), info.Mode())
	}
	return info.Mode(), true, nil
}

// IsRecorded reports whether the root has a recorder, for readers that prepare what they record.
func (r Root) IsRecorded() bool {
	return r.rec != nil
}

// Record records data as the content of a file, if the root has a recorder. Readers that need
// little of a large file open it with Open, which does not record, and record that part.
func (r Root) Record(name string, data []byte) {
	r.recordFile(name, data, nil)
}

// Real returns name with every symbolic link resolved below the root, and records those links,
// so that a snapshot contains both the links and the file they lead to. Links of /proc are not
// recorded: see place.
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
			return "", OfFile(name, unix.ELOOP)
		}
		if !ofProcess(at) {
			r.recordLink(at, target, nil)
		}
		if !path.IsAbs(target) {
			target = path.Join(resolved, target)
		}
		resolved, rest = "/", append(strings.Split(below(target), "/"), rest...)
	}
	return resolved, nil
}

// place returns the name under which a file is recorded: with the links on the way to it resolved,
// and recorded as links, as /lib and /etc/grub2.cfg often are. Links of /proc remain names: what
// they lead to differs by process.
func (r Root) place(name string) string {
	name = below(name)
	if ofProcess(name) {
		return name
	}
	dir := r.folder(path.Dir(name))
	at := path.Join(dir, path.Base(name))
	if _, err := os.Readlink(r.Path(at)); err != nil {
		return at
	}
	return r.folder(at)
}

// ofProcess reports whether a name is below /proc.
func ofProcess(name string) bool {
	return strings.HasPrefix(below(name), "proc/")
}

// folder returns a name with its links resolved and recorded, each once.
func (r Root) folder(name string) string {
	if known, ok := r.places.Load(name); ok {
		return known.(string)
	}
	resolved, err := r.Real(name)
	if err != nil { // a loop of links: readers get the same error
		resolved = name
	}
	r.places.Store(name, below(resolved))
	return below(resolved)
}

func (r Root) recordFile(name string, data []byte, err error) {
	switch {
	case r.rec == nil || IsAbsent(err):
	case err != nil && r.recordOther(name):
	default:
		r.rec.File(r.place(name), data, err)
	}
}

// recordOther records a name that cannot be read because it is a directory, or because an element
// of its path is a file, and reports whether it is so: the snapshot gives the same error.
func (r Root) recordOther(name string) bool {
	for at := below(name); at != "."; at = path.Dir(at) {
		place, err := r.Resolve(at)
		if errors.Is(err, unix.ELOOP) {
			r.folder(at) // records the links
			return true
		}
		if err != nil {
			return false
		}
		info, err := os.Stat(place)
		switch {
		case errors.Is(err, unix.ENOTDIR):
			continue
		case err != nil:
			return false
		case info.IsDir() && at == below(name):
			r.rec.Dir(r.place(at), nil, nil)
			return true
		case info.Mode().IsRegular() && at != below(name):
			r.rec.File(r.place(at), nil, nil)
			return true
		}
		return false
	}
	return false
}

func (r Root) recordLink(name, target string, err error) {
	if r.rec != nil && !IsAbsent(err) {
		r.rec.Link(below(name), target, err)
	}
}

func (r Root) recordDir(name string, names []string, err error) {
	switch {
	case r.rec == nil || IsAbsent(err):
	case err != nil && r.recordOther(name):
	default:
		r.rec.Dir(r.place(name), names, err)
	}
}
