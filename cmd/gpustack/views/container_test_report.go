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
	Image     string  `json:"image"`                      // the image as it was named
	Engine    string  `json:"engine"`                     // "podman", "docker" or "nerdctl"
	Driver    string  `json:"driver_version" null:"zero"` // the version of the loaded module
	GPUModel  *string `json:"gpu_model"`                  // the model as the driver shows it
	// "cudaprobe", or "command" for a given one, whose words are in no document
	Program string  `json:"program"`
	Timeout float64 `json:"timeout_seconds"` // the limit of the run
	containertest.Result
}

// Programs of container test.
const (
	cudaprobe  = "cudaprobe"
	anyCommand = "command"
)

// NewContainerTest returns the report of a test. console says that it may contain what the command
// has printed.
func NewContainerTest(m containertest.Observed, result containertest.Result, console bool) *ContainerTest {
	r := &ContainerTest{
		Schema: 1, Time: time.Now().UTC().Truncate(time.Second), Address: m.Device, CDIDevice: strings.Join(m.Container.Devices, " "),
		Image: m.Image, Engine: m.Container.Engine, Program: cudaprobe, Timeout: m.Timeout.Seconds(), Result: result,
		Driver: string(host.Value(m.Driver.Loaded).Version), GPUModel: host.Value(m.Driver.GPU(m.Device)).Model,
	}
	r.Seconds = math.Round(r.Seconds*1000) / 1000
	if r.Lines = nil; console {
		r.Lines = append([]string{}, result.Lines...)
	}
	if len(m.Command) > 0 {
		r.Program = anyCommand
	}
	return r
}

// PrintContainerTest prints the result of a test.
func PrintContainerTest(u *term.UI, r ContainerTest) {
	colour, what := term.Green, either(r.Program == anyCommand, "is in", "computes in")
	if r.Verdict != containertest.Pass {
		colour, what = term.Red, either(r.Program == anyCommand, "is given, and the command fails, in", "does not compute in")
	}
	u.Printf("%s: %s %s a container of %s\n\n", u.Paint(colour, string(r.Verdict)), r.Address, what, term.Printable(r.Image))
	line := func(key, value string) { u.Printf("  %-9s %s\n", key, term.Printable(value)) }
	line("device", r.CDIDevice+" ("+r.Engine+")")
	line("GPU", orDash(Text(r.GPUModel))+after(", driver ", r.Driver))
	if r.Answer != nil {
		printCUDA(line, *r.Answer)
	}
	line("took", fmt.Sprintf("%.2f s, with the start of the container", r.Seconds))
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
		printEach(u, "  %s", r.Lines)
	}
}

// printCUDA prints what cudaprobe said.
func printCUDA(line func(key, value string), a answer.Answer) {
	if a.Library != "" {
		line("library", a.Library+after(", CUDA ", a.CUDA))
	}
	for _, g := range a.GPUs {
		line("CUDA", fmt.Sprintf("%s %s, %d MiB, compute capability %s", g.Address, g.Name, g.Memory>>20, g.Compute))
		if g.Numbers > 0 && g.Wrong == 0 {
			line("kernel", host.Numbered(g.Numbers, "number")+" computed and compared")
		}
	}
}
