package trial

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/engine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Request is what the operator asks to be tested.
type Request struct {
	Options
	Device string // the ports, as [Select] names them; "" for all
	Image  string // of the containers in which the programs run; "" for those of the machine
}

// Machine is a machine on which ports can be tested: Observe reads it, Loopback, Listen and Peer
// test.
type Machine struct {
	Request
	Programs  Programs
	Root      host.Root // below which the counters of the ports are
	Runner    host.Runner
	Targets   []Target // ports that can be tested, at least one
	Skipped   []Skipped
	Container *engine.Container // without devices; nil: the programs run on the machine
	Folders   cdi.Folders       // that have the devices of containers
	Warnings  []string
}

// Observe reads the ports that a request names, and what tests of them need. The error joins all
// that prevents them: no port can be tested, a program is not installed, or the image is not there.
func Observe(ctx context.Context, root host.Root, r Request) (Machine, error) {
	m := Machine{Request: r, Programs: Rping(), Root: root, Runner: host.Runner{Root: root}}
	if r.Perf {
		m.Programs = Perftest(host.ReadFamily(root))
	}
	devices, stack, err := rdma.Scan(root, rdma.Options{GIDs: true})
	if errors.Is(err, pci.ErrNoPCI) {
		err = ErrNoDevices
	}
	var adapters []rdma.Adapter
	if err == nil {
		adapters, err = selected(stack, devices, r.Device)
	}
	if err = errors.Join(err, m.readPrograms(ctx)); err != nil {
		return Machine{}, err
	}
	m.Warnings = stack.Warnings
	m.Targets, m.Skipped = Targets(adapters, netdevAddresses)
	if len(m.Targets) > 0 {
		return m, nil
	}
	refused := host.Map(m.Skipped, func(s Skipped) error { return s.Err })
	return Machine{}, errors.Join(refused...)
}

// selected returns the adapters that a selector names. Of a PCI function that is no adapter, the
// error says what it is.
func selected(stack rdma.Stack, devices pci.Devices, selector string) ([]rdma.Adapter, error) {
	adapters, err := Select(stack, selector)
	if errors.Is(err, ErrUnknownDevice) {
		if address, notAddress := pci.ParseAddress(selector); notAddress == nil {
			err = rdma.NotAdapter(address, devices)
		}
	}
	return adapters, err
}

// readPrograms finds the programs: on the machine, or an image for them. Measurements in containers
// are compared with those of the machine.
func (m *Machine) readPrograms(ctx context.Context) (missing error) {
	if m.Image == "" || m.Perf {
		missing = m.Programs.Ready(m.Runner)
	}
	if m.Image == "" {
		return missing
	}
	found, noImage := engine.Find(ctx, m.Runner, m.Image)
	selinux, unread := host.ReadSELinux(m.Root)
	found.Network, found.Unlabelled = "host", selinux.DeniesDevices()
	m.Container = &found
	m.Folders = cdi.Read(m.Root)
	return errors.Join(noImage, unread, missing)
}

// Tested is a test that was carried out, with its result.
type Tested struct {
	Test
	Result
}

// VerdictOf returns the verdict of several tests: fail unless all pass.
func VerdictOf(tests []Tested) Verdict {
	for _, t := range tests {
		if t.Verdict != Pass {
			return Fail
		}
	}
	return Pass
}

// testOf returns the test of a port by one of its addresses.
func (m Machine) testOf(ctx context.Context, target Target, source Address) (Test, error) {
	t := Test{Options: m.Options, Programs: m.Programs, Runner: m.Runner, Root: m.Root, Target: target, Source: source}
	if m.Container != nil {
		container := *m.Container
		container.Devices = containerDevices(m.Folders, target)
		t.Container = &container
	}
	if m.Perf {
		t.Hardware = readHardware(m.Root, target)
	}
	return t.prepared(ctx)
}

// Loopback tests all ports one after the other, with both sides on this machine. begins is called
// before each test.
func (m Machine) Loopback(ctx context.Context, begins func(Test)) ([]Tested, error) {
	var tests []Tested
	for _, target := range m.Targets {
		test, err := m.testOf(ctx, target, target.Addresses[0])
		if err != nil {
			return nil, err
		}
		tests = append(tests, Tested{Test: test})
	}
	for i := range tests {
		begins(tests[i].Test)
		var err error
		if tests[i].Result, err = tests[i].Loopback(ctx); err != nil {
			return nil, err
		}
	}
	return tests, nil
}

// Listen waits for a peer at the one port that can be tested. begins is called before.
func (m Machine) Listen(ctx context.Context, begins func(Test)) ([]Tested, error) {
	if len(m.Targets) > 1 {
		return nil, severalPorts(m.Targets)
	}
	test, err := m.testOf(ctx, m.Targets[0], m.Targets[0].Addresses[0])
	if err != nil {
		return nil, err
	}
	begins(test)
	r, err := test.Listen(ctx)
	return []Tested{{test, r}}, err
}

// severalPorts returns the error of a listener without a port of its own.
func severalPorts(targets []Target) error {
	names := host.Map(targets, func(t Target) string {
		return fmt.Sprintf("%s/%d (%s)", t.Adapter.Name, t.Port.Number, t.Addresses[0].IP)
	})
	last := len(names) - 1
	return host.WithHint(fmt.Errorf("--listen: several ports can be tested: %s and %s", strings.Join(names[:last], ", "), names[last]),
		host.Textf("choose one: %s", host.NewCommand("rdma test").Flag("listen").Flag("device", fmt.Sprintf("%s/%d",
			targets[0].Adapter.Name, targets[0].Port.Number))))
}

// Peer tests a way to a peer that listens. begins is called before.
func (m Machine) Peer(ctx context.Context, way Way, begins func(Test)) ([]Tested, error) {
	test, err := m.testOf(ctx, way.Target, way.Source)
	if err != nil {
		return nil, err
	}
	begins(test)
	r, err := test.Peer(ctx, way.Peer)
	return []Tested{{test, r}}, err
}
