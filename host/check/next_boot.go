package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
)

// watched are the arguments in which the next boot is compared with the running kernel on a
// machine without a record.
var watched = []string{"intel_iommu", "amd_iommu", "iommu", "iommu.passthrough", machine.VFIO + ".ids",
	machine.Stub + ".ids", "vfio_iommu_type1.allow_unsafe_interrupts"}

// nextBoot checks the arguments of each normal entry of the boot menu, and of the one that GRUB
// selects by itself (its default, saved_entry, next_entry), whatever it boots; it fails on a
// prepared machine that does not boot from the menu that gpustack reads, and does not apply where a
// file that the menu reads may set another default.
func (v view) nextBoot() []host.Finding {
	if external, ok := v.Loader.Value.(boot.External); ok {
		if f := v.external(external); f != nil {
			return f
		}
	}
	switch {
	case !v.Entries.Seen():
		return v.unknownBoot()
	case v.phase == unseen:
		return checklist.NA("what is recorded is unknown")
	}
	entries := normal(v.Entries.Value)
	running := watchedOf(v.Running.Value)
	var findings []host.Finding
	for _, e := range entries {
		found := v.entry(e)
		if next := watchedOf(e.Args); found == nil && !e.Later && v.Running.Seen() && !v.blamed() && modprobe.Normal(next) != modprobe.Normal(running) {
			found = []host.Finding{{
				Status: host.Warn, File: e.File,
				Seen:   fmt.Sprintf("the entry of %s has %s, the kernel runs with %s", e.Kernel, orNone(next), orNone(running)),
				Effect: "the next boot will use different IOMMU arguments",
				Remedy: host.Plain("check where the difference comes from: the configuration or the prompt of the boot loader"),
			}}
		}
		findings = append(findings, found...)
	}
	unsure := slices.IndexFunc(v.Entries.Value, func(e boot.Entry) bool { return e.Unsure })
	switch {
	case findings != nil:
		return findings
	case unsure >= 0:
		return checklist.NA("unknown: %s may set another default than the menu", v.Entries.Value[unsure].File)
	case v.phase != unprepared:
		return checklist.Pass("%s as recorded", counted(entries))
	case !v.Running.Seen():
		return checklist.NA("the arguments of the running kernel are unknown")
	}
	return checklist.Pass("%s with the arguments of the running kernel: %s", counted(entries), orNone(running))
}

// unknownBoot reports that the next boot cannot be read. A prepared machine fails the check where
// the boot files that gpustack reads are not those that the machine boots.
func (v view) unknownBoot() []host.Finding {
	f := unread(v.Entries)[0]
	command := bootCommand(v.Entries.Err)
	if command == "" {
		return []host.Finding{f}
	}
	f.Seen, f.Remedy = v.Entries.Err.Error(), host.Plain(command)
	if v.phase == pending || v.phase == booted {
		f.Status = host.Fail
		f.Effect = "the next boot may lack the recorded arguments; then functions for guests remain with the host"
	}
	return []host.Finding{f}
}

// external returns what may be missing at the next boot from a boot loader that gpustack does not edit,
// nil if nothing is.
func (v view) external(loader boot.External) []host.Finding {
	early := v.Contract.Value != nil && slices.ContainsFunc(v.Contract.Value.Functions, func(f machine.Function) bool { return f.By != machine.ByService })
	switch {
	case early && machine.ImagesElsewhere(loader):
		return []host.Finding{{
			Status: host.Fail, File: "/boot", Seen: loader.What + ": the initramfs is not regenerated here, and functions are recorded for it",
			Effect: "functions for guests remain with the host", Remedy: host.Textf("%s has gpustack-boot.service bind them", host.NewCommand("host prepare")),
		}}
	case loader.Warning != "":
		return []host.Finding{{
			Status: host.Warn, File: "/boot", Seen: loader.Warning,
			Effect: "the next boot may lack the arguments; then no function can be assigned to a guest", Remedy: host.Plain(loader.Command),
		}}
	}
	return nil
}

// bootCommand returns the command that helps where the machine does not boot from the files that
// gpustack reads, or "".
func bootCommand(err error) string {
	var unsupported *boot.Unsupported
	var missing *boot.NotMounted
	switch {
	case errors.As(err, &unsupported):
		return unsupported.Command
	case errors.As(err, &missing):
		return missing.Command
	}
	return ""
}

// blamed reports whether the running kernel does not match the record, which other checks report.
func (v view) blamed() bool {
	return v.phase == pending || v.undone || len(v.lacking) > 0 || v.phase == booted && len(v.against) > 0
}

// entry compares a boot entry with the record.
func (v view) entry(e boot.Entry) []host.Finding {
	if v.phase == unprepared {
		return nil
	}
	var findings []host.Finding
	fail := func(seen string, remedy host.Text) {
		findings = append(findings, host.Finding{
			Status: host.Fail, File: e.File, Seen: "the entry of " + e.Kernel + seen,
			Effect: "booted with this entry, functions for guests remain with the host", Remedy: remedy,
		})
	}
	which, remedy := "", host.Textf("regenerate the boot menu: %s", v.rebuilt(true, false))
	foreign := v.isForeign(e)
	if foreign {
		which, remedy = ", which GRUB selects by itself,",
			host.Plain("select another entry with grub-set-default or grub-reboot, or add the recorded arguments to this one")
	}
	if missing := e.Args.Lacking(v.wantedArguments()); len(missing) > 0 {
		fail(which+" lacks "+strings.Join(missing, " "), remedy)
	}
	const remove = "remove it from the configuration of the boot loader"
	if against := v.contradicting(e.Args); len(against) > 0 {
		if foreign {
			remedy = host.Plain(remove)
		}
		fail(which+" has "+against.String(), remedy) // host prepare removes it
	}
	if slices.Contains(e.Args, offArgument) {
		fail(which+" has "+offArgument, host.Plain(remove))
	}
	return findings
}

// counted returns the number of entries, and whether the template for later kernels is among them.
func counted(entries []boot.Entry) string {
	later := slices.ContainsFunc(entries, func(e boot.Entry) bool { return e.Later })
	n, with := len(entries), ""
	if later {
		n, with = n-1, " and the template for later kernels"
	}
	switch {
	case n == 0 && later: // another program makes the entries
		return "the template for later kernels"
	case n == 1:
		return "1 entry" + with
	}
	return fmt.Sprintf("%d entries%s", n, with)
}

// normal returns the entries of this machine without recovery entries, and the entry that boots,
// whatever it is.
func normal(entries []boot.Entry) []boot.Entry {
	same := sameSystem(entries)
	return slices.DeleteFunc(slices.Clone(entries), func(e boot.Entry) bool { return e.Unsure || !e.Boots && !same(e) })
}

// sameSystem returns a function that reports whether an entry is this machine's and no recovery
// entry. One with another root file system than the first entry belongs to another system.
func sameSystem(entries []boot.Entry) func(boot.Entry) bool {
	i := slices.IndexFunc(entries, func(e boot.Entry) bool { return !e.Recovery })
	if i < 0 {
		return func(boot.Entry) bool { return false }
	}
	root := entries[i].Args.Values("root")
	return func(e boot.Entry) bool { return !e.Recovery && (e.Later || slices.Equal(root, e.Args.Values("root"))) }
}

// isForeign reports whether an entry, which boots, is none that gpustack prepares.
func (v view) isForeign(e boot.Entry) bool {
	return !sameSystem(v.Entries.Value)(e)
}

func watchedOf(args boot.Args) string {
	var found boot.Args
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if slices.ContainsFunc(watched, func(w string) bool { return modprobe.Normal(w) == modprobe.Normal(name) }) {
			found = append(found, arg)
		}
	}
	return found.String()
}

func orNone(args string) string {
	if args == "" {
		return "no IOMMU argument"
	}
	return args
}
