package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/initramfs"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
)

// initramfs checks whether each kernel's initramfs binds functions before a host driver can, and
// whether gpustack=off disables the blacklist.
func (v view) initramfs() []host.Finding {
	return append(v.hooks(), v.blacklist()...)
}

// blacklist finds a blacklist of gpustack's in /etc, which gpustack=off cannot disable.
func (v view) blacklist() []host.Finding {
	if v.Contract.Value == nil || !v.Conf.Seen() || machine.ImagesElsewhere(v.Loader.Value) {
		return nil
	}
	var modules []string
	var first modprobe.Line
	for _, line := range v.Conf.Value {
		if line.Command == "blacklist" && slices.Contains(modprobe.OwnFiles(), line.File) {
			if modules == nil {
				first = line
			}
			modules = append(modules, line.Module)
		}
	}
	if modules == nil {
		return nil
	}
	return []host.Finding{{
		Status: host.Warn, File: first.File, Line: first.Number,
		Seen:   fmt.Sprintf("gpustack=off does not cover the blacklist here (%s)", strings.Join(modules, ", ")),
		Effect: "booted with gpustack=off, the host does not load these drivers automatically",
		Remedy: host.Textf("%s moves the blacklist into the initramfs, once every kernel starts with one", host.NewCommand("host prepare")),
	}}
}

// hooks checks whether the initramfs of each kernel contains the recorded hook. One that was made
// before host prepare, or by another generator, does not.
func (v view) hooks() []host.Finding {
	switch {
	case v.phase == unprepared:
		return v.left()
	case v.phase == unseen:
		return checklist.NA("what is recorded is unknown")
	case errors.Is(v.Initramfs.Err, machine.ErrNoInitramfs):
		return checklist.NA("%v", v.Initramfs.Err)
	case !v.Initramfs.Seen():
		return unread(v.Initramfs)
	}
	remedy := host.Textf("regenerate it: %s", v.rebuilt(false, true))
	ofGenerator := func(f machine.Hash) bool { return slices.Contains(v.Generator.Value.Files(), f.Name) }
	if v.Generator.Seen() && !slices.ContainsFunc(v.Contract.Value.Files, ofGenerator) {
		remedy = host.Textf("another program generates it now: %s writes the files for %s", host.NewCommand("host prepare"), v.Generator.Value)
	}
	var findings []host.Finding
	for _, i := range v.Initramfs.Value {
		switch faults := faultsOf(i); {
		case len(faults) > 0:
			findings = append(findings, host.Finding{
				Status: v.weight(i.Kernel), File: i.File,
				Seen:   fmt.Sprintf("the initramfs of %s %s", i.Kernel, strings.Join(faults, "; ")),
				Effect: "on next boot a host driver may claim the GPU first",
				Remedy: remedy,
			})
		case i.Err != nil:
			findings = append(findings, checklist.Unread(i.File, i.Err)...)
		}
	}
	return checklist.OrPass(findings, "%s as recorded", host.Numbered(len(v.Initramfs.Value), "initramfs image"))
}

// left finds images that still bind functions although nothing is recorded any more, and files of
// gpustack's without a record, from which each regenerated image is the same again.
func (v view) left() (findings []host.Finding) {
	remedy := host.Plain("run " + v.programs(true, true))
	own := slices.IndexFunc(v.Conf.Value, func(l modprobe.Line) bool { return slices.Contains(modprobe.OwnFiles(), l.File) })
	switch {
	case own >= 0:
		prepare := host.NewCommand("host prepare")
		remedy = host.Textf("%s is missing: %s returns them to the host, %s records them again", machine.ContractFile, prepare.Flag("none"), prepare)
	case v.Elsewhere:
		remedy = v.rebuilt(true, true)
	}
	const effect = "each boot binds them again"
	for _, i := range v.Initramfs.Value {
		if errors.Is(i.Err, machine.ErrLeft) {
			findings = append(findings, host.Finding{
				Status: v.weight(i.Kernel), File: i.File, Seen: "the initramfs of " + i.Kernel + " " + i.Err.Error(), Effect: effect, Remedy: remedy,
			})
		}
	}
	switch {
	case findings != nil:
		return findings
	case own >= 0: // without a journal no image is read
		return []host.Finding{{Status: host.Fail, File: v.Conf.Value[own].File, Seen: machine.ErrLeft.Error(), Effect: effect, Remedy: remedy}}
	}
	return checklist.NA("nothing is recorded for it")
}

// faultsOf returns what is wrong with an initramfs that could be read.
func faultsOf(i machine.Initramfs) []string {
	var missing, faults []string
	for _, err := range host.Split(i.Err) {
		fault := strings.TrimPrefix(err.Error(), i.File+": ")
		switch {
		case errors.Is(err, initramfs.ErrMissing):
			fault = strings.TrimSuffix(fault, ": "+initramfs.ErrMissing.Error())
			missing = append(missing, strings.TrimSuffix(fault, " of "+i.Kernel))
		case errors.Is(err, initramfs.ErrDiffers), errors.Is(err, initramfs.ErrOrder):
			faults = append(faults, fault)
		}
	}
	if missing != nil {
		faults = append([]string{"has no " + strings.Join(missing, ", ")}, faults...)
	}
	return faults
}
