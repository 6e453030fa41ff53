package binary

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"gpustack/integration/ran"
	"gpustack/integration/service"
)

// Main runs the tests of a package: start gets the binary that they are about and a folder
// that goes when they are done, and returns what stops that which it has started. It is an
// error if a program is left that has files in the folder. What passed is noted (package ran).
func Main(m *testing.M, name string, start func(gpustack, scratch string) (stop func() error, err error)) {
	flag.Parse()
	status, err := run(m, name, start)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func run(m *testing.M, name string, start func(gpustack, scratch string) (func() error, error)) (status int, err error) {
	scratch, err := os.MkdirTemp("", "gpustack-"+name+"-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, service.Left(scratch), os.RemoveAll(scratch)) }()
	gpustack, err := Build(scratch)
	if err != nil {
		return 1, err
	}
	stop, err := start(gpustack, scratch)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if status = m.Run(); status != 0 {
		return status, nil
	}
	return 0, ran.Note(name)
}
