package check

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/gate"
	"gpustack/host/initramfs"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// preparable reports what host prepare refuses on a machine that is not prepared, and on a prepared
// one the recorded functions that have come into use before the boot which takes them from the
// host. It passes only if host prepare, asked itself, has no error.
func (v view) preparable() []host.Finding {
	switch {
	case v.phase == unseen:
		return checklist.NA("what is recorded is unknown")
	case v.phase != unprepared:
		return v.leaving()
	case v.undone:
		return checklist.NA("nothing is recorded any more")
	case !v.Devices.Seen():
		return unread(v.Devices)
	case v.Containers != nil && len(v.Devices.Value.Defaults()) > 0 && len(v.Defaults()) == 0:
		return checklist.NA("every NVIDIA GPU is for containers")
	}
	var findings []host.Finding
	skipped := "" // the check that reports what is refused
	refused := v.refusals()
	for _, err := range refused {
		f := host.Finding{Status: host.Fail, Seen: err.Error(), Effect: fmt.Sprintf("%s refuses", host.NewCommand("host prepare")),
			Remedy: host.Textf("run '%s' for details", host.NewCommand("host prepare").Flag("dry-run"))}
		var refusal *gate.Refusal
		var separation *gate.Separation
		switch {
		case errors.Is(err, gate.ErrRegion):
			skipped = "reserved_regions"
			continue
		case bootCommand(err) != "":
			f.Remedy = host.Plain(bootCommand(err))
		case errors.As(err, &refusal):
			if d := v.Devices.Value.At(refusal.Address); d.IsConsole() {
				skipped = "boot_vga"
				continue
			}
			f.File = machine.AttributeFile(refusal.Address, "")
		case errors.As(err, &separation) && len(refused) == 1: // with further refusals this command would be refused too
			f.Remedy = host.Textf("run '%s'", host.NewCommand("host prepare").Flag("nvswitch", "host"))
			if !separation.Unread {
				f.Remedy = host.Textf("%s or '%s'", f.Remedy, host.NewCommand("host prepare").Flag("nvswitch", "guest"))
			}
		case errors.Is(err, selection.ErrNoDevice):
			f.File = machine.DevicesDir
			f.Effect = fmt.Sprintf("%s selects nothing by default", host.NewCommand("host prepare"))
			f.Remedy = host.Textf("run '%s' and select functions with --device or --vendor", host.NewCommand("host scan").Flag("all"))
		case errors.Is(err, fs.ErrPermission):
			f.Status, f.Effect, f.Remedy = host.NA, "", host.AsRoot()
		case errors.Is(err, machine.ErrNoBootLoader), errors.Is(err, machine.ErrNoKernel),
			errors.Is(err, initramfs.ErrNoGenerator), errors.Is(err, machine.ErrCPU) && v.CPUVendor == "unknown":
			// In an incomplete tree, such as a snapshot, the file may only be missing from the tree.
			f.Status, f.Effect, f.Remedy = host.NA, "", nil
		}
		findings = append(findings, f)
	}
	switch {
	case findings == nil && skipped != "":
		return checklist.NA("skipped: %s fails", skipped)
	case findings == nil:
		guests := host.Map(v.Guests, func(d pci.Device) string { return d.Address.String() })
		return checklist.Pass("%s selects %s", host.NewCommand("host prepare"), strings.Join(guests, " "))
	}
	return findings
}

// leaving asks the gate for the recorded functions that are the host's until the next boot.
func (v view) leaving() []host.Finding {
	switch {
	case v.phase != pending:
		return checklist.NA("already prepared") // drivers reports what did not leave
	case !v.Needs.Seen():
		return unread(v.Needs)
	}
	h := gate.New(v.Machine)
	s := gate.Selection{Selected: v.Contract.Value.Selected, Kind: gate.AtBoot}
	for _, f := range v.Contract.Value.Functions {
		if d := v.Devices.Value.At(f.Address); d != nil && !v.unsettled[f.Address] && d.DriverName() != "" && !pci.LeavesAlone(d.DriverName()) {
			s.All = append(s.All, f.Address)
		}
	}
	leaving := s.Leaving(v.Devices.Value)
	var findings []host.Finding
	if len(leaving) > 0 && !v.Uses.Seen() {
		findings = unread(v.Uses)
	}
	answer := h.AskAtBoot(v.Uses.Value, gate.Records{Guests: v.Contract.Value}.Allowed(), leaving...)
	remedy := v.endUse(answer.Refused)
	for _, r := range answer.Refused {
		effect := "the host loses it at the next boot"
		if f := v.Contract.Value.At(r.Address); f != nil && f.By == machine.ByService {
			effect = "gpustack-boot.service leaves it with the host, and its group cannot be assigned to a guest"
		}
		findings = append(findings, host.Finding{
			Status: host.Fail, File: cmp.Or(r.File, machine.AttributeFile(r.Address, "")), Seen: r.Address.String() + ": has changed since it was recorded: " + r.Reason,
			Effect: effect, Remedy: remedy,
		})
	}
	if findings == nil {
		return checklist.NA("already prepared")
	}
	return findings
}

// endUse returns the remedy of functions that have come into use: host prepare returns them to the
// host with the selected functions because of which they are recorded, unless it would refuse that.
func (v view) endUse(used []*gate.Refusal) host.Text {
	command, accepted := v.without(host.Map(used, func(r *gate.Refusal) pci.Address { return r.Address })...)
	if !accepted {
		return host.Plain("end the use")
	}
	return host.Textf("end the use, or %s before the reboot", command)
}

// without returns the command that returns recorded functions to the host with the selected
// functions because of which they are recorded, and whether host prepare accepts it.
func (v view) without(functions ...pci.Address) (host.Command, bool) {
	o, accepted := selection.NewNode(v.Machine).Without(functions...)
	command := host.NewCommand("host prepare")
	if o.None {
		command = command.Flag("none")
	}
	for _, x := range o.Remove {
		command = command.Flag("remove", x.String())
	}
	return command, accepted
}

// refusals returns the errors of host prepare. It stops at obstacles, such as a boot loader that it
// does not support: then the list has what it would refuse next, too.
func (v view) refusals() []error {
	obstacles := v.Obstacles()
	if obstacles == nil {
		return v.refused
	}
	n := selection.NewNode(v.Machine)
	s, err := n.Choose(selection.Options{})
	errs := slices.Concat(obstacles, host.Split(err), host.Split(n.Decide(s, machine.Uses{}, nil).Err()))
	if separation := n.Separation(s); separation != nil {
		errs = append(errs, separation)
	}
	return errs
}
