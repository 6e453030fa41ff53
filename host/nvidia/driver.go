package nvidia

import (
	"io/fs"
	"strings"

	"gpustack/host/pci"
)

// Driver is what files show of NVIDIA's driver. Everything is empty on a machine without it.
type Driver struct {
	Loaded    *Module              // nil: not loaded
	OnDisk    []DiskModule         // of the installed kernels, one each
	GPUs      []GPU                // bound to the driver, by address
	Majors    map[string]int       // character devices in /proc/devices whose name begins with "nvidia"; see major
	Nodes     []DeviceNode         // below /dev, by path
	Libraries []Library            // of compute, in the order in which the loader looks into folders
	MIG       map[pci.Address]bool // GPUs that are divided into instances
	// FabricManager reports whether Fabric Manager runs. It has no socket unless configured otherwise
	// (FM_CMD_UNIX_SOCKET_PATH): a process or its pid file shows it.
	FabricManager bool
	SMI           string // the path of nvidia-smi of the source of libcuda, "" if it is not installed
	// Container is the root of a container that installs the driver, as the GPU operator's does, "" if
	// the machine's packages do. After a boot it does not exist until the container runs.
	Container string
	// Warnings name files that cannot be read or are malformed.
	Warnings []string
}

// Modules returns the names of the modules without which CUDA does not work, those of Debian's
// packages too, as sysfs has them.
func Modules() []string {
	return []string{"nvidia", "nvidia_uvm", "nvidia_current", "nvidia_current_uvm"}
}

// Module is the loaded kernel module.
type Module struct {
	Version Version // "" if it cannot be read
	Open    bool    // the open kernel module
}

// DiskModule is the module that a kernel would load.
type DiskModule struct {
	Kernel  string // release
	Running bool   // it is the running kernel
}

// GPU is a function that is bound to the driver. What the driver does not show is nil: the folder
// of a GPU is missing while the driver initializes it, and its UUID is question marks before its
// first use.
type GPU struct {
	Address pci.Address
	Minor   *int // N of /dev/nvidiaN, which is not the index that nvidia-smi prints
	UUID    *string
	Model   *string
}

// DeviceNode is a character device below /dev.
type DeviceNode struct {
	Path         string
	Major, Minor int
	Mode         fs.FileMode // permission bits
}

// Library is a library of the driver's user space.
type Library struct {
	Folder string
	// Link is the name by which programs load it, libcuda.so.1, also if that is a file, such as
	// libnvidia-gpucomp.so.580.159.04.
	Link string
	// File is the path of the file with all links followed, on Debian in another folder than the
	// link. It is "" for a link that leads nowhere.
	File    string
	Version Version // of the file's name; "" if unknown
}

// Library returns the library that programs load by a link, or nil. All are from one source, so
// that a container gets none of another driver: the folder of the libcuda that has the version of
// the loaded module; else the driver container, also before it runs; on a machine without one, the
// folder that the loader searches first. What that folder lacks is of another one of the same
// source, and of libcuda's version.
func (d Driver) Library(link string) *Library {
	cuda := d.cuda()
	if link == "" || cuda == nil {
		return nil
	}
	var found *Library
	for i := range d.Libraries { // folders that are searched come first
		l := &d.Libraries[i]
		switch {
		case l.Link != link || l.File == "" || d.InContainer(*l) != d.InContainer(*cuda) || l.Version.Differs(cuda.Version):
		case l.Folder == cuda.Folder:
			return l
		case found == nil:
			found = l
		}
	}
	return found
}

// cuda returns the libcuda whose source has the libraries, or nil.
func (d Driver) cuda() *Library {
	var first, contained *Library
	for i := range d.Libraries {
		l := &d.Libraries[i]
		switch {
		case l.Link != coreLibraries[0].Name || l.File == "":
			continue
		case d.Loaded != nil && l.Version != "" && l.Version.Compare(d.Loaded.Version) == 0:
			return l
		case first == nil:
			first = l
		}
		if contained == nil && d.InContainer(*l) {
			contained = l
		}
	}
	if d.Container != "" {
		return contained
	}
	return first
}

// InContainer reports whether a library is the driver container's.
func (d Driver) InContainer(l Library) bool {
	return d.Container != "" && strings.HasPrefix(l.Folder, d.Container+"/")
}

// OfContainer reports whether containers get the driver of a driver container, which starts after the
// steps of a boot.
func (d Driver) OfContainer() bool {
	cuda := d.cuda()
	return d.Container != "" && (cuda == nil || d.InContainer(*cuda))
}

// IsConsumer reports whether a GPU is no data centre's: forward compatibility is for those alone.
func (g GPU) IsConsumer() bool {
	return g.Model != nil && (strings.Contains(*g.Model, "GeForce") || strings.Contains(*g.Model, "TITAN"))
}

// IsForward reports whether a folder is one of packages for forward compatibility, cuda-compat-*.
func IsForward(folder string) bool { return strings.Contains(folder+"/", "/compat/") }

// GPU returns the GPU at an address, or nil if none is bound to the driver.
func (d Driver) GPU(a pci.Address) *GPU {
	for i := range d.GPUs {
		if d.GPUs[i].Address == a {
			return &d.GPUs[i]
		}
	}
	return nil
}

// Node returns the node at a path, or nil.
func (d Driver) Node(path string) *DeviceNode {
	for i := range d.Nodes {
		if d.Nodes[i].Path == path {
			return &d.Nodes[i]
		}
	}
	return nil
}
