package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host"
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

// Names of checks. They are a public face.
const (
	aboutFirmware   = "firmware"
	aboutSecureBoot = "secure_boot"
	aboutIOMMU      = "iommu"
	aboutType       = "iommu_type"
	aboutInterrupts = "interrupt_remapping"
	aboutArguments  = "arguments"
	aboutNextBoot   = "next_boot"
	aboutKernels    = "kernels"
	aboutInitramfs  = "initramfs"
	aboutIDs        = "ids"
	aboutPreparable = "preparable"
	aboutConsole    = "boot_vga"
	aboutFabric     = "fabric"
	aboutBus        = "bus"
	aboutFunctions  = "functions"
	aboutDrivers    = "drivers"
	aboutGroups     = "groups"
	aboutReset      = "reset"
	aboutBARs       = "bars"
	aboutFiles      = "files"
	aboutJournal    = "journal"
	aboutPrepared   = "prepared"
	aboutReboot     = "reboot"
)

// Check judges a machine. Its findings come in the order in which one would look: the
// CPU, the firmware, the IOMMU, arguments, modules, the functions and their groups, and what is
// recorded. Each check has one at least. What follows from a fault that another check
// names is not said again: it does not apply until that is mended.
func Check(m Machine) ([]host.Finding, Verdict) {
	v := m.view()
	var findings []host.Finding
	for _, check := range []struct {
		name  string
		judge func(view) []host.Finding
	}{
		{aboutVirtualization, view.virtualization},
		{aboutFirmware, view.firmware},
		{aboutSecureBoot, view.secureBoot},
		{aboutIOMMU, view.iommuOn},
		{aboutType, view.iommuType},
		{aboutInterrupts, view.interrupts},
		{aboutArguments, view.arguments},
		{aboutNextBoot, view.nextBoot},
		{aboutKernels, view.kernels},
		{aboutInitramfs, view.images},
		{aboutIDs, view.ids},
		{aboutPreparable, view.preparable},
		{aboutConsole, view.console},
		{aboutBus, view.bus},
		{aboutFunctions, view.identities},
		{aboutDrivers, view.drivers},
		{aboutGroups, view.groups},
		{aboutReset, view.resets},
		{aboutBARs, view.bars},
		{aboutFabric, view.fabric},
		{aboutFiles, view.files},
		{aboutJournal, view.interrupted},
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
	case failed(aboutReboot):
		return PendingReboot
	case failed(aboutFunctions, aboutDrivers, aboutGroups, aboutFiles):
		return Drifted
	case failed():
		return NotReady
	}
	// What makes a machine ready must have been seen.
	for _, f := range findings {
		if f.Status == host.NA && slices.Contains([]string{aboutArguments, aboutFunctions, aboutDrivers, aboutGroups}, f.Check) {
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

// Look is what a check found where it looked, or why it found nothing: what is absent,
// what may not be read and what makes no sense are told apart.
type Look[T any] struct {
	Value T
	File  string // on the machine
	Err   error
}

func look[T any](file string, value T, err error) Look[T] {
	return Look[T]{value, file, err}
}

func (l Look[T]) seen() bool {
	return l.Err == nil
}

// blind is the finding of a check that could not look.
func (l Look[T]) blind() []host.Finding {
	return one(blind(l.File, l.Err))
}

func blind(file string, err error) host.Finding {
	f := host.Finding{Status: host.NA, File: file}
	switch text := host.Cause(err).Error(); {
	case host.IsAbsent(err):
		f.Seen = file + " is not there"
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
