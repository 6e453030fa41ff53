// Package rdmacheck determines whether the RDMA stack of a machine works, and if not, why:
// modules, libraries, device nodes, ports, limits, and what gpustack rdma prepare has recorded.
// [Check] reads a machine and judges it. Each check has a file and a function named as in the
// output. Findings quote the messages that users of rdma-core see, because these do not name their
// causes.
//
// It reads files below a root, and is given what only a running machine shows. It opens no netlink
// socket, runs no program and changes nothing.
package rdmacheck

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/checklist"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// ErrNoDevice means that a machine has no RDMA device, and that none is recorded.
var ErrNoDevice = host.WithHint(errors.New("no RDMA device found: no PCI function is bound to the driver of an adapter, and /sys/class/infiniband is empty"),
	host.Textf("to see all functions with their drivers: %s", host.NewCommand("host scan").Flag("all")))

// checks returns the checks of a machine. A record that takes effect at the next boot is no failure
// of its steps. Where no adapter is on the host, none needs to be shown: all are assigned to guests
// or used by containers.
func (v view) checks() checklist.List[view] {
	boot, required := checklist.NotReady, checklist.Unknown
	if v.phase == pending {
		boot = checklist.PendingReboot
	}
	if !slices.ContainsFunc(v.Stack.Value.Adapters, func(a rdma.Adapter) bool { return a.Elsewhere == "" }) {
		required = checklist.Ready
	}
	return checklist.List[view]{
		{Name: "adapters", Judge: view.adapters, NA: required},
		{Name: "modules", Judge: view.modules, NA: required},
		{Name: "providers", Judge: view.providers},
		{Name: "nodes", Judge: view.nodes},
		{Name: "pcie", Judge: view.pcie},
		{Name: "gpudirect", Judge: view.gpuDirect},
		{Name: "ports", Judge: view.ports, NA: required},
		{Name: "rate", Judge: view.rate},
		{Name: "gids", Judge: view.gids},
		{Name: "mtu", Judge: view.mtu},
		{Name: "ipoib", Judge: view.ipoib},
		{Name: "rdma_cm", Judge: view.rdmaCM},
		{Name: "netns", Judge: view.netns},
		{Name: "memlock", Judge: view.memlock},
		{Name: "storage", Judge: view.storage},
		{Name: "acs", Judge: view.acs},
		{Name: "functions", Judge: view.functions, Fail: checklist.Drifted},
		{Name: "vfs", Judge: view.vfs, Fail: checklist.Drifted},
		{Name: "identity", Judge: view.identity, Fail: checklist.Drifted},
		{Name: "files", Judge: view.files, Fail: checklist.Drifted},
		{Name: "boot", Judge: view.boot, Fail: boot},
	}
}

// Checked is what rdma check finds of a machine.
type Checked struct {
	Observed Observed
	Verdict  checklist.Verdict
	Findings []host.Finding
	Warnings []string
}

// Check observes and judges the machine below root. journal is a look at its journal.
func Check(root host.Root, journal change.Seen) (Checked, error) {
	devices, warnings, err := pci.Scan(root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) { // software devices need no PCI
		return Checked{}, err
	}
	c := Checked{Observed: Observe(root, devices, journal)}
	if c.Findings, c.Verdict, err = Verify(c.Observed); err != nil {
		return Checked{}, fmt.Errorf("%s: %w", root.Path("/"), err)
	}
	stack := c.Observed.Stack.Value
	c.Warnings = append(append([]string{}, warnings...), stack.Warnings...)
	c.Warnings = append(c.Warnings, host.FlatMap(stack.Adapters, func(a rdma.Adapter) []string { return a.Warnings })...)
	return c, nil
}

// Verify runs all checks. Its findings are in the order in which an operator would look for a
// problem: adapters and their software, nodes, ports, limits, and the record. Each check has at
// least one finding. It returns ErrNoDevice for a machine with nothing to check.
func Verify(m Observed) ([]host.Finding, checklist.Verdict, error) {
	if m.Stack.Seen() && m.Record.Seen() && m.Record.Value == nil && len(m.Stack.Value.Adapters) == 0 {
		return nil, checklist.Unknown, ErrNoDevice
	}
	v := view{m, m.phase()}
	findings, verdict := v.checks().Judge(v)
	if !m.Stack.Seen() || !m.Record.Seen() || !m.Containers.Seen() || m.Record.Value != nil && m.Devices == nil {
		verdict = checklist.Unknown
	}
	return findings, verdict, nil
}

// view is a machine with values that several checks use.
type view struct {
	Observed
	phase phase
}

// each returns the findings of a check for every adapter with an RDMA device, or a finding that
// there is none.
func (v view) each(judge func(rdma.Adapter) []host.Finding) []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
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
		return host.FlatMap(a.Ports, func(p rdma.Port) []host.Finding { return judge(a, p) })
	})
}

// ports reports whether a port matches.
func (v view) anyPort(matches func(rdma.Port) bool) bool {
	return slices.ContainsFunc(v.Stack.Value.Adapters, func(a rdma.Adapter) bool { return a.Name != "" && slices.ContainsFunc(a.Ports, matches) })
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
