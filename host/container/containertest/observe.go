package containertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/engine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Request is what the operator asks to be tested.
type Request struct {
	Device  pci.Address // a GPU of NVIDIA
	Image   string
	Engine  string   // the program that starts the container; "" for the first one that has the image
	Command []string // of the image; nil for cudaprobe
	Timeout time.Duration
}

// Observed is what a test of a GPU in a container depends on.
type Observed struct {
	Request
	Root      host.Root
	Runner    host.Runner
	Container engine.Container // with the device
	Driver    nvidia.Driver
	Given     container.Given // by the CDI device
	probe     []byte
	denied    bool // SELinux denies device nodes to labelled containers
}

// Errors of machines on which nothing can be tested.
var (
	// ErrNoProbe says that this gpustack was built without cudaprobe.
	ErrNoProbe = host.WithHint(errors.New("this gpustack was built without cudaprobe (plain go build), and tests commands of the image only"),
		"name a command of the image after --, such as nvidia-smi -L; make build and the packages have cudaprobe")
	ErrNoGlibc = host.WithHint(errors.New("the image has no loader of glibc, as images with musl have none: "+
		"the driver's libraries need it, and so does cudaprobe"),
		"use an image with glibc: no program of this one can use the GPU by CUDA")
)

// Observe reads the machine, and finds the image and the CDI device of the GPU. probe is cudaprobe
// for this machine, nil if there is none. The error joins all that prevents the test.
func Observe(ctx context.Context, root host.Root, r Request, probe []byte) (Observed, error) {
	m := Observed{Request: r, Root: root, Runner: host.Runner{Root: root}, probe: probe}
	var errs []error
	if len(r.Command) == 0 && probe == nil {
		errs = append(errs, ErrNoProbe)
	}
	name, err := m.readDevice()
	errs = append(errs, err)
	var engines []string
	if r.Engine != "" {
		engines = []string{r.Engine}
	}
	m.Container, err = engine.Find(ctx, m.Runner, r.Image, engines...)
	errs = append(errs, err)
	selinux, err := host.ReadSELinux(root)
	m.Container.Network, m.Container.Devices, m.denied = "none", []string{name}, selinux.DeniesDevices()
	// Labelled containers may not run a file of the host either, such as cudaprobe.
	m.Container.Unlabelled = m.denied || selinux.Enforcing && len(r.Command) == 0
	return m, errors.Join(append(errs, err)...)
}

// readDevice reads the driver and returns the name of the CDI device that gives containers the GPU.
func (m *Observed) readDevice() (string, error) {
	devices, _, err := pci.Scan(m.Root, pci.Options{})
	if err != nil {
		return "", err
	}
	d := devices.At(m.Device)
	switch {
	case d == nil:
		return "", devices.NotFound(fmt.Errorf("%s: no such PCI function", m.Device), pci.SelectorOf(m.Device), pci.ListFunctions())
	case !d.IsNVIDIAGPU():
		return "", host.WithHint(fmt.Errorf("%s: not a GPU of NVIDIA", m.Device), host.Textf("'%s' lists the GPUs", host.NewCommand("host scan")))
	}
	driver, err := nvidia.Read(m.Root, devices)
	if err != nil {
		return "", err
	}
	m.Driver = driver
	if driver.GPU(m.Device) == nil {
		bound := "has no driver"
		if name := d.DriverName(); name != "" {
			bound = "is bound to " + name
		}
		return "", host.WithHint(fmt.Errorf("%s: %s: containers use GPUs that are bound to NVIDIA's driver", m.Device, bound),
			host.NewCommand("container check").Text())
	}
	node := nodeOf(driver, m.Device)
	if node == "" {
		return "", host.WithHint(fmt.Errorf("%s: the driver shows no device minor of the GPU, so its device node is not known", m.Device),
			host.NewCommand("container check").Text())
	}
	name, edits, failed := cdi.Read(m.Root).Giving(cdi.GPUFile, node)
	if name == "" {
		err = host.WithHint(fmt.Errorf("%s: no CDI device has %s, so no container can be given the GPU", m.Device, node),
			host.NewCommand("container prepare").Flag("device", m.Device.String()).Text())
		for _, p := range failed {
			err = errors.Join(err, errors.New(p.String()))
		}
		return "", err
	}
	m.Given = container.Gives(edits, driver, rdma.Stack{})
	return name, nil
}

// nodeOf returns the device node of a GPU, "" if it is not known.
func nodeOf(driver nvidia.Driver, address pci.Address) string {
	gpu := driver.GPU(address)
	if gpu == nil || gpu.Minor == nil {
		return ""
	}
	return fmt.Sprintf("/dev/nvidia%d", *gpu.Minor)
}
