// Package check determines whether a machine is ready to assign GPUs to guests, and if not, why:
// [Verify]. Each check has a file and a function named as in the output.
//
// It does not read the machine (host/machine) and changes nothing.
package check

import (
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/steps"
)

// checks are the checks of what host prepare needs and has made.
var checks = checklist.List[view]{
	{Name: "virtualization", Judge: view.virtualization},
	{Name: "firmware", Judge: view.firmware},
	{Name: "secure_boot", Judge: view.secureBoot},
	{Name: "iommu", Judge: view.iommu},
	{Name: "iommu_type", Judge: view.iommuType},
	{Name: "reserved_regions", Judge: view.reservedRegions},
	{Name: "acs", Judge: view.acs},
	{Name: "interrupt_remapping", Judge: view.interruptRemapping},
	{Name: "arguments", Judge: view.arguments, NA: checklist.Unknown},
	{Name: "next_boot", Judge: view.nextBoot},
	{Name: "kernels", Judge: view.kernels},
	{Name: "initramfs", Judge: view.initramfs},
	{Name: "ids", Judge: view.ids},
	{Name: "preparable", Judge: view.preparable},
	{Name: "boot_vga", Judge: view.bootVGA},
	{Name: "bus", Judge: view.bus},
	{Name: "functions", Judge: view.functions, Fail: checklist.Drifted, NA: checklist.Unknown},
	{Name: "drivers", Judge: view.drivers, Fail: checklist.Drifted, NA: checklist.Unknown},
	{Name: "groups", Judge: view.groups, Fail: checklist.Drifted, NA: checklist.Unknown},
	{Name: "reset", Judge: view.reset},
	{Name: "bars", Judge: view.bars},
	{Name: "pcie", Judge: view.pcie},
	{Name: "fabric", Judge: view.fabric},
	{Name: "nova", Judge: view.nova},
	{Name: "files", Judge: view.files, Fail: checklist.Drifted},
	{Name: "journal", Judge: view.journal},
}

// startupChecks are the checks of the steps of every boot, which rdma prepare and container prepare
// record.
var startupChecks = checklist.List[view]{
	{Name: "startup", Judge: view.startup},
}

// recordChecks are the checks that do not apply while one of the others fails.
var recordChecks = checklist.List[view]{
	{Name: "prepared", Judge: view.prepared, Fail: checklist.NotPrepared},
	{Name: "reboot", Judge: view.reboot, Fail: checklist.PendingReboot},
}

// Verify runs all checks on a machine that was observed by [machine.ObserveCheck]. Its findings are in
// the order in which an operator would look for a problem: CPU, firmware, IOMMU, arguments,
// modules, functions and their groups, the steps of this boot, and the record. A check does not
// repeat what only follows from a failure of another check: it does not apply until that is fixed.
//
// refused are the errors with which host prepare, without options, refuses the machine. They count
// only for a machine that is not prepared. boot is the state of the steps of every boot.
func Verify(m machine.Machine, refused []error, boot steps.State) ([]host.Finding, checklist.Verdict) {
	v := newView(m)
	v.refused, v.boot = refused, boot
	findings, verdict := checks.Judge(v)
	v.mended = !host.Failed(findings)
	ofSteps, started := startupChecks.Judge(v)
	ofRecord, recorded := recordChecks.Judge(v)
	findings = slices.Concat(findings, ofSteps, ofRecord)
	verdict = checklist.Worse(verdict, recorded)
	switch {
	case v.phase == unseen:
		return findings, checklist.Unknown
	case v.undone:
		return findings, checklist.PendingReboot
	case v.phase == unprepared:
		return findings, checklist.NotPrepared
	case verdict == checklist.Ready:
		return findings, started
	}
	return findings, verdict
}

// unread returns the finding of a check whose subject could not be read.
func unread[T any](l machine.Look[T]) []host.Finding {
	return checklist.Unread(l.File, l.Err)
}
