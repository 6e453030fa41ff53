package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/binary"
	"gpustack/integration/ran"
	"gpustack/integration/vm/agent"
)

// What all tests start machines with. The binary is made as make build makes it.
var (
	scratch   string // goes when all tests are done
	programs  Programs
	linux     kernel
	initramfs string
)

func TestMain(m *testing.M) {
	binary.Main(m, "vm", func(gpustack, dir string) (stop func() error, err error) {
		scratch, programs.Gpustack = dir, gpustack
		if programs.Guest, err = BuildGuest(scratch); err != nil {
			return nil, err
		}
		ctx := context.Background()
		if err := CheckQEMU(ctx); err != nil {
			return nil, err
		}
		if linux, err = debianKernel(ctx); err != nil {
			return nil, err
		}
		initramfs = filepath.Join(scratch, "initramfs")
		return func() error { return nil }, writeInitramfs(ctx, initramfs, linux, programs)
	}, func() (string, error) {
		installed, err := ran.Versions(binary.Dpkg, "vm")
		return installed + ", linux " + linux.Release, err
	})
}

// A machine is a Machine of one test, which fails where it does.
type machine struct {
	*Machine
	t *testing.T
}

// small starts a machine that has no disk.
func small(t *testing.T, topology Topology) machine {
	t.Helper()
	return start(t, topology, fromMemory(linux, initramfs, topology))
}

func start(t *testing.T, topology Topology, boot Boot) machine {
	t.Helper()
	begin := time.Now()
	dir, err := os.MkdirTemp(scratch, "m")
	hosttest.NoError(t, err)
	t.Cleanup(func() { keepLogs(t, dir) })
	m, err := Start(t.Context(), dir, topology, boot)
	hosttest.NoError(t, err)
	t.Logf("started in %.1f s", time.Since(begin).Seconds())
	t.Cleanup(func() {
		for _, death := range m.Deaths {
			t.Logf("started again, for it died before its agent greeted: %s", death)
		}
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	return machine{m, t}
}

// keepLogs keeps what a machine of a failed test has printed, and says where.
func keepLogs(t *testing.T, dir string) {
	if !t.Failed() {
		return
	}
	cache, err := Cache()
	if err != nil {
		t.Error(err)
		return
	}
	for _, name := range []string{"console.log", "qemu.log"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // it never came so far
		}
		to := filepath.Join(cache, "logs", t.Name(), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644)); err != nil {
			t.Error(err)
		}
		t.Logf("kept: %s", to)
	}
}

// try runs a program in the machine and returns what came of it.
func (m machine) try(argv ...string) agent.Reply {
	m.t.Helper()
	reply, err := m.Ask(m.t.Context(), agent.Request{Argv: argv})
	hosttest.NoError(m.t, err)
	return reply
}

// run runs a program in the machine, which must succeed, and returns what it printed.
func (m machine) run(argv ...string) string {
	m.t.Helper()
	reply := m.try(argv...)
	if reply.Status != 0 {
		m.t.Fatalf("%q: exit status %d: %s", argv, reply.Status, reply.Stderr)
	}
	return reply.Stdout
}
