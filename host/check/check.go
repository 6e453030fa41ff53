// Package check judges a machine: whether it is ready to assign GPUs to guests, and if not, why.
// Each check has a file and a function named as in the output.
//
// Does not: read the machine (host/machine) or change anything.
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

// Verdict is what all checks of a machine come to.
type Verdict string

// The verdicts. A machine that has been prepared and booted since is ready, or drifted
// where it is no longer what was recorded, or not ready for another reason. Unknown is
// one that does not show enough of itself.
const (
	NotPrepared   Verdict = "not prepared"
	PendingReboot Verdict = "pending reboot"
	Ready         Verdict = "ready"
	NotReady      Verdict = "not ready"
	Drifted       Verdict = "drifted"
	Unknown       Verdict = "unknown"
)

// ErrUnknown says that a machine does not show enough to be judged.
var ErrUnknown = host.WithHint(errors.New("not enough information to reach a verdict"), "the checks with status n/a name what is missing; run gpustack as root on the machine itself")

// Verify judges a machine that was observed for [machine.Check]. Its findings come in the order in
// which one would look: the CPU, the firmware, the IOMMU, arguments, modules, the functions and
// their groups, and what is recorded. Each check has one at least. What follows from a fault that
// another check names is not said again: it does not apply until that is mended.
func Verify(m machine.Machine) ([]host.Finding, Verdict) {
	v := newView(m)
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

// verdict sums the findings up.
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
	// What makes a machine ready must have been seen.
	for _, f := range findings {
		if f.Status == host.NA && slices.Contains([]string{"arguments", "functions", "drivers", "groups"}, f.Check) {
			return Unknown
		}
	}
	return Ready
}

// one is the finding of a check that has one alone.
func one(f host.Finding) []host.Finding {
	return []host.Finding{f}
}

func pass(format string, args ...any) []host.Finding {
	return one(host.Finding{Status: host.Pass, Seen: fmt.Sprintf(format, args...)})
}

// na says why a check does not apply.
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

// withFile names the file, unless the text does so already.
func withFile(file, text string) string {
	if strings.Contains(text, file) {
		return text
	}
	return file + ": " + text
}

// plural counts in words: 1 group, 2 groups.
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
