package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// files reads and judges the files, and what they name on the machine.
func (r *reader) files() {
	for i := range r.out.Files {
		f := &r.out.Files[i]
		f.read(r.root)
		if f.Used() {
			f.Problems = append(f.Problems, r.machine(f.Path, f.Spec)...)
		}
	}
}

// read reads and judges the file, without what it names.
func (f *File) read(root host.Root) {
	data, err := root.ReadFile(f.Path)
	if err != nil {
		reason := fmt.Sprintf("the file cannot be read: %v", host.Cause(err))
		if host.IsAbsent(err) { // the folder lists it
			reason = "the link leads to no file"
		}
		f.Problems = []Problem{{File: f.Path, Kind: Unreadable, Status: host.Fail, Reason: reason, Skipped: true, Denied: errors.Is(err, fs.ErrPermission)}}
		return
	}
	f.Spec, f.Problems = Parse(f.Path, data)
	if mode, _, err := root.Mode(f.Path); err == nil && mode.Perm()&0o004 == 0 {
		f.Problems = append(f.Problems, Problem{
			File: f.Path, Kind: Private, Status: host.Warn, Reason: fmt.Sprintf("mode %04o: only root and the file's group can read it", mode.Perm()),
		})
	}
}

// Parse parses and judges the content of a spec file, without the machine. The spec is nil if the
// content cannot be decoded: the library's errors name the line. The file is only named in the
// problems.
func Parse(file string, data []byte) (*specs.Spec, []Problem) {
	spec, err := library.ParseSpec(data)
	if err == nil && spec == nil {
		err = errors.New("no Spec data")
	}
	if err != nil {
		p := Problem{File: file, Kind: Malformed, Status: host.Fail, Library: err.Error(), Skipped: true}
		p.Reason = "not a spec in YAML or JSON: " + strings.TrimPrefix(p.Library, "failed to unmarshal CDI Spec: ")
		_, types, ok := strings.Cut(p.Library, "unmarshal errors:\n  ")
		if !ok {
			return nil, []Problem{p}
		}
		var problems []Problem
		for line := range strings.SplitSeq(types, "\n  ") {
			p.Reason, p.Library = "a key is unknown, or its value of a wrong type", line
			problems = append(problems, p)
		}
		return nil, problems
	}
	return spec, judge(file, spec)
}
