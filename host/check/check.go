// Package check determines whether a machine is ready to assign GPUs to guests, and if not, why.
// Each check has a file and a function named as in the output.
//
// It does not read the machine (host/machine) and changes nothing.
package check

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/machine"
)

// Verdict is the result of all checks of a machine.
type Verdict string

// The verdicts. A prepared machine that was rebooted since is Ready, Drifted if it no longer
// matches the record, or NotReady for another reason. Unknown means that not enough of the machine
// can be read.
const (
	NotPrepared   Verdict = "not prepared"
	PendingReboot Verdict = "pending reboot"
	Ready         Verdict = "ready"
	NotReady      Verdict = "not ready"
	Drifted       Verdict = "drifted"
	Unknown       Verdict = "unknown"
)

// ErrUnknown means that not enough of a machine can be read for a verdict.
var ErrUnknown = host.WithHint(errors.New("not enough information to reach a verdict"),
	"the checks with status n/a name what is missing; run gpustack as root on the machine itself")

// Verify runs all checks on a machine that was observed for [machine.Check]. Its findings are in
// the order in which an operator would look for a problem: CPU, firmware, IOMMU, arguments,
// modules, functions and their groups, and the record. Each check has at least one finding. A
// check does not repeat what only follows from a failure of another check: it does not apply until
// that is fixed.
//
// refused are the errors with which host prepare, without options, refuses the machine. They count
// only for a machine that is not prepared.
func Verify(m machine.Machine, refused []error) ([]host.Finding, Verdict) {
	v := newView(m)
	v.refused = refused
	var findings []host.Finding
	for _, check := range []struct {
		name  string
		judge func(view) []host.Finding
	}{
		{"virtualization", view.virtualization},
		{"firmware", view.firmware},
		{"secure_boot", view.secureBoot},
		{"iommu", view.iommu},
		{"iommu_type", view.iommuType},
		{"interrupt_remapping", view.interruptRemapping},
		{"arguments", view.arguments},
		{"next_boot", view.nextBoot},
		{"kernels", view.kernels},
		{"initramfs", view.initramfs},
		{"ids", view.ids},
		{"preparable", view.preparable},
		{"boot_vga", view.bootVGA},
		{"bus", view.bus},
		{"functions", view.functions},
		{"drivers", view.drivers},
		{"groups", view.groups},
		{"reset", view.reset},
		{"bars", view.bars},
		{"fabric", view.fabric},
		{"files", view.files},
		{"journal", view.journal},
	} {
		for _, f := range check.judge(v) {
			f.Check = check.name
			findings = append(findings, f)
		}
	}
	mended := !host.Failed(findings)
	findings = append(findings, v.prepared(mended), v.reboot(mended))
	return findings, verdict(v, findings)
}

// verdict derives the verdict from the findings.
func verdict(v view, findings []host.Finding) Verdict {
	failed := func(checks ...string) bool {
		return slices.ContainsFunc(findings, func(f host.Finding) bool {
			return f.Status == host.Fail && (checks == nil || slices.Contains(checks, f.Check))
		})
	}
	switch {
	case v.phase == unseen:
		return Unknown
	case v.phase == unprepared:
		return NotPrepared
	case failed("reboot"):
		return PendingReboot
	case failed("functions", "drivers", "groups", "files"):
		return Drifted
	case failed():
		return NotReady
	}
	// Ready requires that these checks could be made.
	for _, f := range findings {
		if f.Status == host.NA && slices.Contains([]string{"arguments", "functions", "drivers", "groups"}, f.Check) {
			return Unknown
		}
	}
	return Ready
}

// one returns the finding of a check that has only one.
func one(f host.Finding) []host.Finding {
	return []host.Finding{f}
}

func pass(format string, args ...any) []host.Finding {
	return one(host.Finding{Status: host.Pass, Seen: fmt.Sprintf(format, args...)})
}

// na returns a finding that says why a check does not apply.
func na(format string, args ...any) []host.Finding {
	return one(host.Finding{Status: host.NA, Seen: fmt.Sprintf(format, args...)})
}

// unread returns the finding of a check whose subject could not be read.
func unread[T any](l machine.Look[T]) []host.Finding {
	return one(blind(l.File, l.Err))
}

func blind(file string, err error) host.Finding {
	f := host.Finding{Status: host.NA, File: file}
	switch text := host.Cause(err).Error(); {
	case host.IsAbsent(err):
		f.Seen = file + " is missing"
	case errors.Is(err, fs.ErrPermission):
		f.Seen = withFile(file, text)
		f.Remedy = "run gpustack as root"
	default:
		f.Seen = withFile(file, text)
	}
	return f
}

// withFile prefixes text with the file, unless text names it already.
func withFile(file, text string) string {
	if strings.Contains(text, file) {
		return text
	}
	return file + ": " + text
}

// plural returns a number with its noun: "1 group", "2 groups".
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
