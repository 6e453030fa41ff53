package chain

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/binary"
	"gpustack/integration/ran"
	"gpustack/integration/vm"
)

var full = flag.Bool("full", false, "run the tests that take minutes too")

// What all tests with machines share, with -full: a folder that goes when all tests are done, the
// programs, and the disk that has them.
var (
	scratch  string
	programs vm.Programs
	lab      string
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !*full {
		os.Exit(m.Run())
	}
	binary.Main(m, "chain", func(gpustack, dir string) (stop func() error, err error) {
		ctx := context.Background()
		scratch, programs.Gpustack = dir, gpustack
		if programs.Guest, err = vm.BuildGuest(dir); err != nil {
			return nil, err
		}
		if err := vm.CheckQEMU(ctx); err != nil {
			return nil, err
		}
		lab, err = Lab(ctx, dir, programs)
		return func() error { return nil }, err
	}, versions)
}

// versions are those of the compute nodes.
func versions() (string, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "dpkg-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	disk, err := Image(ctx)
	if err != nil {
		return "", err
	}
	if err := vm.ReadDisk(ctx, disk, binary.Dpkg+"/status", filepath.Join(dir, "status")); err != nil {
		return "", err
	}
	return ran.Versions(dir, "chain")
}

// A machine is a Machine of one test, which fails where it does.
type machine struct {
	*Machine
	t *testing.T
}

// prepared returns the disk of a prepared compute node.
func prepared(t *testing.T) Server {
	t.Helper()
	begin := time.Now()
	server, err := Prepared(t.Context(), programs, t.Logf)
	hosttest.NoError(t, err)
	t.Logf("prepared, or found in the cache, in %.1f s", time.Since(begin).Seconds())
	return server
}

// start starts machines that boot from a disk as hosts, all at once. They end with the test; what
// they printed is kept where that fails.
func start(t *testing.T, disk, format string, hosts ...Host) []machine {
	t.Helper()
	var all sync.WaitGroup
	machines, problems := make([]machine, len(hosts)), make([]error, len(hosts))
	for i, h := range hosts {
		dir, err := os.MkdirTemp(scratch, "m")
		hosttest.NoError(t, err)
		t.Cleanup(func() { keepLogs(t, h.Name, filepath.Join(dir, "console.log"), filepath.Join(dir, "qemu.log")) })
		all.Go(func() {
			begin := time.Now()
			m, err := Start(t.Context(), dir, h, disk, format, lab)
			if err != nil {
				problems[i] = err
				return
			}
			t.Logf("%s started in %.1f s", h.Name, time.Since(begin).Seconds())
			t.Cleanup(func() {
				for _, death := range m.Deaths {
					t.Logf("%s was started again, for it died before its agent greeted: %s", h.Name, death)
				}
				if err := m.Kill(); err != nil {
					t.Error(err)
				}
			})
			machines[i] = machine{m, t}
		})
	}
	all.Wait()
	hosttest.NoError(t, errors.Join(problems...))
	return machines
}

// keepLogs copies files that match patterns to a folder of the cache with a name, and logs its
// path, if the test has failed. A pattern may match nothing: what writes such files was not started
// yet.
func keepLogs(t *testing.T, name string, patterns ...string) {
	if !t.Failed() {
		return
	}
	cache, err := vm.Cache()
	if err != nil {
		t.Error(err)
		return
	}
	to := filepath.Join(cache, "logs", t.Name(), name)
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Error(err)
		return
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Error(err)
		}
		for _, file := range files {
			if err := copyFile(file, filepath.Join(to, filepath.Base(file))); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("kept: %s", to)
}

// run runs a program in the machine, which must succeed, and returns what it printed.
func (m machine) run(argv ...string) string {
	m.t.Helper()
	out, err := m.Run(m.t.Context(), argv...)
	hosttest.NoError(m.t, err)
	return out
}
