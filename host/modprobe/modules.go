package modprobe

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Modules are the modules of an installed kernel, from the files that depmod and the kernel's
// build write to its modules directory (modules.dep(5), depmod(8); Linux,
// Documentation/kbuild/kbuild.rst).
type Modules struct {
	Release  string
	loadable map[string]bool
	builtin  map[string]bool
	aliases  []alias
}

// alias is a pattern of the devices that a module supports.
type alias struct {
	pattern, module string
}

// Normal returns the name of a module with "_" for "-", the form in which names are compared.
func Normal(name string) string {
	return strings.ReplaceAll(name, "-", "_")
}

// ReadNames reads which modules the kernel of that release has, without their aliases, which are
// most of the text.
func ReadNames(root host.Root, release string) (Modules, error) {
	m := Modules{Release: release}
	dep, err := readList(root, release, "modules.dep", namesOnly)
	if err != nil {
		return m, err
	}
	// One conversion for all names, which are parts of the text.
	m.loadable = make(map[string]bool, bytes.Count(dep, []byte("\n")))
	for line := range strings.Lines(Normal(string(dep))) {
		if file, _, ok := strings.Cut(line, ":"); ok {
			m.loadable[moduleName(file)] = true
		}
	}
	builtin, err := readList(root, release, "modules.builtin", whole)
	m.builtin = make(map[string]bool, bytes.Count(builtin, []byte("\n")))
	for line := range strings.Lines(Normal(string(builtin))) {
		m.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return m, err
}

// ReadModules reads the modules of the kernel of that release. It keeps only aliases for PCI
// devices of the vendors ("000010DE") and for devices of any vendor.
func ReadModules(root host.Root, release string, vendors ...string) (Modules, error) {
	m, err := ReadNames(root, release)
	if err != nil {
		return m, err
	}
	aliases, err := readList(root, release, "modules.alias", func(text []byte) []byte {
		return filtered(text, []byte("\n"), func(line []byte) bool {
			rest, ok := bytes.CutPrefix(line, []byte("alias "))
			return ok && ofVendor(rest, vendors)
		})
	})
	if err != nil {
		return m, err
	}
	for line := range bytes.Lines(aliases) {
		pattern, module, ok := bytes.Cut(bytes.TrimSpace(bytes.TrimPrefix(line, []byte("alias "))), []byte(" "))
		if ok { // "alias PATTERN MODULE"
			m.aliases = append(m.aliases, alias{string(pattern), Normal(string(module))})
		}
	}
	// "MODULE.alias=PATTERN", separated by zero bytes; exists since Linux 5.2.
	info, err := readList(root, release, "modules.builtin.modinfo", func(text []byte) []byte {
		return filtered(text, []byte{0}, func(field []byte) bool {
			_, pattern, ok := bytes.Cut(field, []byte(".alias="))
			return ok && ofVendor(pattern, vendors)
		})
	})
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if module, pattern, ok := bytes.Cut(field, []byte(".alias=")); ok {
			m.aliases = append(m.aliases, alias{string(pattern), Normal(string(module))})
		}
	}
	return m, err
}

// readList returns what reduce returns of a file of a kernel's modules directory, nil if it is
// absent. These files are long, so a snapshot gets no more of them either.
func readList(root host.Root, release, name string, reduce func([]byte) []byte) ([]byte, error) {
	file := path.Join(host.ModulesDir, release, name)
	data, err := root.ReadReduced(file, reduce)
	if err != nil && !host.IsAbsent(err) {
		return nil, err
	}
	return reduce(data), nil
}

// whole returns the whole text.
func whole(text []byte) []byte {
	return text
}

// namesOnly returns modules.dep without the modules on which each module depends.
func namesOnly(text []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(text) {
		if file, _, ok := bytes.Cut(line, []byte(":")); ok {
			kept = append(append(kept, file...), ":\n"...)
		}
	}
	return kept
}

// filtered returns those parts of a text that are kept, each with the separator after it.
func filtered(text, separator []byte, keep func([]byte) bool) []byte {
	var kept []byte
	for part := range bytes.SplitSeq(text, separator) {
		if keep(part) {
			kept = append(append(kept, part...), separator...)
		}
	}
	return kept
}

// moduleName returns "vfio_pci" for "kernel/drivers/vfio/pci/vfio_pci.ko.zst".
func moduleName(file string) string {
	base := file[strings.LastIndexByte(file, '/')+1:]
	base, _, _ = strings.Cut(base, ".ko")
	return base
}

// HasModule reports whether the kernel of a release has a module in a file whose name is wanted, with
// "_" for "-".
func HasModule(root host.Root, release string, wanted func(name string) bool) (bool, error) {
	dep, err := readList(root, release, "modules.dep", namesOnly)
	for line := range strings.Lines(string(dep)) {
		if file, _, ok := strings.Cut(line, ":"); ok && wanted(Normal(moduleName(file))) {
			return true, nil
		}
	}
	return false, err
}

// ofVendor reports whether a pattern matches PCI devices of one of the vendors or of any vendor,
// including patterns of VFIO's variant drivers. It is called for about twenty thousand lines.
func ofVendor(pattern []byte, vendors []string) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimPrefix(pattern, []byte("vfio_")), []byte("pci:v"))
	if !ok {
		return false
	}
	if bytes.HasPrefix(rest, []byte("*")) {
		return true
	}
	return slices.ContainsFunc(vendors, func(v string) bool { return bytes.HasPrefix(rest, []byte(v)) })
}

// Loadable reports whether the kernel has the module as a file.
func (m Modules) Loadable(name string) bool {
	return m.loadable[Normal(name)]
}

// Builtin reports whether the module is built into the kernel.
func (m Modules) Builtin(name string) bool {
	return m.builtin[Normal(name)]
}

// Match returns the modules that support a device with that modalias, ordered by the number of
// wildcards in the pattern, fewest first.
func (m Modules) Match(modalias string) []string {
	type match struct {
		module string
		wild   int
	}
	var matches []match
	for _, a := range m.aliases {
		if n := strings.IndexAny(a.pattern, `*?[\`); n > 0 && !strings.HasPrefix(modalias, a.pattern[:n]) {
			continue // sooner than Match sees it, for thousands of patterns
		}
		if ok, err := path.Match(a.pattern, modalias); ok && err == nil {
			matches = append(matches, match{a.module, strings.Count(a.pattern, "*")})
		}
	}
	slices.SortStableFunc(matches, func(a, b match) int { return a.wild - b.wild })
	return host.Union(nil, host.Map(matches, func(m match) string { return m.module })...)
}

// Variant returns the variant driver of VFIO for a function of that modalias (Linux,
// drivers/vfio/pci: nvgrace_gpu_vfio_pci and others, by aliases that begin with "vfio_pci:"), or
// "". For a product that needs one it is returned also where the kernel has the module without an
// alias of the product, which binding by driver_override does not need, or lacks it: see Has.
func (m Modules) Variant(modalias *string) string {
	if modalias == nil {
		return ""
	}
	modules := m.Match("vfio_" + *modalias)
	if len(modules) > 0 && modules[0] != "vfio_pci" {
		return modules[0]
	}
	for _, product := range graceGPUs {
		if strings.HasPrefix(*modalias, "pci:v000010DEd0000"+product+"sv") {
			return "nvgrace_gpu_vfio_pci"
		}
	}
	return ""
}

// graceGPUs are the products of NVIDIA's Grace Hopper and Grace Blackwell, whose memory is no region
// of the PCI function: without nvgrace_gpu_vfio_pci a guest does not get it (Linux, drivers/vfio/pci/
// nvgrace-gpu/main.c, nvgrace_gpu_vfio_pci_table, which older kernels have in part).
var graceGPUs = []string{"2342", "2345", "2348", "2941", "31C0", "31C2", "31C3"}

// Has reports whether the kernel has the module, as a file or built in.
func (m Modules) Has(name string) bool {
	return m.Loadable(name) || m.Builtin(name)
}

// UsuallyBuiltin returns the module of a driver that distributions build into their kernels, or "".
// Kernels from before 5.2 do not list what those match.
func UsuallyBuiltin(driver string) string {
	return map[string]string{
		"xhci_hcd": "xhci_pci", "ehci-pci": "ehci_pci", "ohci-pci": "ohci_pci", "uhci_hcd": "uhci_hcd",
	}[driver]
}
