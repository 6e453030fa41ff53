package startup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/container/prepare"
	"gpustack/host/edit"
	observed "gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Kinds of steps for containers.
const (
	kindNodes = "nodes"
	kindCDI   = "cdi"
)

// OfContainers reports whether a step is for what containers are given.
func (s StepResult) OfContainers() bool { return s.Kind == kindNodes || s.Kind == kindCDI }

// Errors of the steps for containers.
var (
	// ErrNodes means that nodes of NVIDIA's driver do not exist, or have numbers of another device.
	ErrNodes = host.WithHint(errors.New("nvidia-modprobe has not made the nodes"), "'gpustack container check' says what the driver lacks; journalctl -k has its messages")
	// ErrNoModprobe means that nothing can make the nodes of NVIDIA's driver.
	ErrNoModprobe = host.WithHint(errors.New("nodes of NVIDIA's driver are missing, and nothing makes them"), "install nvidia-modprobe")
	// ErrNotOffered means that containers cannot get a recorded function.
	ErrNotOffered = host.WithHint(errors.New("containers cannot get"), "'gpustack container check' names the causes; then run: systemctl restart "+Unit)
)

// containerSteps returns the steps for what is recorded for containers, after those of adapters:
// the nodes of the GPUs, and unless they are static, the specs. A spec of adapters has to wait for
// the drivers of VFs, which give the uverbs nodes their numbers of this boot.
func containerSteps(c *observed.Containers, adapters []Step) (steps []Step) {
	if c == nil {
		return nil
	}
	addSpec := func(id, file string, needs []string) {
		if !c.Options.Static {
			steps = append(steps, Step{ID: kindCDI + " " + id, Kind: kindCDI, Needs: needs, Deadline: long, work: spec{*c, file}})
		}
	}
	isHCA := func(f observed.ContainerFunction) bool { return f.HCA }
	isGPU := func(f observed.ContainerFunction) bool { return !f.HCA }
	if slices.ContainsFunc(c.Functions, isGPU) {
		steps = append(steps, Step{ID: kindNodes, Kind: kindNodes, Needs: []string{}, Deadline: long, work: nodes{*c}})
		addSpec("gpu", prepare.GPUFile, []string{kindNodes})
	}
	if slices.ContainsFunc(c.Functions, isHCA) {
		needs := []string{}
		for _, s := range adapters {
			if s.Kind == kindDriver && c.At(*s.Address) != nil {
				needs = append(needs, s.ID)
			}
		}
		addSpec("hca", prepare.HCAFile, needs)
	}
	return steps
}

// nodes is the step that makes the nodes of NVIDIA's driver, which the kernel does not make.
type nodes struct{ containers observed.Containers }

// lacking returns what nodes of the recorded GPUs are missing or have numbers of another device.
// minors are those of nodes that nvidia-modprobe has to make.
func (n nodes) lacking(m machine) (lacks []string, minors []int, err error) {
	devices, _, err := pci.Scan(m.root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return nil, nil, err
	}
	driver, err := nvidia.Read(m.root, devices)
	if err != nil {
		return nil, nil, err
	}
	wrong := func(file string) bool {
		node := driver.Node(file)
		major, minor, known := driver.Numbers(file)
		switch {
		case node == nil:
			lacks = append(lacks, file+" is missing")
		case !known:
			lacks = append(lacks, file+" belongs to a module that is not loaded")
		case node.Major != major || node.Minor != minor:
			lacks = append(lacks, fmt.Sprintf("%s is device %d:%d instead of %d:%d", file, node.Major, node.Minor, major, minor))
		default:
			return false
		}
		return true
	}
	for _, file := range nvidia.Nodes() {
		wrong(file)
	}
	for _, f := range n.containers.Functions {
		if f.HCA {
			continue
		}
		gpu := driver.GPU(f.Address)
		if gpu == nil || gpu.Minor == nil {
			lacks = append(lacks, fmt.Sprintf("%s has no node: NVIDIA's driver does not show it", f.Address))
			continue
		}
		if file := nvidia.Nodes(*gpu.Minor)[len(nvidia.Nodes())]; wrong(file) {
			minors = append(minors, *gpu.Minor)
		}
	}
	return lacks, minors, nil
}

func (n nodes) look(_ context.Context, m machine) (before any, reached bool, err error) {
	lacks, _, err := n.lacking(m)
	return struct {
		Lacked []string `json:"lacked"`
	}{lacks}, len(lacks) == 0, err
}

// carryOut has nvidia-modprobe load the modules and make the nodes. Which minors the GPUs have is
// known only once the driver is loaded (nvidia-modprobe(1), -u and -c).
func (n nodes) carryOut(ctx context.Context, m machine) error {
	const program = "nvidia-modprobe"
	if err := m.start(ctx, program, "-u", "-c", "0"); err != nil {
		return err
	}
	lacks, minors, err := n.lacking(m)
	if err != nil {
		return err
	}
	if len(minors) > 0 {
		argv := []string{program}
		for _, minor := range minors {
			argv = append(argv, "-c", fmt.Sprint(minor))
		}
		if err := m.start(ctx, argv...); err != nil {
			return err
		}
		if lacks, _, err = n.lacking(m); err != nil {
			return err
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("%w: %s", ErrNodes, strings.Join(lacks, ", "))
	}
	return nil
}

// start starts a program that makes nodes.
func (m machine) start(ctx context.Context, argv ...string) error {
	err := m.program(ctx, argv)
	if errors.Is(err, host.ErrNoProgram) {
		return fmt.Errorf("%w: %s is not installed", ErrNoModprobe, argv[0])
	}
	return err
}

func (nodes) goes(machine, json.RawMessage) ([]pci.Address, error) { return nil, nil }

// revert leaves the nodes: every program that uses a GPU makes them too.
func (nodes) revert(context.Context, machine, json.RawMessage) error { return nil }

// spec is the step that writes a CDI spec as the machine is now.
type spec struct {
	containers observed.Containers
	file       string // prepare.GPUFile or prepare.HCAFile
}

type specBefore struct {
	File string `json:"file"` // that the step writes, and a revert removes
}

// plan returns the change of the spec's file, and why it lacks recorded functions.
func (s spec) plan(m machine) (change edit.Plan, lacks error, err error) {
	devices, _, err := pci.Scan(m.root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return change, nil, err
	}
	driver, err := nvidia.Read(m.root, devices)
	if err != nil {
		return change, nil, err
	}
	stack, err := rdma.Read(m.root, devices, rdma.Options{})
	if err != nil {
		return change, nil, err
	}
	specs := prepare.SpecOf(&s.containers, driver, stack, devices)
	of := specs.GPU
	if s.file == prepare.HCAFile {
		of = specs.HCA
	}
	var missing []error
	for _, x := range specs.Missing {
		switch {
		case x.Address == nil && s.file == prepare.GPUFile:
			missing = append(missing, errors.New(x.Reason))
		case x.Address != nil && s.containers.At(*x.Address).HCA == (s.file == prepare.HCAFile):
			missing = append(missing, fmt.Errorf("%w %s: %s", ErrNotOffered, x.Address, x.Reason))
		}
	}
	change, err = prepare.PutSpec(m.root, s.containers.Options, s.file, of)
	return change, errors.Join(missing...), err
}

// look waits until the spec has all recorded functions. One that never appears does not keep the
// others from containers.
func (s spec) look(ctx context.Context, m machine) (before any, reached bool, err error) {
	var change edit.Plan
	var failed error
	lacks := wait(ctx, m, func() error {
		var lacks error
		change, lacks, failed = s.plan(m)
		if failed != nil {
			return nil
		}
		return lacks
	})
	return specBefore{s.name()}, lacks == nil && failed == nil && len(change.Pending()) == 0, failed
}

func (s spec) name() string { return prepare.SpecFile(s.containers.Options, s.file) }

func (s spec) carryOut(ctx context.Context, m machine) error {
	change, lacks, err := s.plan(m)
	if err == nil {
		err = change.Apply(ctx, m.root)
	}
	if err == nil {
		var again edit.Plan
		if again, lacks, err = s.plan(m); err == nil && len(again.Pending()) > 0 {
			err = fmt.Errorf("%s: %w", s.name(), ErrChangedSince)
		}
	}
	return errors.Join(err, lacks)
}

func (spec) goes(machine, json.RawMessage) ([]pci.Address, error) { return nil, nil }

// revert removes the spec, because nothing records it any more.
func (s spec) revert(ctx context.Context, m machine, raw json.RawMessage) error {
	var before specBefore
	if err := json.Unmarshal(raw, &before); err != nil {
		return err
	}
	if path.Base(before.File) != s.file {
		return fmt.Errorf("%q is no spec of gpustack", before.File)
	}
	change, err := prepare.PutSpec(m.root, observed.ContainerOptions{}, s.file, nil)
	if err == nil {
		err = change.Apply(ctx, m.root)
	}
	return err
}
