// Package answer is what the program that container test runs in a container says about CUDA there:
// cmd/cudaprobe writes an [Answer], host/container/containertest reads it. It imports nothing.
package answer

// Version is the version of the form of answers.
const Version = 1

// Answer is what CUDA's driver library says in the place where the program runs.
type Answer struct {
	Version int `json:"cudaprobe"`
	// Library is the file that the loader has found for libcuda.so.1, "" if none could be loaded.
	Library string `json:"library"`
	// LoadError is the loader's message, "" if a library was loaded.
	LoadError string `json:"load_error"`
	// CUDA is the version of CUDA that the library is for, 12040 for 12.4; 0 if it does not say.
	CUDA int `json:"cuda"`
	// Failed is the first function that failed, for all GPUs; nil if none has.
	Failed *Failure `json:"failed"`
	GPUs   []GPU    `json:"gpus"`
	// Nodes are the files below /dev whose names begin with nvidia.
	Nodes []Node `json:"nodes"`
}

// Failure is a function of libcuda that failed, and its result: the number, its name and its text
// as the library itself has them.
type Failure struct {
	Function string `json:"function"`
	Result   int    `json:"result"`
	Name     string `json:"name"`
	Text     string `json:"text"`
}

// GPU is a GPU that CUDA has, and what became of a computation on it.
type GPU struct {
	Name    string `json:"name"`
	Address string `json:"address"` // of its PCI function, as cuDeviceGetPCIBusId has it
	Memory  uint64 `json:"memory"`  // in bytes
	// Compute is its compute capability: "9.0".
	Compute string `json:"compute"`
	// Failed is the first function that failed with this GPU; nil if none has.
	Failed *Failure `json:"failed"`
	// Numbers are how many numbers a kernel, which the driver has compiled there, has computed, and
	// Wrong how many of the results are wrong.
	Numbers int `json:"numbers"`
	Wrong   int `json:"wrong"`
}

// Node is a device node.
type Node struct {
	Path   string `json:"path"`   // the file
	Major  uint32 `json:"major"`  // the major number of the device
	Minor  uint32 `json:"minor"`  // the minor number of the device
	Denied bool   `json:"denied"` // opening it for reading and writing fails: no permission
	Dead   bool   `json:"dead"`   // no driver serves it (ENXIO, ENODEV)
}
