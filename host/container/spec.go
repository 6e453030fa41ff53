package container

import (
	"fmt"
	"path"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Names of the spec files, one for each kind of device.
const (
	GPUFile = cdi.GPUFile
	HCAFile = cdi.HCAFile
)

// LibraryFolder is where containers find the driver's libraries: images whose LD_LIBRARY_PATH
// names it, as NVIDIA's do, or all with --library-path.
const LibraryFolder = "/usr/local/nvidia/lib64"

// NameOf returns the qualified name of the device that a recorded function is to containers.
func NameOf(f machine.ContainerFunction) string {
	if f.HCA {
		return cdi.HCAKind + "=" + f.Address.String()
	}
	return cdi.GPUKind + "=" + f.Address.String()
}

// SpecFile returns the path of a spec file: written once, or at every boot.
func SpecFile(options machine.ContainerOptions, name string) string {
	if options.Static {
		return path.Join(cdi.StaticFolder, name)
	}
	return path.Join(cdi.DynamicFolder, name)
}

// Specs is what SpecOf returns.
type Specs struct {
	GPU, HCA *specs.Spec // nil without a device
	// Missing are the recorded functions that no spec contains, and libraries that containers will
	// not find, each with the reason. A plan and a check name them.
	Missing []Missing
}

// Missing is a part that a spec does not contain.
type Missing struct {
	Address *pci.Address // nil: for all GPUs
	Reason  string
}

// SpecOf returns the specs of the functions that are recorded for containers, as the machine is
// now. It is a pure function of its arguments: the same record and machine give the same specs.
// GPUs are named by PCI address, and by UUID where the driver shows it. Nodes have no numbers and
// libraries are the links that programs load, so that they stay right when the driver is upgraded.
// A name with the driver's version does not: after an upgrade, containers do not start until the
// spec is written again, which each boot does, but not for a static one. So a spec has such names
// only where CUDA or OpenCL of the driver opens them: of branches before 535 and since 590.
func SpecOf(containers *machine.Containers, driver nvidia.Driver, stack rdma.Stack, devices pci.Devices) Specs {
	var out Specs
	if containers == nil {
		return out
	}
	gpus := &specs.Spec{Version: cdi.WrittenVersion, Kind: cdi.GPUKind}
	hcas := &specs.Spec{Version: cdi.WrittenVersion, Kind: cdi.HCAKind}
	for _, f := range containers.Functions {
		address := f.Address
		var reason string
		switch {
		case !f.IsAt(devices):
			reason = "the recorded function is not at this address"
		case f.HCA:
			var umad bool
			if umad, reason = addHCA(hcas, stack, f.Address, containers.Options.UMAD); containers.Options.UMAD && !umad && reason == "" {
				out.Missing = append(out.Missing, Missing{&address, "the adapter has no umad node, which --umad offers: module ib_umad is not loaded"})
			}
		default:
			reason = addGPU(gpus, driver, f.Address)
		}
		if reason != "" {
			out.Missing = append(out.Missing, Missing{&address, reason})
		}
	}
	if len(gpus.Devices) > 0 {
		addLibraries(gpus, driver, containers.Options)
		all := library.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
		all.Append(&library.ContainerEdits{ContainerEdits: &gpus.ContainerEdits}).Append(&library.ContainerEdits{ContainerEdits: &gpus.Devices[0].ContainerEdits})
		for _, lack := range Gives(*all.ContainerEdits, driver, stack).Lacks {
			if lack.Status == host.Fail {
				out.Missing = append(out.Missing, Missing{nil, lack.Reason})
			}
		}
		out.GPU = gpus
	}
	if len(hcas.Devices) > 0 {
		hcas.ContainerEdits.DeviceNodes = []*specs.DeviceNode{verbs("rdma_cm")}
		out.HCA = hcas
	}
	return out
}

// addGPU adds the devices of a GPU, or returns why it cannot.
func addGPU(spec *specs.Spec, driver nvidia.Driver, address pci.Address) string {
	gpu := driver.GPU(address)
	switch {
	case gpu == nil:
		return "the GPU is not bound to NVIDIA's driver, so its device node is not known"
	case gpu.Minor == nil:
		return "the driver shows no device minor of the GPU, so its device node is not known"
	case driver.MIG[address]:
		return "the GPU is divided into MIG instances, whose devices nvidia-ctk describes"
	}
	names := []string{address.String()}
	if gpu.UUID != nil {
		names = append(names, *gpu.UUID)
	}
	node := fmt.Sprintf("/dev/nvidia%d", *gpu.Minor)
	for _, name := range names {
		spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: node}}}})
	}
	return ""
}

// addLibraries adds what all GPUs need: nodes of the driver, libraries, nvidia-smi, variables.
func addLibraries(spec *specs.Spec, driver nvidia.Driver, options machine.ContainerOptions) {
	edits := &spec.ContainerEdits
	edits.Env = []string{"NVIDIA_VISIBLE_DEVICES=void"} // the older hook of NVIDIA's toolkit stays out
	if options.LibraryPath {
		edits.Env = append(edits.Env, "LD_LIBRARY_PATH="+LibraryFolder)
	}
	for _, node := range nvidia.Nodes() {
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: node})
	}
	cuda := driver.Library(CUDALink)
	if cuda == nil {
		return
	}
	mount := func(from, to string) {
		edits.Mounts = append(edits.Mounts, &specs.Mount{
			HostPath: from, ContainerPath: to, Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"},
		})
	}
	for _, core := range nvidia.CoreLibraries(cuda.Version) {
		name := core.FileName(cuda.Version)
		l := driver.Library(name)
		if name == "" || l == nil {
			continue
		}
		mount(path.Join(l.Folder, name), path.Join(LibraryFolder, name))
	}
	edits.Env = append(edits.Env, tritonVariable+"="+LibraryFolder)
	mount(path.Join(cuda.Folder, CUDALink), path.Join(LibraryFolder, cudaStem+".so"))
	if driver.SMI != "" {
		mount(driver.SMI, "/usr/bin/nvidia-smi")
	}
}

// addHCA adds the devices of an RDMA adapter, or returns why it cannot. With umad, offered reports
// whether one of them has its umad nodes.
func addHCA(spec *specs.Spec, stack rdma.Stack, address pci.Address, umad bool) (offered bool, reason string) {
	for _, a := range stack.Adapters {
		if a.Address == nil || *a.Address != address {
			continue
		}
		if a.Verbs == nil {
			break
		}
		spec.Devices = append(spec.Devices, specs.Device{
			Name: address.String(), ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{verbs(a.Verbs.Name)}},
		})
		nodes := host.Map(host.Filter(a.Ports, func(p rdma.Port) bool { return umad && p.UMAD != nil }),
			func(p rdma.Port) *specs.DeviceNode { return verbs(p.UMAD.Name) })
		if len(nodes) > 0 {
			spec.Devices = append(spec.Devices, specs.Device{Name: address.String() + "-umad", ContainerEdits: specs.ContainerEdits{DeviceNodes: nodes}})
		}
		return len(nodes) > 0, ""
	}
	return false, "the adapter has no uverbs device: module ib_uverbs or the adapter's driver is not loaded"
}

// verbs returns a node of the RDMA stack. Reading and writing is enough, without any capability.
func verbs(name string) *specs.DeviceNode {
	return &specs.DeviceNode{Path: path.Join(rdma.NodesDir, name), Type: "c", Permissions: "rw"}
}
