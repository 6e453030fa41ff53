// Package answer is what the program that container test runs in a container says about CUDA there:
// cmd/cudaprobe writes an [Answer], host/container/containertest reads it. It imports nothing.
package answer

// Version is the version of the form of answers.
const Version = 1

// Answer is what CUDA's driver library says in the place where the program runs.
type Answer struct {
	Version int `json:"cudaprobe"` // the version of the form of the answer
	// the libcuda that the loader found; null if none could be loaded
	Library string `json:"library" null:"zero"`
	// the loader's message; null if a library was loaded
	LoadError string `json:"load_error" null:"zero"`
	// the version of CUDA that this library supports: "12.4"; null if it does not say
	CUDA string `json:"cuda_version" null:"zero"`
	// the first function of libcuda that failed before a GPU was found; null for none
	Failed *Failure `json:"failed"`
	GPUs   []GPU    `json:"cuda_gpus"`    // the GPUs that CUDA lists
	Nodes  []Node   `json:"device_nodes"` // files below /dev whose names begin with "nvidia"
}

// Failure is a function of libcuda that failed.
type Failure struct {
	Function string `json:"function"` // the function of libcuda
	// the value that it returned; -1 if the library has no such function
	Result int    `json:"result"`
	Name   string `json:"name"` // the library's name of this value
	Text   string `json:"text"` // the library's text of this value
}

// GPU is a GPU that CUDA finds, and what became of a computation on it.
type GPU struct {
	Name    string `json:"model"`              // the model as CUDA names it
	Address string `json:"address"`            // the PCI address as CUDA writes it (cuDeviceGetPCIBusId)
	Memory  uint64 `json:"memory_bytes"`       // the size of its memory
	Compute string `json:"compute_capability"` // such as "9.0"
	// the first function that failed with this GPU; null for none
	Failed *Failure `json:"failed"`
	// how many numbers the test's kernel, which the driver has compiled there, computed
	Numbers int `json:"numbers_computed"`
	Wrong   int `json:"numbers_wrong"` // how many of these numbers are wrong
}

// Node is a device node.
type Node struct {
	Path   string `json:"file"`   // the path
	Major  uint32 `json:"major"`  // the major number of the device
	Minor  uint32 `json:"minor"`  // the minor number of the device
	Denied bool   `json:"denied"` // opening it for reading and writing fails: no permission
	Dead   bool   `json:"dead"`   // no driver serves it (ENXIO, ENODEV)
}
