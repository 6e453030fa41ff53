// Package check determines whether containers can use the GPUs and RDMA adapters of a machine, and
// if not, why: the driver, its libraries and device nodes, every CDI spec, the images that are
// handed over, and what gpustack has recorded. Each check has a file and a function named as in the
// output. Findings quote the messages that users see, because these rarely name their causes.
//
// It reads files below a root. It loads no library of NVIDIA's and runs none of its programs, since
// these create device nodes on the running machine whatever root they are given.
package check

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Verdict is the result of all checks of a machine.
type Verdict string

// The verdicts. Unknown means that something essential cannot be read.
const (
	Ready    Verdict = "ready"
	NotReady Verdict = "not ready"
	Unknown  Verdict = "unknown"
)

// Errors of machines for which there is no verdict.
var (
	// ErrNothing means that a machine has neither a GPU of NVIDIA's nor an RDMA adapter, and no CDI
	// spec.
	ErrNothing = host.WithHint(errors.New("nothing to check: neither a GPU of NVIDIA's, nor an RDMA adapter, nor a CDI spec"),
		"to see all functions with their drivers: gpustack host scan --all")
	// ErrUnknown means that not enough of a machine can be read for a verdict.
	ErrUnknown = host.WithHint(errors.New("not enough information to reach a verdict"),
		"the checks with status n/a name what is missing; run gpustack as root on the machine itself")
)

// Verify runs all checks. Its findings are in the order in which an operator would look for a
// problem. Each check has at least one finding. It returns ErrNothing for a machine with nothing to
// check.
func Verify(m Machine) ([]host.Finding, Verdict, error) {
	v := view{Machine: m}
	for i := range m.Devices.Value {
		if d := &m.Devices.Value[i]; d.IsNVIDIAGPU() {
			v.cards = append(v.cards, d)
		}
	}
	if m.isEmpty() {
		return nil, Unknown, ErrNothing
	}
	var findings []host.Finding
	for _, check := range []struct {
		name  string
		judge func(view) []host.Finding
	}{
		{"module", view.module},
		{"gpus", view.gpus},
		{"libraries", view.libraries},
		{"nodes", view.nodes},
		{"fabric", view.fabric},
		{"persistenced", view.persistenced},
		{"specs", view.specs},
		{"devices", view.devices},
		{"record", view.record},
		{"toolkit", view.toolkit},
		{"roles", view.roles},
		{"images", view.images},
		{"runtimes", view.runtimes},
		{"cgroups", view.cgroups},
	} {
		for _, f := range check.judge(v) {
			f.Check = check.name
			findings = append(findings, f)
		}
	}
	return findings, verdict(m, findings), nil
}

// verdict derives the verdict from the findings.
func verdict(m Machine, findings []host.Finding) Verdict {
	switch {
	case !m.Devices.Seen():
		return Unknown
	case host.Failed(findings):
		return NotReady
	case !m.Driver.Seen(), !m.Specs.Seen(), !m.Contract.Seen():
		return Unknown
	}
	return Ready
}

// isEmpty reports whether a machine has nothing that containers could be given, and nothing that
// gives them something.
func (m Machine) isEmpty() bool {
	if !m.Devices.Seen() || !m.Driver.Seen() || !m.Specs.Seen() || !m.Stack.Seen() {
		return false
	}
	return !slices.ContainsFunc(m.Devices.Value, func(d pci.Device) bool { return d.IsNVIDIAGPU() }) &&
		m.Driver.Value.Loaded == nil && len(m.Stack.Value.Adapters) == 0 && len(m.Specs.Value.Files) == 0 && len(m.Specs.Value.Problems) == 0
}

// view is a machine with values that several checks use.
type view struct {
	Machine
	cards []*pci.Device // GPUs of NVIDIA's
}

func pass(format string, args ...any) []host.Finding {
	return []host.Finding{{Status: host.Pass, Seen: fmt.Sprintf(format, args...)}}
}

// na returns a finding that says why a check does not apply.
func na(seen string) []host.Finding {
	return []host.Finding{{Status: host.NA, Seen: seen}}
}

// blind returns the finding of a check whose subject cannot be read.
func blind(file string, err error) []host.Finding {
	f := host.Finding{Status: host.NA, File: file}
	switch text := host.Cause(err).Error(); {
	case host.IsAbsent(err):
		f.Seen = file + " is missing"
	case strings.Contains(text, file):
		f.Seen = text
	default:
		f.Seen = file + ": " + text
	}
	if errors.Is(err, fs.ErrPermission) {
		f.Remedy = "run gpustack as root"
	}
	return []host.Finding{f}
}

// or returns findings or, if there are none, that of a check that has passed.
func or(findings []host.Finding, format string, args ...any) []host.Finding {
	if findings == nil {
		return pass(format, args...)
	}
	return findings
}

// plural returns a number with its noun: "1 node", "2 nodes", "2 libraries".
func plural(n int, what string) string {
	if stem, ok := strings.CutSuffix(what, "ry"); ok && n != 1 {
		what = stem + "rie"
	}
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
