package containercheck

import (
	"bytes"
	"fmt"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/machine"
)

// record compares the specs of our own kinds with what container prepare has recorded: functions
// that are missing or replaced, devices that no name leads to, devices that are not recorded, and
// files that were changed since.
func (v view) record() []host.Finding {
	switch {
	case !v.Containers.Seen():
		return checklist.Unread(v.Containers.File, v.Containers.Err)
	case v.Containers.Value == nil:
		return v.unrecorded()
	case !v.Devices.Seen():
		return checklist.Unread(v.Devices.File, v.Devices.Err)
	}
	c := v.Containers.Value
	var findings []host.Finding
	fail := func(file, seen, effect string, remedy host.Text) {
		findings = append(findings, host.Finding{Status: host.Fail, File: file, Seen: seen, Effect: effect, Remedy: remedy})
	}
	again, write := v.rewrite(), host.Textf("%s shows the difference", host.NewCommand("container prepare").Flag("dry-run"))
	if !c.Options.Static {
		write = host.Plain("systemctl restart gpustack-boot.service writes it again, as the machine is now")
		if f := v.Boot.Unstarted(); f != nil {
			findings = append(findings, *f)
		} else if v.Boot.Err != nil {
			findings = append(findings, host.Map(host.Split(v.Boot.Err), checklist.Prevented)...)
		}
	}
	devices := v.Specs.Devices()
	for _, f := range c.Functions {
		name := container.NameOf(f)
		if !f.IsAt(v.Devices.Value) {
			fail("/sys/bus/pci/devices/"+f.Address.String(), fmt.Sprintf("%s is not the recorded function %s:%s", f.Address, f.VendorID, f.ProductID),
				"its device gives containers nothing, or another device", host.Textf("%s, then prepare the device at its present address",
					host.NewCommand("container prepare").Flag("remove", f.Address.String())))
			continue
		}
		if !slices.ContainsFunc(devices, func(d cdi.Device) bool { return d.Name == name && d.File != "" }) {
			fail(machine.ContractFile, "no spec has "+name+", which is recorded", fmt.Sprintf(`"Error: setting up CDI devices: unresolvable CDI devices %s"`, name), again)
		}
	}
	for _, g := range v.given {
		a, ok := addressOf(g.Device)
		if !ok || g.Kind != cdi.GPUKind && g.Kind != cdi.HCAKind || c.At(a) != nil {
			continue
		}
		remedy := again
		if !container.IsSpec(g.File) {
			remedy = host.Plain("remove it from the file, or have the program that writes the file name a kind of its own")
		}
		fail(g.File, g.Name+" is not recorded", "containers can use a device that may be assigned to guests", remedy)
	}
	if v.Driver.Seen() && v.Stack.Seen() {
		findings = append(findings, v.rewritten(write)...)
	}
	for i, f := range c.Files {
		switch {
		case i >= len(v.Files):
		case !v.Files[i].Seen():
			findings = append(findings, checklist.Unread(f.Name, v.Files[i].Err)...)
		case v.Files[i].Value == "":
			fail(f.Name, f.Name+" is missing", "what is recorded does not take effect", host.Textf("%s writes it again", host.NewCommand("container prepare")))
		case v.Files[i].Value != f.Hash:
			fail(f.Name, f.Name+" was changed since gpustack wrote it", "what is recorded may not take effect", host.Textf("%s shows the difference",
				host.NewCommand("container prepare").Flag("dry-run")))
		}
	}
	return checklist.OrPass(findings, "%s as recorded", host.Numbered(len(c.Functions), "device"))
}

// rewrite returns how specs of gpustack are written again.
func (v view) rewrite() host.Text {
	if c := v.Containers.Value; c != nil && !c.Options.Static {
		return host.Plain("systemctl restart gpustack-boot.service writes the spec again; see its journal if devices are still missing")
	}
	return host.Textf("%s writes the specs again", host.NewCommand("container prepare"))
}

// unrecorded finds specs of ours that nothing records.
func (v view) unrecorded() (findings []host.Finding) {
	for _, f := range v.Specs.Files {
		if container.IsSpec(f.Path) {
			findings = append(findings, host.Finding{
				Status: host.Warn, File: f.Path, Seen: f.Path + " is a spec of gpustack, and nothing is recorded for containers",
				Effect: "containers can use a device that may be assigned to guests", Remedy: host.Textf("%s removes it",
					host.NewCommand("container prepare").Flag("none")),
			})
		}
	}
	if findings == nil {
		return checklist.NA("nothing is recorded for containers")
	}
	return findings
}

// rewritten finds specs of ours that would be written otherwise now: after a driver was upgraded, a
// minor has changed, or an operator has edited the file. write is how they are written again.
func (v view) rewritten(write host.Text) (findings []host.Finding) {
	c := v.Containers.Value
	wanted := container.SpecOf(c, v.Driver.Value, v.Stack.Value, v.Devices.Value)
	for _, m := range wanted.Missing {
		f := host.Finding{Status: host.Warn, File: machine.ContractFile, Seen: m.Reason, Effect: "containers do not get it",
			Remedy: host.NewCommand("container prepare").Flag("dry-run").Text()}
		if m.Address != nil && !c.At(*m.Address).IsAt(v.Devices.Value) {
			continue // reported by record
		}
		if m.Address != nil {
			f.Status, f.Seen, f.Effect = host.Fail, m.Address.String()+": "+m.Reason, "its device cannot be written into a spec"
			f.Remedy = host.Textf("correct what module, gpus and nodes name; why a GPU has failed: journalctl -k --grep NVRM; or %s",
				host.NewCommand("container prepare").Flag("remove", m.Address.String()))
		}
		findings = append(findings, f)
	}
	for _, w := range []struct {
		name string
		spec *specs.Spec
	}{{container.GPUFile, wanted.GPU}, {container.HCAFile, wanted.HCA}} {
		at := container.SpecFile(c.Options, w.name)
		i := slices.IndexFunc(v.Specs.Files, func(f cdi.File) bool { return f.Path == at && f.Spec != nil })
		if i < 0 && w.spec != nil && !c.Options.Static {
			findings = append(findings, host.Finding{
				Status: host.Fail, File: at, Seen: at + " is missing, or no spec", Effect: "containers do not get what is recorded",
				Remedy: host.Textf("systemctl restart gpustack-boot.service, which writes it at each boot; '%s' names a step that failed", host.NewCommand("host check")),
			})
		}
		if i < 0 || w.spec == nil {
			continue
		}
		now, err := cdi.Text(*w.spec)
		if err != nil {
			findings = append(findings, host.Finding{Status: host.NA, File: at, Seen: err.Error()})
			continue
		}
		if there, err := cdi.Text(*v.Specs.Files[i].Spec); err != nil || !bytes.Equal(there, now) {
			findings = append(findings, host.Finding{
				Status: host.Warn, File: at, Seen: at + " differs from the spec that this machine needs now",
				Effect: "containers may get other nodes or libraries than are recorded", Remedy: write,
			})
		}
	}
	return findings
}
