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

// Dpkg is where dpkg(1) says what is installed here.
const Dpkg = "/var/lib/dpkg"

// Main runs the tests of a package: start gets the binary that they are about and a folder
// that goes when they are done, and returns what stops that which it has started. It is an
// error if a program is left that has files in the folder. What passed is noted with versions
// (package ran), which are those of installed packages if versions is nil.
func Main(m *testing.M, name string, start func(gpustack, scratch string) (stop func() error, err error), versions func() (string, error)) {
	flag.Parse()
	if versions == nil {
		versions = func() (string, error) { return ran.Versions(Dpkg, name) }
	}
	status, err := run(m, name, start, versions)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func run(m *testing.M, name string, start func(gpustack, scratch string) (func() error, error), versions func() (string, error)) (status int, err error) {
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
	return 0, ran.Note(name, versions)
}
