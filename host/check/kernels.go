package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// kernels checks whether each installed kernel has the drivers that functions are to be bound to.
func (v view) kernels() []host.Finding {
	if !v.Kernels.Seen() {
		if errors.Is(v.Kernels.Err, machine.ErrNoKernel) {
			return checklist.NA("%v", checklist.WithFile(host.ModulesDir, v.Kernels.Err))
		}
		return unread(v.Kernels)
	}
	drivers := []string{machine.VFIO}
	if c := v.Contract.Value; c != nil {
		drivers = host.Union(nil, host.Map(c.Functions, func(f machine.Function) string { return f.Driver })...)
	}
	var findings []host.Finding
	for _, m := range v.Kernels.Value {
		missing := slices.DeleteFunc(slices.Clone(drivers), func(d string) bool { return m.Loadable(d) || m.Builtin(d) })
		if len(missing) > 0 {
			findings = append(findings, host.Finding{
				Status: v.weight(m.Release), File: host.ModulesDir + "/" + m.Release,
				Seen:   fmt.Sprintf("kernel %s has no %s", m.Release, strings.Join(missing, ", ")),
				Effect: "when it is booted, all functions remain with the host",
				Remedy: host.Plain("install its missing modules, or remove this kernel"),
			})
		}
	}
	return checklist.OrPass(findings, "%s with %s", host.Numbered(len(v.Kernels.Value), "kernel"), strings.Join(drivers, ", "))
}

// weight returns the status for a kernel that lacks something: Fail for the running kernel, the
// default kernel and the only kernel, else Warn.
func (v view) weight(release string) host.Status {
	entries := normal(v.Entries.Value)
	if release == v.kernel() || len(v.Kernels.Value) == 1 || len(entries) > 0 && strings.HasSuffix(entries[0].Kernel, release) {
		return host.Fail
	}
	return host.Warn
}
