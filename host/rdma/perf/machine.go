package perf

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/rdma/ping"
)

// Machine is a machine on which ports can be measured.
type Machine struct{ ping.Machine }

// Observe reads the ports that a request names, and what measurements of them need: the programs of
// perftest, on the machine and, if the request names one, an image. Its programs and its size are
// set. The error joins all that prevents measurements.
func Observe(ctx context.Context, root host.Root, r ping.Request) (Machine, error) {
	r.Programs, r.Size = Programs(host.ReadFamily(root)), Size
	m, err := ping.Observe(ctx, root, r)
	if r.Image != "" {
		err = errors.Join(err, r.Programs.Ready(host.Runner{Root: root}), ping.CheckMemlock(r.Options))
	}
	return Machine{m}, err
}

// Tested is a test that was carried out, with its result.
type Tested struct {
	Test
	Result
}

// test returns the test of a port.
func (m Machine) test(t ping.Test) Test {
	return Test{Test: t, Hardware: readHardware(m.Root, t.Target)}
}

// warned adds to a result what was not read of the hardware.
func (t Test) warned(r Result, err error) (Tested, error) {
	if err == nil && t.Hardware.Err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s: its PCIe link cannot be read: %v", t.Target, t.Hardware.Err))
	}
	return Tested{t, r}, err
}

// Loopback measures all ports one after the other, with both sides on this machine. begins is
// called before each test.
func (m Machine) Loopback(ctx context.Context, begins func(Test)) ([]Tested, error) {
	var all []Test
	for _, target := range m.Targets {
		test, err := m.test(m.TestOf(target, target.Addresses[0])).asked(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, test)
	}
	var tests []Tested
	for _, test := range all {
		begins(test)
		tested, err := test.warned(test.Loopback(ctx))
		if err != nil {
			return nil, err
		}
		tests = append(tests, tested)
	}
	return tests, nil
}

// Listen waits for a peer at the one port that can be tested. begins is called before.
func (m Machine) Listen(ctx context.Context, begins func(Test)) (Tested, error) {
	listener, err := m.Listener()
	if err != nil {
		return Tested{}, err
	}
	test := m.test(listener)
	begins(test)
	return test.warned(test.Listen(ctx))
}

// Peer measures a way to a peer that listens. begins is called before.
func (m Machine) Peer(ctx context.Context, way ping.Way, begins func(Test)) (Tested, error) {
	test := m.test(m.TestOf(way.Target, way.Source))
	begins(test)
	return test.warned(test.Peer(ctx, way.Peer))
}
