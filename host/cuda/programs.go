package cuda

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Program is what a known program has printed about GPUs.
type Program struct {
	// "nvidia-smi", "deviceQuery", "bandwidthTest", "nvbandwidth" or "nbody"
	Name string `json:"program"`
	// GPUs is how many GPUs it lists or, for nbody and bandwidthTest without --device=all, uses;
	// null if its output does not show all.
	GPUs *int `json:"gpu_count"`
	Seen int  // GPUs that were seen in its list
	Cut  bool // GPUs is nil because lines of its list may be missing
	// ListsAll says that it lists every GPU that it finds. Others use those that their options name.
	ListsAll bool
	// the names of these GPUs, each once, as far as the program prints them
	Models  []string `json:"gpu_models"`
	Figures []Figure `json:"measurements"` // the results, in the order of the output
}

// Figure is a measurement of a program. One of its values is null.
type Figure struct {
	// such as "host to device, pinned", "host_to_device_memcpy_ce" (the sum of its matrix) or
	// "single precision"
	Name string `json:"name"`
	// in MB, or 10^6 bytes where the program prints GB/s; the best of several sizes
	MBps   *float64 `json:"mb_per_second"`
	GFLOPs *float64 `json:"gflop_per_second"` // null for a measurement in other units
}

// The programs.
const (
	nvidiaSMI     = "nvidia-smi"
	deviceQuery   = "deviceQuery"
	bandwidthTest = "bandwidthTest"
	nvbandwidth   = "nvbandwidth"
	nbody         = "nbody"
)

// reading is the output of a program while it is read.
type reading struct {
	Program
	listed map[string]bool // GPUs that it has listed, by their number
	told   *int            // the number of GPUs that it has printed; it counts more than a list
	cut    bool            // lines of the list may be missing
	test   string          // what the next figures measure
	scale  float64         // of the next figures to MB/s; 0 for another unit
	header bool            // the next row of numbers is the header of a matrix with a column for each GPU
}

func (o *reading) list(number, model string) {
	o.listed[number] = true
	o.model(model)
}

func (o *reading) model(name string) {
	if !slices.Contains(o.Models, name) {
		o.Models = append(o.Models, name)
	}
}

func (o *reading) tell(n int) { o.told = &n }

// miss notes that lines were left out after those that were read. o is nil before the first
// program.
func (o *reading) miss() {
	if o != nil {
		o.cut = true
	}
}

// number is tell for a text of at most four digits.
func (o *reading) number(text string) {
	n, _ := strconv.Atoi(text)
	o.tell(n)
}

func (o *reading) unit(text string) { o.scale = map[string]float64{"MB/s": 1, "GB/s": 1000}[text] }

// mbps adds a figure, or replaces one of the same name that is smaller: bandwidthTest may measure
// several sizes.
func (o *reading) mbps(name, text string) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || o.scale == 0 {
		return
	}
	v *= o.scale
	i := slices.IndexFunc(o.Figures, func(f Figure) bool { return f.Name == name })
	switch {
	case i < 0:
		o.Figures = append(o.Figures, Figure{Name: name, MBps: &v})
	case *o.Figures[i].MBps < v:
		o.Figures[i].MBps = &v
	}
}

// program returns what was read.
func (o *reading) program() Program {
	p := o.Program
	p.Seen = len(o.listed)
	switch n := p.Seen; {
	case o.told != nil:
		p.GPUs = o.told
	case o.cut:
		p.Cut = true
	case n > 0:
		p.GPUs = &n
	}
	return p
}

// pattern is a kind of line, and what it tells of a program. Lines of a program count between the
// one that begins its output and the one that begins that of the next.
type pattern struct {
	program string
	begins  bool
	match   func() *regexp.Regexp
	read    func(o *reading, m []string)
}

// patterns are the lines that are read. Sources: nvidia-smi(1) of NVIDIA's driver; deviceQuery.cpp,
// bandwidthTest.cu and nbody.cpp of NVIDIA/cuda-samples; README.md and output.cpp of
// NVIDIA/nvbandwidth.
var patterns = []pattern{
	{nvidiaSMI, true, host.LazyRegexp(`^GPU ([0-9]{1,4}): (.{1,80}) \(UUID: GPU-[0-9a-f-]+\)$`), func(o *reading, m []string) { o.list(m[1], m[2]) }},
	{nvidiaSMI, true, host.LazyRegexp(`^\| NVIDIA-SMI [0-9]`), nil},
	{nvidiaSMI, true, host.LazyRegexp(`^No devices were found$`), func(o *reading, _ []string) { o.tell(0) }},
	{nvidiaSMI, false, host.LazyRegexp(`^\| +([0-9]{1,4}) +(\S.{0,60}?) +(?:On|Off|N/A) *\| *[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9]`),
		func(o *reading, m []string) { o.list(m[1], m[2]) }},

	{deviceQuery, true, host.LazyRegexp(`^ ?CUDA Device Query \((?:Runtime|Driver) API\)`), nil},
	{deviceQuery, false, host.LazyRegexp(`^Detected ([0-9]{1,4}) CUDA Capable device\(s\)$`), func(o *reading, m []string) { o.number(m[1]) }},
	{deviceQuery, false, host.LazyRegexp(`^There are no available device\(s\) that support CUDA$`), func(o *reading, _ []string) { o.tell(0) }},
	{deviceQuery, false, host.LazyRegexp(`^Device [0-9]{1,4}: "(.{1,80})"$`), func(o *reading, m []string) { o.model(m[1]) }},
	{deviceQuery, false, host.LazyRegexp(`^deviceQuery, .*, NumDevs = ([0-9]{1,4})`), func(o *reading, m []string) { o.number(m[1]) }},

	{bandwidthTest, true, host.LazyRegexp(`^\[CUDA Bandwidth Test\] - Starting`), func(o *reading, _ []string) { o.ListsAll = false }},
	{bandwidthTest, false, host.LazyRegexp(`^!!!!!Cumulative Bandwidth to be computed from all the devices`),
		func(o *reading, _ []string) { o.ListsAll = true }},
	{bandwidthTest, false, host.LazyRegexp(`^ *Device [0-9]{1,4}: (.{1,80})$`), func(o *reading, m []string) { o.model(m[1]) }},
	{bandwidthTest, false, host.LazyRegexp(`^ *((?:Host|Device) to (?:Host|Device)) Bandwidth, ([0-9]{1,4}) Device\(s\)`), func(o *reading, m []string) {
		o.test, o.scale = strings.ToLower(m[1]), 0
		o.number(m[2])
	}},
	{bandwidthTest, false, host.LazyRegexp(`^ *(PINNED|PAGEABLE) Memory Transfers`), func(o *reading, m []string) { o.test += ", " + strings.ToLower(m[1]) }},
	{bandwidthTest, false, host.LazyRegexp(`^ *Transfer Size \(Bytes\) +Bandwidth\(([A-Z]B/s)\)`), func(o *reading, m []string) { o.unit(m[1]) }},
	{bandwidthTest, false, host.LazyRegexp(`^ +[0-9]{1,12} +([0-9]{1,9}(?:\.[0-9]{1,9})?)$`), func(o *reading, m []string) { o.mbps(o.test, m[1]) }},

	{nvbandwidth, true, host.LazyRegexp(`^nvbandwidth Version: `), nil},
	{nvbandwidth, false, host.LazyRegexp(`^Device [0-9]{1,4}: (.{1,80}?)(?: \([0-9A-Fa-f:.]+\))?$`), func(o *reading, m []string) { o.model(m[1]) }},
	{nvbandwidth, false, host.LazyRegexp(`^Running [a-z0-9_]{1,80}\.$`), func(o *reading, _ []string) { o.scale, o.header = 0, false }},
	{nvbandwidth, false, host.LazyRegexp(`GPU\(columns?\).* \(([A-Za-z/]{1,8})\)$`), func(o *reading, m []string) {
		o.unit(m[1])
		o.header = true
	}},
	{nvbandwidth, false, host.LazyRegexp(`^ +([0-9]{1,4}(?: +[0-9]{1,4})*)$`), func(o *reading, m []string) {
		if n := len(strings.Fields(m[1])); o.header && (o.told == nil || *o.told < n) {
			o.tell(n)
		}
		o.header = false
	}},
	{nvbandwidth, false, host.LazyRegexp(`^SUM ([a-z0-9_]{1,80}) ([0-9]{1,9}(?:\.[0-9]{1,9})?)$`), func(o *reading, m []string) { o.mbps(m[1], m[2]) }},

	{nbody, true, host.LazyRegexp(`^> (?:Windowed|Fullscreen) mode$`), func(o *reading, _ []string) { o.ListsAll = false }},
	{nbody, false, host.LazyRegexp(`^> ([0-9]{1,4}) Devices used for simulation$`), func(o *reading, m []string) { o.number(m[1]) }},
	{nbody, false, host.LazyRegexp(`^> Simulation with CPU$`), func(o *reading, _ []string) { o.tell(0) }},
	{nbody, false, host.LazyRegexp(`^> Compute [0-9.]{1,9} CUDA device: \[(.{1,80})\]$`), func(o *reading, m []string) { o.model(m[1]) }},
	{nbody, false, host.LazyRegexp(`^= ([0-9]{1,12}(?:\.[0-9]{1,9})?) (single|double)-precision GFLOP/s at [0-9]+ flops per interaction$`),
		func(o *reading, m []string) {
			if v, err := strconv.ParseFloat(m[1], 64); err == nil {
				o.Figures = append(o.Figures, Figure{Name: m[2] + " precision", GFLOPs: &v})
			}
		}},
}

// starts reports whether a line that begins the output of a program begins that of another run.
func (p pattern) starts(o *reading, m []string) bool {
	if !p.begins || o == nil || o.Name != p.program {
		return p.begins
	}
	return len(m) < 2 || o.listed[m[1]] // nvidia-smi -L has no title: its list begins again
}

// amid reports whether a line that begins the output of a program may be in the middle of it:
// nvidia-smi -L has no title, and lists GPUs by their numbers.
func amid(m []string) bool { return len(m) > 1 && m[1] != "0" }

// Output is what a command has printed.
type Output struct {
	Lines   []string
	Gap     *int // how many of Lines come before those that were left out; nil if none were
	Missing int  // lines that are not known whole; they are "" in Lines
}

// Programs returns what known programs have printed, in the order of the output. A command may run
// several.
func Programs(r Output) []Program {
	var all []*reading
	var o *reading // that of the last program
	gone := false  // lines before this one were left out
	for i, line := range r.Lines {
		if r.Gap != nil && *r.Gap == i {
			gone = true
			o.miss()
		}
		line = strings.TrimRight(line, " ")
		for _, p := range patterns {
			if o != nil && p.program != o.Name && !p.begins || o == nil && !p.begins {
				continue
			}
			m := p.match().FindStringSubmatch(line)
			if m == nil {
				continue
			}
			if p.starts(o, m) {
				o = &reading{Program: Program{Name: p.program, ListsAll: true}, listed: map[string]bool{}, cut: r.Missing > 0 || gone && amid(m)}
				all = append(all, o)
			}
			if p.read != nil {
				p.read(o, m)
			}
			break
		}
	}
	if r.Gap != nil && *r.Gap == len(r.Lines) {
		o.miss()
	}
	return host.Map(all, (*reading).program)
}
