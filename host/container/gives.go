package container

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Messages of CUDA and NVML (facts of driver 535 and 550: cudaGetErrorName, cudaGetErrorString,
// nvmlErrorString).
const (
	Insufficient = `"35 cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"`
	NoDevice     = `"100 cudaErrorNoDevice: no CUDA-capable device is detected"`
	UnknownError = `"999 cudaErrorUnknown: unknown error"`
)

// Given is what a container gets that is started with a device of a CDI spec, or by an [Injector].
type Given struct {
	Injection
	Name string // in a sentence: "nvidia.com/gpu=0", "NVIDIA's runtime of docker (mode legacy)"
	// Device is the name without the kind, "" of an injector.
	Device string
	// Functions are the GPUs and RDMA adapters whose nodes it gets, as far as the machine shows them.
	Functions []pci.Address
	GPU       bool // it has the node of a GPU, whether or not that exists
	// Nodes are those of GPUs and of uverbs on the host, whether or not they exist.
	Nodes []string
	// Library is the path of libcuda in the container, "" if it gets none.
	Library string
	// Other is a library of the driver that has another version than the loaded module, "" if none is
	// known to.
	Other string
	// Compat reports whether a hook has the loader find libraries of forward compatibility of the image
	// first.
	Compat bool
	// Lacks are the parts without which programs that compute on its GPUs fail; none without a GPU.
	Lacks []Lack
}

// Lack is a part of what compute needs that a container does not get.
type Lack struct {
	Status host.Status // Fail, or Warn if most programs do not notice
	Reason string
	Effect string
}

// Devices returns what containers get by each device of the CDI specs that has a node of a GPU or
// of an RDMA adapter.
func Devices(folders cdi.Folders, driver nvidia.Driver, stack rdma.Stack) (all []Given) {
	for _, d := range folders.Devices() {
		if edits := folders.Edits(d.Name); edits != nil {
			g := Gives(*edits, driver, stack)
			g.Kind, g.Device, _ = strings.Cut(d.Name, "=")
			if g.Name, g.File = d.Name, d.File; g.Device != "" {
				all = append(all, g)
			}
		}
	}
	return all
}

// Gives returns what a container gets by the edits of a CDI device. This is the one place that says
// so: checks, plans, boots and tests ask it.
func Gives(edits specs.ContainerEdits, driver nvidia.Driver, stack rdma.Stack) Given {
	var g Given
	nodes := map[string]bool{}
	for _, n := range edits.DeviceNodes {
		nodes[path.Clean(n.Path)] = true
		from := path.Clean(cmp.Or(n.HostPath, n.Path))
		_, isGPU := MinorOf(from)
		g.GPU = g.GPU || isGPU
		if isGPU || strings.HasPrefix(from, path.Join(rdma.NodesDir, "uverbs")) {
			g.Nodes = append(g.Nodes, from)
		}
		if a, ok := functionOf(from, driver, stack); ok && !slices.Contains(g.Functions, a) {
			g.Functions = append(g.Functions, a)
		}
	}
	libraries := map[string]bool{} // by the names that programs load, those with the driver's version too
	for _, m := range edits.Mounts {
		name := path.Base(m.ContainerPath)
		stem, _, _ := strings.Cut(name, ".so.")
		libraries[name], libraries[stem] = true, true
		if v := nvidia.FileVersion(m.HostPath); driver.Loaded != nil && v.Differs(driver.Loaded.Version) {
			g.Other = cmp.Or(g.Other, m.HostPath)
		}
		if stem == cudaStem {
			g.Library, g.Folder = path.Clean(m.ContainerPath), path.Dir(path.Clean(m.ContainerPath))
			g.Version, _ = nvidia.ParseVersion(strings.TrimPrefix(name, cudaStem+".so."))
		}
	}
	triton := libraries[cudaStem+".so"]
	for _, env := range edits.Env {
		name, value, _ := strings.Cut(env, "=")
		switch name {
		case "LD_LIBRARY_PATH":
			g.Env = g.Folder != "" && slices.ContainsFunc(strings.Split(value, ":"), func(dir string) bool { return path.Clean(dir) == g.Folder })
		case tritonVariable:
			g.Triton = triton
		}
	}
	links := path.Base(g.Library) == CUDALink
	for _, h := range edits.Hooks {
		g.Hooked = g.Hooked || slices.Contains(h.Args, "update-ldcache")
		g.Compat = g.Compat || slices.Contains(h.Args, "enable-cuda-compat")
		links = links || slices.ContainsFunc(h.Args, func(a string) bool { return strings.HasSuffix(a, "::"+path.Join(g.Folder, CUDALink)) })
		triton = triton || slices.ContainsFunc(h.Args, func(a string) bool { return strings.HasSuffix(a, "::"+path.Join(g.Folder, cudaStem+".so")) })
	}
	g.Triton = g.Triton || g.Hooked && triton
	if g.GPU {
		g.lacks(nodes, libraries, links || g.Hooked, driver)
	}
	return g
}

const (
	cudaStem = "libcuda"
	// tritonVariable names the folder in which Triton, and with it torch.compile, looks for libcuda.so
	// to link with; without it that is the loader's cache (Triton, backends/nvidia/driver.py,
	// libcuda_dirs).
	tritonVariable = "TRITON_LIBCUDA_PATH"
)

// lacks finds what compute on GPUs needs and the container does not get: nodes, libcuda, and of the
// libraries that this driver opens those that the host has.
func (g *Given) lacks(nodes, libraries map[string]bool, links bool, driver nvidia.Driver) {
	lack := func(status host.Status, effect, format string, args ...any) {
		g.Lacks = append(g.Lacks, Lack{status, fmt.Sprintf(format, args...), effect})
	}
	for _, node := range nvidia.Nodes() {
		switch {
		case nodes[node]:
		case node == nvidia.ControlNode:
			lack(host.Fail, "CUDA reports "+NoDevice, "containers get no %s", node)
		case node == nvidia.UVMNode:
			lack(host.Fail, "CUDA does not start: "+UnknownError, "containers get no %s", node)
		}
	}
	switch {
	case g.Library == "":
		lack(host.Fail, "programs of images without their own libcuda fail: "+Insufficient+", although nothing is too old; "+
			"those of others fail after an upgrade of the driver",
			"containers get no %s", CUDALink)
		return
	case !links:
		lack(host.Fail, "programs find no libcuda: "+Insufficient+", although nothing is too old",
			"containers get %s, and no hook makes the link %s to it", g.Library, CUDALink)
	}
	cuda := driver.Library(CUDALink)
	if cuda == nil {
		return
	}
	for _, core := range nvidia.CoreLibraries(cuda.Version) {
		name := core.FileName(cuda.Version)
		stem, _, _ := strings.Cut(core.Name, ".so")
		if core.Without == "" || name == "" || libraries[stem] || driver.Library(name) == nil {
			continue
		}
		status := host.Fail
		if core.Name == NVMLLink {
			status = host.Warn
		}
		lack(status, core.Without, "containers get no %s, which driver %s needs", name, orUnknown(cuda.Version))
	}
	if !g.Triton {
		lack(host.Warn, "torch.compile and Triton fail where they compile: they find no libcuda.so to link with",
			"containers get neither the link libcuda.so with the loader's cache, nor %s", tritonVariable)
	}
}

func orUnknown(v nvidia.Version) string { return cmp.Or(string(v), "of an unknown version") }

// functionOf returns the GPU or the RDMA adapter to which a node belongs.
func functionOf(node string, driver nvidia.Driver, stack rdma.Stack) (a pci.Address, ok bool) {
	if minor, ok := MinorOf(node); ok {
		for _, g := range driver.GPUs {
			if g.Minor != nil && *g.Minor == minor {
				return g.Address, true
			}
		}
	}
	dir, name := path.Split(node)
	if path.Clean(dir) != rdma.NodesDir {
		return a, false
	}
	for _, adapter := range stack.Adapters {
		isPort := slices.ContainsFunc(adapter.Ports, func(p rdma.Port) bool { return p.UMAD != nil && p.UMAD.Name == name })
		if adapter.Address != nil && (isPort || adapter.Verbs != nil && adapter.Verbs.Name == name) {
			return *adapter.Address, true
		}
	}
	return a, false
}

// MinorOf returns the minor number of a GPU's node, from its name.
func MinorOf(node string) (minor int, ok bool) {
	number, ok := strings.CutPrefix(path.Clean(node), "/dev/nvidia")
	if !ok || number == "" || strings.Trim(number, "0123456789") != "" {
		return 0, false
	}
	minor, err := strconv.Atoi(number)
	return minor, err == nil
}

// Gives returns what the injector gives containers of an image: libcuda in the folder of the
// distribution, whose loader's cache it regenerates (libnvidia-container, src/nvc_container.c,
// copy_config), libraries of forward compatibility, and whatever else the driver has. nil stands
// for no image.
func (i Injector) Gives(d nvidia.Driver, image *Image, architecture string) Given {
	g := Given{Name: i.String(), Compat: true, Injection: Injection{Kind: i.String(), File: i.File, Folder: "/usr/lib64", Hooked: true, Triton: true}}
	multiarch := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[architecture]
	if image != nil && multiarch != "" && (image.Family == host.DebianFamily ||
		slices.ContainsFunc(image.Folders, func(dir string) bool { return path.Base(dir) == multiarch })) {
		g.Folder = "/usr/lib/" + multiarch
	}
	g.Functions = append(g.Functions, host.Map(d.GPUs, func(gpu nvidia.GPU) pci.Address { return gpu.Address })...)
	if d.Loaded != nil {
		g.Version = d.Loaded.Version
	}
	g.Library = path.Join(g.Folder, CUDALink)
	return g
}
