package startup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/edit"
	observed "gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/steps"
)

// Errors of the steps for containers.
var (
	// errNodes means that nodes of NVIDIA's driver do not exist, or have numbers of another device.
	errNodes = host.WithHint(errors.New("nvidia-modprobe has not made nodes"), host.Textf("'%s' says what the driver lacks; journalctl -k has its messages",
		host.NewCommand("container check")))
	// errNoModprobe means that nothing can make the nodes of NVIDIA's driver.
	errNoModprobe = host.WithHint(errors.New("nodes of NVIDIA's driver are missing, and nothing makes them"), "install nvidia-modprobe")
	// errNotShown means that NVIDIA's driver has not the GPU, or not yet.
	errNotShown = host.WithHint(errors.New("has no node: NVIDIA's driver does not show the GPU"), "journalctl -k has the driver's messages")
	// errNotOffered means that containers cannot get a recorded function.
	errNotOffered = host.WithHint(errors.New("containers cannot get"), host.Textf("'%s' names the causes; then run: systemctl restart %s",
		host.NewCommand("container check"), steps.Unit))
)

// nodes is the step that makes nodes of NVIDIA's driver, which the kernel does not make: that of a
// GPU, or without one those that all GPUs have.
type nodes struct{ gpu *pci.Address }

// lacking returns which of the nodes are missing or have numbers of another device, and the minor
// of the GPU. The error is errNotShown while the driver does not show the GPU.
func (n nodes) lacking(m machine) (lacks []string, minor int, err error) {
	devices, _, err := pci.Scan(m.root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return nil, 0, err
	}
	driver, err := nvidia.Read(m.root, devices)
	if err != nil {
		return nil, 0, err
	}
	if driver.OfContainer() { // it starts later, and makes them
		return nil, 0, nil
	}
	files := nvidia.Nodes()
	if n.gpu != nil {
		gpu := driver.GPU(*n.gpu)
		if gpu == nil || gpu.Minor == nil {
			return nil, 0, fmt.Errorf("%s: %w", n.gpu, errNotShown)
		}
		minor = *gpu.Minor
		files = nvidia.Nodes(minor)[len(files):]
	}
	for _, file := range files {
		node := driver.Node(file)
		major, minor, known := driver.Numbers(file)
		switch {
		case node == nil:
			lacks = append(lacks, file+" is missing")
		case !known:
			lacks = append(lacks, file+" belongs to a module that is not loaded")
		case node.Major != major || node.Minor != minor:
			lacks = append(lacks, fmt.Sprintf("%s is device %d:%d instead of %d:%d", file, node.Major, node.Minor, major, minor))
		}
	}
	return lacks, minor, nil
}

// look waits until the driver shows the GPU: the step before has loaded the module, unless udev is
// loading it.
func (n nodes) look(ctx context.Context, m machine) (before any, reached bool, err error) {
	var lacks []string
	err = wait(ctx, m, func() error {
		lacks, _, err = n.lacking(m)
		return err
	})
	return struct {
		Lacked []string `json:"lacked"`
	}{lacks}, len(lacks) == 0, err
}

// carryOut has nvidia-modprobe load the modules and make the nodes (nvidia-modprobe(1), -u and -c).
// What counts are the nodes, whatever its exit status.
func (n nodes) carryOut(ctx context.Context, m machine) error {
	argv := []string{"nvidia-modprobe", "-u", "-c", "0"}
	if n.gpu != nil {
		_, minor, err := n.lacking(m)
		if err != nil {
			return err
		}
		argv = []string{"nvidia-modprobe", "-c", fmt.Sprint(minor)}
	}
	failed := m.program(ctx, argv)
	lacks, _, err := n.lacking(m)
	switch {
	case err != nil:
		return errors.Join(err, failed)
	case len(lacks) == 0:
		return nil
	case errors.Is(failed, host.ErrNoProgram):
		return fmt.Errorf("%w: %s is not installed, and %s", errNoModprobe, argv[0], strings.Join(lacks, ", "))
	}
	return errors.Join(fmt.Errorf("%w: %s", errNodes, strings.Join(lacks, ", ")), failed)
}

func (nodes) goes(machine, json.RawMessage) ([]pci.Address, error) { return nil, nil }

// revert leaves the nodes: every program that uses a GPU makes them too.
func (nodes) revert(context.Context, machine, json.RawMessage) error { return nil }

// specFiles are the files of the steps that write specs, by id.
var specFiles = map[string]string{steps.SpecOfGPUs: container.GPUFile, steps.SpecOfHCAs: container.HCAFile}

// spec is the step that writes a CDI spec as the machine is now.
type spec struct {
	containers *observed.Containers
	file       string // prepare.GPUFile or prepare.HCAFile
}

type specBefore struct {
	File string `json:"file"` // that the step writes, and a revert removes
}

// change returns the changes of the spec's file, and of the list for NVIDIA's unit, and why the spec
// lacks recorded functions.
func (s spec) change(m machine) (c edit.Changes, lacks error, err error) {
	specs, driver, err := Offering{Root: m.root}.specs(s.containers)
	if err != nil {
		return c, nil, err
	}
	of := specs.GPU
	if s.file == container.HCAFile {
		of = specs.HCA
	}
	var missing []error
	for _, x := range specs.Missing {
		switch {
		case x.Address == nil && s.file == container.GPUFile:
			missing = append(missing, errors.New(x.Reason))
		case x.Address != nil && s.containers.At(*x.Address).HCA == (s.file == container.HCAFile):
			missing = append(missing, fmt.Errorf("%w %s: %s", errNotOffered, x.Address, x.Reason))
		}
	}
	c, err = s.plan(m.root, of, driver)
	return c, errors.Join(missing...), err
}

// plan returns the changes of what the step writes, from what it is now.
func (s spec) plan(root host.Root, spec *cdispecs.Spec, driver nvidia.Driver) (edit.Changes, error) {
	files := edit.Observe(root, container.BootFiles()...)
	c, err := container.BootSpec(files, s.file, spec)
	if err != nil || s.file != container.GPUFile {
		return edit.Changes{c}, err
	}
	has, err := container.HasRefreshList(files)
	if err != nil {
		return nil, err
	}
	list, err := container.RefreshList(files, s.containers, driver, has)
	return edit.Changes{c, list}, err
}

// follows is the maximum time until a uverbs device follows the driver of its function.
const follows = 10 * time.Second

// look waits until the spec has all recorded functions. One that never appears does not keep the
// others from containers.
func (s spec) look(ctx context.Context, m machine) (before any, reached bool, err error) {
	if soon := time.Now().Add(follows); m.fresh && s.file == container.HCAFile && m.appear.Before(soon) {
		m.appear = soon
	}
	var c edit.Changes
	var failed error
	lacks := wait(ctx, m, func() error {
		var lacks error
		c, lacks, failed = s.change(m)
		if failed != nil {
			return nil
		}
		return lacks
	})
	return specBefore{container.SpecFile(observed.ContainerOptions{}, s.file)}, lacks == nil && failed == nil && len(c.Pending()) == 0, failed
}

func (s spec) carryOut(ctx context.Context, m machine) error {
	c, lacks, err := s.change(m)
	if err == nil {
		err = c.Apply(ctx, m.root)
	}
	if err == nil {
		var again edit.Changes
		if again, lacks, err = s.change(m); err == nil && len(again.Pending()) > 0 {
			err = fmt.Errorf("%s: %w", again.Pending()[0].Name, ErrChangedSince)
		}
	}
	return errors.Join(err, lacks)
}

func (spec) goes(machine, json.RawMessage) ([]pci.Address, error) { return nil, nil }

// revert removes the spec, because no step writes it any more.
func (s spec) revert(ctx context.Context, m machine, _ json.RawMessage) error {
	s.containers = nil
	c, err := s.plan(m.root, nil, nvidia.Driver{})
	if err == nil {
		err = c.Apply(ctx, m.root)
	}
	return err
}

// Offer gives containers what is recorded for them, as a boot would: it carries out the steps for
// containers as the machine is now, and removes specs that no step writes any more. It is run after
// a change of the record, or its undo. A tree that is not a running machine waits for its boot. The
// error is ErrSteps if a step failed, which the result names.
func Offer(ctx context.Context, m Machine) (steps.Result, error) {
	id, err := steps.BootID(m.Root)
	if err != nil || id == "" {
		return steps.Result{}, err
	}
	all, err := steps.Recorded(m.Root)
	if err != nil {
		return steps.Result{}, err
	}
	var wanted []steps.Step
	for _, s := range all {
		if s.Kind != steps.KindNodes && s.Kind != steps.KindCDI {
			continue
		}
		// Drivers are as they are, also where this boot has not carried out their steps.
		s.Needs = slices.DeleteFunc(slices.Clone(s.Needs), func(id string) bool { return id != steps.KindNodes })
		wanted = append(wanted, s)
	}
	if err := withdraw(ctx, m.Root, wanted); err != nil {
		return steps.Result{}, err
	}
	m.Appear = time.Nanosecond // devices of a running machine are there
	r, unlock, err := m.begin(len(wanted) > 0)
	if err != nil || r == nil {
		return steps.Result{}, err
	}
	defer unlock()
	r.result.Steps = slices.DeleteFunc(r.result.Steps, func(s steps.StepResult) bool { return s.OfContainers() && !has(wanted, s.ID) })
	err = r.carryOut(ctx, wanted, all)
	return r.result, err
}

// withdraw removes the specs in /run/cdi that no step writes.
func withdraw(ctx context.Context, root host.Root, wanted []steps.Step) error {
	for id, file := range specFiles {
		if !has(wanted, id) {
			if err := (spec{file: file}).revert(ctx, machine{root: root}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
