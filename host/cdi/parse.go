package cdi

import (
	"errors"
	"fmt"
	"io"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// file reads and judges one file.
func (r *reader) file(name string, priority int) File {
	f := File{Path: name, Priority: priority}
	data, err := r.root.ReadFile(name)
	if err != nil {
		f.Problems = []Problem{{
			File: name, Kind: Unreadable, Status: host.Fail, Skipped: true, Reason: fmt.Sprintf("the file cannot be read: %v", host.Cause(err)),
		}}
		return f
	}
	f.Spec, f.Problems = Parse(name, data)
	if f.Spec != nil {
		f.Problems = append(f.Problems, r.machine(name, f.Spec)...)
	}
	return f
}

// Parse parses and judges the content of a spec file, without the machine: the spec is nil if the
// file is not one.
func Parse(file string, data []byte) (*specs.Spec, []Problem) {
	spec, err := library.ParseSpec(data)
	if errors.Is(err, io.EOF) {
		err = errors.New("the file is empty")
	}
	if err != nil {
		return nil, []Problem{{File: file, Kind: Malformed, Status: host.Fail, Skipped: true, Reason: err.Error()}}
	}
	return spec, nil
}
