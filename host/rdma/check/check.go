// Package check determines whether the RDMA stack of a machine works, and if not, why: modules,
// libraries, device nodes, ports, limits, and what gpustack rdma prepare has recorded. Each check
// has a file and a function named as in the output. Findings quote the messages that users of
// rdma-core see, because these do not name their causes.
//
// It reads files below a root, and is given what only a running machine shows. It opens no netlink
// socket, runs no program and changes nothing.
package check

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Verdict is the result of all checks of a machine.
type Verdict string

// The verdicts. A machine is Drifted if it no longer matches the record of rdma prepare, and
// NotReady if another check has failed. Unknown means that something essential cannot be read.
const (
	Ready         Verdict = "ready"
	NotReady      Verdict = "not ready"
	PendingReboot Verdict = "pending reboot"
	Drifted       Verdict = "drifted"
	Unknown       Verdict = "unknown"
)

// Errors of machines for which there is no verdict.
var (
	// ErrNoDevice means that a machine has no RDMA device, and that none is recorded.
	ErrNoDevice = host.WithHint(errors.New("no RDMA device found: no PCI function is bound to the driver of an adapter, and /sys/class/infiniband is empty"),
		"to see all functions with their drivers: gpustack host scan --all")
	// ErrUnknown means that not enough of a machine can be read for a verdict.
	ErrUnknown = host.WithHint(errors.New("not enough information to reach a verdict"),
		"the checks with status n/a name what is missing; run gpustack as root on the machine itself")
)

// Verify runs all checks. Its findings are in the order in which an operator would look for a
// problem: adapters and their software, nodes, ports, limits, and the record. Each check has at
// least one finding. It returns ErrNoDevice for a machine with nothing to check.
func Verify(m Machine) ([]host.Finding, Verdict, error) {
	if m.Stack.Seen() && m.Record.Seen() && m.Record.Value == nil && len(m.Stack.Value.Adapters)+len(m.Uverbs) == 0 {
		return nil, Unknown, ErrNoDevice
	}
	v := view{m, m.phase()}
	var findings []host.Finding
	for _, check := range []struct {
		name  string
		judge func(view) []host.Finding
	}{
		{"adapters", view.adapters},
		{"modules", view.modules},
		{"providers", view.providers},
		{"abi", view.abi},
		{"nodes", view.nodes},
		{"firmware", view.firmware},
		{"pcie", view.pcie},
		{"ports", view.ports},
		{"rate", view.rate},
		{"gids", view.gids},
		{"ipoib", view.ipoib},
		{"netns", view.netns},
		{"memlock", view.memlock},
		{"storage", view.storage},
		{"smc", view.smc},
		{"vdpa", view.vdpa},
		{"acs", view.acs},
		{"functions", view.functions},
		{"vfs", view.vfs},
		{"identity", view.identity},
		{"files", view.files},
		{"boot", view.boot},
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
	failed := func(checks ...string) bool {
		return slices.ContainsFunc(findings, func(f host.Finding) bool {
			return f.Status == host.Fail && (checks == nil || slices.Contains(checks, f.Check))
		})
	}
	switch {
	case !m.Stack.Seen(), !m.Record.Seen(), m.Record.Value != nil && m.Devices == nil:
		return Unknown
	case failed("boot") && m.phase() == pending:
		return PendingReboot
	case failed("functions", "vfs", "identity", "files"):
		return Drifted
	case failed():
		return NotReady
	case len(m.Stack.Value.Adapters) == 0:
		return Ready // all that is recorded is assigned to guests
	}
	// Ready requires that these checks could be made.
	for _, f := range findings {
		if f.Status == host.NA && slices.Contains([]string{"adapters", "modules", "ports"}, f.Check) {
			return Unknown
		}
	}
	return Ready
}

// view is a machine with values that several checks use.
type view struct {
	Machine
	phase phase
}

// each returns the findings of a check for every adapter with an RDMA device, or a finding that
// there is none.
func (v view) each(judge func(rdma.Adapter) []host.Finding) []host.Finding {
	if !v.Stack.Seen() {
		return blind(v.Stack.File, v.Stack.Err)
	}
	var findings []host.Finding
	for _, a := range v.Stack.Value.Adapters {
		if a.Name != "" {
			findings = append(findings, judge(a)...)
		}
	}
	return findings
}

// eachPort returns the findings of a check for every port.
func (v view) eachPort(judge func(rdma.Adapter, rdma.Port) []host.Finding) []host.Finding {
	return v.each(func(a rdma.Adapter) (findings []host.Finding) {
		for _, p := range a.Ports {
			findings = append(findings, judge(a, p)...)
		}
		return findings
	})
}

// ports reports whether a port matches.
func (v view) anyPort(matches func(rdma.Port) bool) bool {
	return slices.ContainsFunc(v.Stack.Value.Adapters, func(a rdma.Adapter) bool { return slices.ContainsFunc(a.Ports, matches) })
}

// title names an adapter in a sentence: "0000:0c:00.0 (mlx5_0)".
func title(a rdma.Adapter) string {
	if a.Address == nil || a.Name == "" {
		return a.Title()
	}
	return fmt.Sprintf("%s (%s)", a.Address, a.Name)
}

// portTitle names a port in a sentence: "0000:0c:00.0 (mlx5_0) port 1".
func portTitle(a rdma.Adapter, p rdma.Port) string {
	return fmt.Sprintf("%s port %d", title(a), p.Number)
}

// portFile returns the path of an attribute of a port.
func portFile(a rdma.Adapter, p rdma.Port, name string) string {
	return fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/%s", a.Name, p.Number, name)
}

// functionFile returns the path of an attribute of a PCI function.
func functionFile(a pci.Address, name string) string {
	return "/sys/bus/pci/devices/" + a.String() + "/" + name
}

func one(status host.Status, format string, args ...any) []host.Finding {
	return []host.Finding{{Status: status, Seen: fmt.Sprintf(format, args...)}}
}

func pass(format string, args ...any) []host.Finding {
	return one(host.Pass, format, args...)
}

// na returns a finding that says why a check does not apply.
func na(format string, args ...any) []host.Finding {
	return one(host.NA, format, args...)
}

// or returns findings or, if there are none, that of a check that has passed.
func or(findings []host.Finding, format string, args ...any) []host.Finding {
	if findings == nil {
		return pass(format, args...)
	}
	return findings
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

// plural returns a number with its noun: "1 port", "2 ports".
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
