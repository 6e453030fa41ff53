package views

import (
	"fmt"
	"math"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/container/containertest"
	"gpustack/host/cuda"
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
	Timeout float64               `json:"timeout_seconds"` // the limit of each run
	Verdict containertest.Verdict `json:"verdict"`         // "fail" if a run failed
	// the run in the container; with --compare more runs on the host and in the container, in turn,
	// until one fails
	Runs []containerRun `json:"runs"`
	// what all runs have measured; empty without --compare and if a run failed
	Comparison []comparison `json:"comparison"`
	Warnings   []string     `json:"warnings"` // such as other GPUs that the container has too
}

// containerRun is one run of the program.
type containerRun struct {
	Place containertest.Place `json:"place"` // where the program ran
	// the duration, in a container with its start
	Elapsed float64 `json:"elapsed_seconds"`
	// the report of cudaprobe; null for a command, and if cudaprobe reported nothing
	CUDA *cudaAnswer `json:"cuda"`
	// results of the programs that gpustack recognizes in a command's output
	Programs []gpuProgram `json:"gpu_programs"`
	// what the command printed, standard output first; null without --console
	Lines []string `json:"output_lines" null:"zero"`
	// why the run failed; empty if it passed
	Causes []containertest.Cause `json:"causes"`
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
	// copies of 64 MiB of pinned memory, the median of nine, in 10^6 bytes per second
	ToDevice *float64 `json:"host_to_device_mb_per_second"`
	ToHost   *float64 `json:"device_to_host_mb_per_second"` // the same in the other direction
	// the first function that failed with this GPU; null for none
	Result *cudaResult `json:"failed"`
}

// comparison is a measurement in both places.
type comparison struct {
	// "elapsed", a direction of copies, or a program with its measurement
	Name      string   `json:"measurement"`
	Unit      string   `json:"unit"`           // "MB/s", "GFLOP/s" or "s"
	Host      measured `json:"host_runs"`      // the runs on the host
	Container measured `json:"container_runs"` // the runs in the container
	// how far the container's median is from the host's
	Difference float64 `json:"difference_percent"`
}

// measured are several runs of a measurement.
type measured struct {
	Median float64 `json:"median"` // the median of the runs, in the unit
	// the largest value minus the smallest, in per cent of the median
	Spread float64 `json:"spread_percent"`
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
		Image: m.Image, Engine: m.Container.Engine, Program: cudaprobe, Timeout: m.Timeout.Seconds(), Verdict: result.Verdict, Warnings: result.Warnings,
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
	for _, run := range result.Runs {
		out := containerRun{Place: run.Place, Elapsed: round(run.Seconds, 3), Programs: gpuPrograms(run.Programs), Causes: run.Causes}
		if run.Answer != nil {
			out.CUDA = newCUDAAnswer(*run.Answer)
		}
		if console {
			out.Lines = append([]string{}, run.Lines...)
		}
		r.Runs = append(r.Runs, out)
	}
	for _, c := range result.Compared {
		digits := 1
		if c.Unit == "s" {
			digits = 3
		}
		r.Comparison = append(r.Comparison, comparison{c.Name, c.Unit, measured{round(c.Host.Median, digits), round(c.Host.Spread, 1)},
			measured{round(c.Container.Median, digits), round(c.Container.Spread, 1)}, round(c.Difference(), 1)})
	}
	return r
}

func gpuPrograms(programs []cuda.Program) (all []gpuProgram) {
	for _, p := range programs {
		program := gpuProgram{Program: p.Name, GPUs: p.GPUs, Models: p.Models}
		for _, f := range p.Figures {
			program.Figures = append(program.Figures, gpuFigure(f))
		}
		all = append(all, program)
	}
	return all
}

func newCUDAAnswer(a answer.Answer) *cudaAnswer {
	out := &cudaAnswer{Library: known(a.Library), Version: known(containertest.CUDAVersion(a)), Result: newCUDAResult(a.Failed), Nodes: a.Nodes}
	for _, g := range a.GPUs {
		gpu := cudaGPU{Address: g.Address, Model: g.Name, Memory: g.Memory, Compute: g.Compute, Computed: g.Numbers, Wrong: g.Wrong,
			Result: newCUDAResult(g.Failed)}
		if g.ToDevice > 0 {
			gpu.ToDevice = new(round(g.ToDevice, 0))
		}
		if g.ToHost > 0 {
			gpu.ToHost = new(round(g.ToHost, 0))
		}
		out.GPUs = append(out.GPUs, gpu)
	}
	return out
}

func newCUDAResult(f *answer.Failure) *cudaResult {
	if f == nil {
		return nil
	}
	return &cudaResult{f.Function, f.Result, f.Name}
}

// round returns a number with so many decimal places.
func round(v float64, digits int) float64 {
	factor := math.Pow10(digits)
	return math.Round(v*factor) / factor
}

// PrintContainerTest prints the result of a test.
func PrintContainerTest(u *term.UI, r ContainerTest) {
	last := r.Runs[len(r.Runs)-1]
	where, colour, what := "a container of "+r.Image, term.Green, "computes in"
	if r.Program == anyCommand {
		what = "is in"
	}
	if r.Verdict != containertest.Pass {
		colour, what = term.Red, "does not compute in"
		if r.Program == anyCommand {
			what = "is given, and the command fails, in"
		}
		if last.Place == containertest.OnHost {
			where = "the host's side of the comparison"
		}
	}
	u.Printf("%s: %s %s %s\n\n", u.Paint(colour, string(r.Verdict)), r.Address, what, term.Printable(where))
	line := func(key, value string) { u.Printf("  %-9s %s\n", key, term.Printable(value)) }
	line("device", r.CDIDevice+" ("+r.Engine+")")
	on := orDash(Text(r.GPUModel))
	if r.Driver != nil {
		on += ", driver " + *r.Driver
	}
	line("GPU", on)
	if a := r.Runs[0].CUDA; a != nil {
		printCUDA(line, *a)
	}
	for _, p := range r.Runs[0].Programs {
		printProgram(line, p)
	}
	line("took", fmt.Sprintf("%.2f s, with the start of the container", r.Runs[0].Elapsed))
	for _, c := range last.Causes {
		u.Printf("\n")
		if c.Message != "" {
			line("message", c.Message)
		}
		line("cause", c.Cause)
		u.Printf("  %-9s %s\n", "remedy", term.Elsewhere(c.Remedy))
	}
	if len(r.Comparison) > 0 {
		u.Printf("\n")
		rows := [][]string{}
		for _, c := range r.Comparison {
			form := "%.0f %s"
			if c.Unit == "s" {
				form = "%.3f %s"
			}
			rows = append(rows, []string{c.Name, fmt.Sprintf(form, c.Host.Median, c.Unit), fmt.Sprintf(form, c.Container.Median, c.Unit),
				fmt.Sprintf("%+.1f %%", c.Difference), fmt.Sprintf("%.1f %%, %.1f %%", c.Host.Spread, c.Container.Spread)})
		}
		u.Table([]string{"MEASUREMENT", "HOST", "CONTAINER", "DIFFERENCE", "SPREAD"}, rows)
	}
	if lines := last.Lines; len(lines) > 0 {
		u.Printf("\nthe command printed:\n")
		for _, l := range lines {
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
		if g.ToDevice != nil && g.ToHost != nil {
			line("copies", fmt.Sprintf("host to device %.0f MB/s, device to host %.0f MB/s (pinned memory)", *g.ToDevice, *g.ToHost))
		}
	}
}

// printProgram prints what a known program among the command has printed about GPUs.
func printProgram(line func(key, value string), p gpuProgram) {
	words := []string{}
	if p.GPUs != nil {
		words = append(words, host.Numbered(*p.GPUs, "GPU"))
	}
	for _, f := range p.Figures {
		switch {
		case f.MBps != nil:
			words = append(words, fmt.Sprintf("%s %.0f MB/s", f.Name, *f.MBps))
		case f.GFLOPs != nil:
			words = append(words, fmt.Sprintf("%s %.0f GFLOP/s", f.Name, *f.GFLOPs))
		}
	}
	line("program", p.Program+": "+orDash(strings.Join(words, ", ")))
}
