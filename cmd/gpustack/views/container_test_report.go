package views

import (
	"fmt"
	"math"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/container/containertest"
	"gpustack/host/cuda/answer"
	"gpustack/host/pci"
)

// ContainerTest is the output of container test (docs/json.md).
type ContainerTest struct {
	Schema  int         `json:"schema"`
	Time    time.Time   `json:"time"`    // when the test ended
	Address pci.Address `json:"address"` // the GPU
	// the CDI device that the container was started with
	CDIDevice string  `json:"cdi_device"`
	Image     string  `json:"image"`          // the image as it was named
	Engine    string  `json:"engine"`         // "podman", "docker" or "nerdctl"
	Driver    *string `json:"driver_version"` // the version of the loaded module
	GPUModel  *string `json:"gpu_model"`      // the model as the driver shows it
	// "cudaprobe", or "command" for a given one, whose words are in no document
	Program string                `json:"program"`
	Timeout float64               `json:"timeout_seconds"` // the limit of the run
	Verdict containertest.Verdict `json:"verdict"`         // "fail" if the run failed
	// the duration, with the start of the container
	Elapsed float64 `json:"elapsed_seconds"`
	// the report of cudaprobe; null for a command, and if cudaprobe reported nothing
	CUDA *cudaAnswer `json:"cuda"`
	// what the command printed, standard output first; null without --console
	Lines []string `json:"output_lines" null:"zero"`
	// why the test failed; empty if it passed
	Causes   []containertest.Cause `json:"causes"`
	Warnings []string              `json:"warnings"` // such as other GPUs that the container has too
}

// cudaAnswer is what cudaprobe said.
type cudaAnswer struct {
	Library *string `json:"library"` // the libcuda that the loader found
	// the version of CUDA that this library supports: "12.4"
	Version *string `json:"cuda_version"`
	// the first function of libcuda that failed before a GPU was found; null for none
	Result *cudaResult   `json:"failed"`
	GPUs   []cudaGPU     `json:"cuda_gpus"`    // the GPUs that CUDA lists
	Nodes  []answer.Node `json:"device_nodes"` // files below /dev whose names begin with "nvidia"
}

// cudaResult is a function of libcuda that failed.
type cudaResult struct {
	Function string `json:"function"` // the function of libcuda
	// the value that it returned; -1 if the library has no such function
	Result int    `json:"result"`
	Name   string `json:"name"` // the library's name of this value
}

// cudaGPU is a GPU that CUDA finds.
type cudaGPU struct {
	Address string `json:"address"`            // the PCI address as CUDA writes it
	Model   string `json:"model"`              // the model as CUDA names it
	Memory  uint64 `json:"memory_bytes"`       // the size of its memory
	Compute string `json:"compute_capability"` // such as "9.0"
	// how many numbers the test's kernel computed
	Computed int `json:"numbers_computed"`
	// how many of these numbers are wrong
	Wrong int `json:"numbers_wrong"`
	// the first function that failed with this GPU; null for none
	Result *cudaResult `json:"failed"`
}

// Programs of container test.
const (
	cudaprobe  = "cudaprobe"
	anyCommand = "command"
)

// NewContainerTest returns the report of a test. console says that it may contain what the command
// has printed.
func NewContainerTest(m containertest.Machine, result containertest.Result, console bool) *ContainerTest {
	r := &ContainerTest{
		Schema: 1, Time: time.Now().UTC().Truncate(time.Second), Address: m.Device, CDIDevice: strings.Join(m.Container.Devices, " "),
		Image: m.Image, Engine: m.Container.Engine, Program: cudaprobe, Timeout: m.Timeout.Seconds(), Verdict: result.Verdict,
		Elapsed: math.Round(result.Seconds*1000) / 1000, Causes: result.Causes, Warnings: result.Warnings,
	}
	if len(m.Command) > 0 {
		r.Program = anyCommand
	}
	if loaded := m.Driver.Loaded; loaded != nil {
		r.Driver = known(string(loaded.Version))
	}
	if gpu := m.Driver.GPU(m.Device); gpu != nil {
		r.GPUModel = gpu.Model
	}
	if result.Answer != nil {
		r.CUDA = newCUDAAnswer(*result.Answer)
	}
	if console {
		r.Lines = append([]string{}, result.Lines...)
	}
	return r
}

func newCUDAAnswer(a answer.Answer) *cudaAnswer {
	out := &cudaAnswer{Library: known(a.Library), Version: known(containertest.CUDAVersion(a)), Result: newCUDAResult(a.Failed), Nodes: a.Nodes}
	for _, g := range a.GPUs {
		out.GPUs = append(out.GPUs, cudaGPU{Address: g.Address, Model: g.Name, Memory: g.Memory, Compute: g.Compute, Computed: g.Numbers, Wrong: g.Wrong,
			Result: newCUDAResult(g.Failed)})
	}
	return out
}

func newCUDAResult(f *answer.Failure) *cudaResult {
	if f == nil {
		return nil
	}
	return &cudaResult{f.Function, f.Result, f.Name}
}

// PrintContainerTest prints the result of a test.
func PrintContainerTest(u *term.UI, r ContainerTest) {
	colour, what := term.Green, "computes in"
	if r.Program == anyCommand {
		what = "is in"
	}
	if r.Verdict != containertest.Pass {
		colour, what = term.Red, "does not compute in"
		if r.Program == anyCommand {
			what = "is given, and the command fails, in"
		}
	}
	u.Printf("%s: %s %s a container of %s\n\n", u.Paint(colour, string(r.Verdict)), r.Address, what, term.Printable(r.Image))
	line := func(key, value string) { u.Printf("  %-9s %s\n", key, term.Printable(value)) }
	line("device", r.CDIDevice+" ("+r.Engine+")")
	on := orDash(Text(r.GPUModel))
	if r.Driver != nil {
		on += ", driver " + *r.Driver
	}
	line("GPU", on)
	if r.CUDA != nil {
		printCUDA(line, *r.CUDA)
	}
	line("took", fmt.Sprintf("%.2f s, with the start of the container", r.Elapsed))
	for _, c := range r.Causes {
		u.Printf("\n")
		if c.Message != "" {
			line("message", c.Message)
		}
		line("cause", c.Cause)
		u.Printf("  %-9s %s\n", "remedy", term.Elsewhere(c.Remedy))
	}
	if len(r.Lines) > 0 {
		u.Printf("\nthe command printed:\n")
		for _, l := range r.Lines {
			u.Printf("  %s\n", term.Printable(l))
		}
	}
}

// printCUDA prints what cudaprobe said.
func printCUDA(line func(key, value string), a cudaAnswer) {
	if a.Library != nil {
		version := ""
		if a.Version != nil {
			version = ", CUDA " + *a.Version
		}
		line("library", *a.Library+version)
	}
	for _, g := range a.GPUs {
		line("CUDA", fmt.Sprintf("%s %s, %d MiB, compute capability %s", g.Address, g.Model, g.Memory>>20, g.Compute))
		if g.Computed > 0 && g.Wrong == 0 {
			line("kernel", host.Numbered(g.Computed, "number")+" computed and compared")
		}
	}
}
