package check

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// drivers checks whether each recorded function is bound to its recorded driver.
func (v view) drivers() []host.Finding {
	if f := v.notComparable(); f != nil {
		return f
	}
	var findings []host.Finding
	held, waits := 0, 0
	for _, f := range v.Contract.Value.Functions {
		d := v.Devices.Value.At(f.Address)
		if d == nil || v.unsettled[f.Address] {
			continue
		}
		file := machine.AttributeFile(f.Address, "driver")
		switch {
		case d.DriverUnread():
			findings = append(findings, host.Finding{Status: host.NA, File: file, Seen: f.Address.String() + ": its driver cannot be read"})
		case f.IsHeldBy(d.DriverName()):
			held++
		case f.MayBeBorrowed(d.DriverName()) && d.IOMMUGroup != nil && v.Open.Value[*d.IOMMUGroup]:
			held++
		case f.MayBeBorrowed(d.DriverName()) && !v.Open.Seen():
			findings = append(findings, host.Finding{
				Status: host.NA, File: file,
				Seen: fmt.Sprintf("%s is bound to %s instead of %s, as while a guest uses it; whether a guest uses it is unknown: %v",
					f.Address, *d.Driver, f.Driver, v.Open.Err),
			})
		case v.phase == pending:
			waits++
		default:
			findings = append(findings, v.drift(f, *d, file))
		}
	}
	findings = append(v.prevented(), findings...)
	switch {
	case findings != nil:
		return findings
	case waits > 0:
		return checklist.NA("%s to be bound at the next boot", host.Numbered(waits, "function"))
	case held == 0:
		return checklist.NA("no recorded function is unchanged")
	}
	f := checklist.Pass("%s bound as recorded", host.Numbered(held, "function"))
	if lines := v.Claims.Value; len(lines) > 0 {
		f[0].Effect = "kernel log: " + strings.Join(slices.Compact(lines), "; ")
	}
	return f
}

// prevented finds settings that keep the recorded drivers from being loaded at the next boot, if not
// at this one.
func (v view) prevented() (findings []host.Finding) {
	modules := v.Contract.Value.Modules(v.Kernels.Value)
	for _, line := range modprobe.Preventing(v.Conf.Value, v.Running.Value.String(), modules...) {
		if !line.StopsNames() {
			continue
		}
		findings = append(findings, host.Finding{
			Status: host.Fail, File: line.File, Line: line.Number, Seen: fmt.Sprintf("%s %s keeps the driver for guests from being loaded", line.Command, line.Module),
			Effect: "booted with it, neither guests nor the host have these functions", Remedy: host.Plain("remove it; reboot if functions are not bound"),
		})
	}
	return findings
}

func (v view) drift(f machine.Function, d pci.Device, file string) host.Finding {
	finding := host.Finding{
		Status: host.Fail, File: file, Seen: fmt.Sprintf("%s is bound to %s instead of %s", f.Address, d.DriverName(), f.Driver),
		Effect: "its group cannot be assigned to a guest",
		Remedy: host.Textf("%s binds it now; the kernel's log shows which driver claimed it: journalctl -k -g %s", host.NewCommand("host bind"), f.Address.String()),
	}
	if v.regrouped(f) { // host bind leaves out what no group needs any more
		finding.Remedy = v.adapted(f)
	}
	switch {
	case d.Driver == nil:
		finding.Seen = fmt.Sprintf("%s is bound to no driver instead of %s", f.Address, f.Driver)
		finding.Effect = "it cannot be assigned to a guest"
	case pci.LeavesAlone(*d.Driver):
		finding.Effect = "it can be assigned to a guest, but not as prepared"
	}
	if d.IsConsole() && !f.BootVGA {
		finding.Seen += "; it became the console after it was recorded"
		finding.Remedy = host.Textf("select another primary display in the firmware's setup, or assign it to guests: %s",
			host.NewCommand("host prepare").Flag("allow", f.Address.String()))
	}
	return finding
}
