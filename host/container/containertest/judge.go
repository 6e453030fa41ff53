package containertest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/cuda/answer"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
)

// Verdict is the result of a test.
type Verdict string

// The verdicts of a test.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
)

// Cause is why a test failed.
type Cause struct {
	Message string    `json:"message"` // the error message of CUDA that users see; "" for a command
	Cause   string    `json:"cause"`   // what is wrong, for people
	Remedy  host.Text `json:"remedy"`  // how to fix it, for people
}

// Results of libcuda that have a cause of their own (CUresult, cuda.h of the CUDA toolkit 13.0).
const (
	stubLibrary    = 34
	noDevice       = 100
	noJITCompiler  = 221
	osError        = 304
	notReady       = 802
	driverMismatch = 803
	compatRefused  = 804
	unknownError   = 999
)

// noLibrary is what programs of CUDA's runtime say without libcuda.
const noLibrary = "35 cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"

var check = host.NewCommand("container check").Text()

// judge returns why CUDA does not compute on the GPU where a program has asked libcuda, nil if it
// does.
func (m Observed) judge(a answer.Answer) []Cause {
	switch {
	case a.LoadError != "":
		return []Cause{m.notLoaded(a)}
	case a.Failed != nil:
		return []Cause{m.failed(a, *a.Failed)}
	}
	var others []string
	for _, g := range a.GPUs {
		address, err := pci.ParseAddress(g.Address)
		switch {
		case err != nil || address != m.Device:
			others = append(others, g.Address)
		case g.Failed != nil:
			return []Cause{m.failed(a, *g.Failed)}
		case g.Wrong > 0:
			return []Cause{{
				Cause:  fmt.Sprintf("%d of %d numbers that the GPU has computed are wrong", g.Wrong, g.Numbers),
				Remedy: host.Plain("journalctl -k --grep Xid; nvidia-smi -q -d ECC,ROW_REMAPPER; test the card in another slot"),
			}}
		default:
			return nil
		}
	}
	cause := Cause{Message: message(answer.Failure{Result: noDevice, Name: "CUDA_ERROR_NO_DEVICE", Text: "no CUDA-capable device is detected"}),
		Cause: "CUDA finds no GPU in the container", Remedy: check}
	if len(others) > 0 {
		return []Cause{{Cause: fmt.Sprintf("CUDA finds %s in the container, not %s", strings.Join(others, " and "), m.Device), Remedy: check}}
	}
	if found := m.nodeCause(a); found != nil {
		cause.Cause, cause.Remedy = found.Cause, found.Remedy
	}
	return []Cause{cause}
}

// message returns what a program prints of a failure.
func message(f answer.Failure) string {
	if f.Result < 0 {
		return f.Text
	}
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", f.Result, f.Name, f.Text), ": ")
}

// notLoaded returns why the loader found no libcuda.
func (m Observed) notLoaded(a answer.Answer) Cause {
	device := strings.Join(m.Container.Devices, " ")
	switch {
	case !strings.Contains(a.LoadError, "No such file"):
		return Cause{a.LoadError, "the loader finds a libcuda.so.1 that it cannot load",
			host.Textf("%s names the libraries of an image", host.NewCommand("container check").Flag("image-dir", "DIR"))}
	case m.Given.Library == "":
		return Cause{noLibrary, "the image has no libcuda.so.1, and " + device + " mounts none",
			host.Textf("install the driver's libraries on the host, and write the spec again; %s", host.NewCommand("container check"))}
	case path.Base(m.Given.Library) != container.CUDALink:
		return Cause{noLibrary, fmt.Sprintf("the loader of the image finds no libcuda.so.1, although %s mounts %s: the hook that makes the link "+
			"has not worked", device, m.Given.Library),
			host.Textf("write the spec again by nvidia-ctk cdi generate, or use that of %s", host.NewCommand("container prepare"))}
	default:
		return Cause{noLibrary, fmt.Sprintf("the loader of the image does not look into %s, where %s mounts libcuda.so.1", path.Dir(m.Given.Library), device),
			host.Textf("%s sets LD_LIBRARY_PATH in all containers; --image-dir DIR chooses a folder that the image's loader knows; "+
				"for one container: --env LD_LIBRARY_PATH=%s", host.NewCommand("container prepare").Flag("library-path"), path.Dir(m.Given.Library))}
	}
}

// failed returns why a function of libcuda failed.
func (m Observed) failed(a answer.Answer, f answer.Failure) Cause {
	c := Cause{Message: message(f), Cause: f.Function + " failed in the container",
		Remedy: host.Textf("journalctl -k --grep NVRM; %s", host.NewCommand("container check"))}
	switch f.Result {
	case noDevice, unknownError, osError:
		if found := m.nodeCause(a); found != nil {
			c.Cause, c.Remedy = found.Cause, found.Remedy
		}
	case stubLibrary:
		c.Cause = fmt.Sprintf("the loader finds %s, a library without a driver for linking programs", a.Library)
		c.Remedy = host.Plain("remove " + path.Dir(a.Library) + " from LD_LIBRARY_PATH and ld.so.conf of the image")
	case driverMismatch:
		c.Cause = a.Library + " in the container is of another version than the loaded module"
		c.Remedy = host.Textf("remove the driver's libraries from the image; after an upgrade of the driver, reboot; %s", host.NewCommand("container check"))
	case notReady:
		c.Cause = "the board has NVSwitches, whose Fabric Manager does not run or has not finished"
		c.Remedy = host.Plain("systemctl enable --now nvidia-fabricmanager.service")
	case compatRefused:
		c.Cause = fmt.Sprintf("%s is for forward compatibility, which this GPU does not support", a.Library)
		c.Remedy = host.Plain("remove cuda-compat from the image, or its folder from the loader's")
	case noJITCompiler:
		c.Cause = "libnvidia-ptxjitcompiler.so.1 of the driver is missing in the container, without which programs that bring PTX do not run"
		c.Remedy = host.Textf("install the complete libraries of the driver on the host, and write the spec again; %s", host.NewCommand("container check"))
	}
	return c
}

// nodeCause returns what is wrong with the device nodes that CUDA needs, nil if nothing is.
func (m Observed) nodeCause(a answer.Answer) *Cause {
	needed := []string{"/dev/nvidiactl", nodeOf(m.Driver, m.Device), "/dev/nvidia-uvm"}
	for _, node := range needed {
		if !slices.ContainsFunc(a.Nodes, func(n answer.Node) bool { return n.Path == node }) {
			return &Cause{Cause: node + " is missing in the container",
				Remedy: host.Textf("the CDI device must name it, and the host must have it: %s", host.NewCommand("container check"))}
		}
	}
	for _, n := range a.Nodes {
		node := n.Path
		if !slices.Contains(needed, node) {
			continue
		}
		major, minor, known := m.Driver.Numbers(node)
		switch {
		case known && (int(n.Major) != major || int(n.Minor) != minor):
			stale := nvidia.StaleNode{DeviceNode: nvidia.DeviceNode{Path: node, Major: int(n.Major), Minor: int(n.Minor)}, WantMajor: major, WantMinor: minor}
			return &Cause{Cause: "in the container " + stale.String(),
				Remedy: host.Textf("remove the numbers from the CDI spec, or write it again after each boot: %s", host.NewCommand("container check"))}
		case n.Denied:
			return &Cause{Cause: node + " cannot be opened in the container: SELinux, the device cgroup or the node's permissions deny it",
				Remedy: host.Plain("ls -lZ " + node + "; ausearch -m avc -ts recent; NVreg_DeviceFileMode in /proc/driver/nvidia/params")}
		case n.Dead:
			return &Cause{Cause: node + " in the container is the node of a GPU without a driver", Remedy: check}
		}
	}
	return nil
}

// extra returns the GPUs in a container besides the one that it was given.
func (m Observed) extra(a answer.Answer) (addresses []string) {
	for _, g := range a.GPUs {
		if address, err := pci.ParseAddress(g.Address); err != nil || address != m.Device {
			addresses = append(addresses, g.Address)
		}
	}
	return addresses
}
