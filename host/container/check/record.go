package check

import (
	"fmt"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/machine"
)

// record compares the specs of our own kinds with what container prepare has recorded: functions
// that are missing or replaced, devices that no name leads to, devices that are not recorded, and
// files that were changed since.
func (v view) record() []host.Finding {
	switch {
	case !v.Containers.Seen():
		return blind(v.Containers.File, v.Containers.Err)
	case v.Containers.Value == nil:
		return na("nothing is recorded for containers")
	case !v.Devices.Seen():
		return blind(v.Devices.File, v.Devices.Err)
	case !v.Specs.Seen():
		return blind(v.Specs.File, v.Specs.Err)
	}
	c := v.Containers.Value
	var findings []host.Finding
	fail := func(file, seen, effect, remedy string) {
		findings = append(findings, host.Finding{Status: host.Fail, File: file, Seen: seen, Effect: effect, Remedy: remedy})
	}
	const again = "systemctl restart gpustack-boot.service writes the specs; see its journal if the devices are still missing"
	devices := v.Specs.Value.Devices()
	for _, f := range c.Functions {
		name := kindOf(c.Options, f.HCA) + "=" + f.Address.String()
		if !f.IsAt(v.Devices.Value) {
			fail("/sys/bus/pci/devices/"+f.Address.String(), fmt.Sprintf("%s is not the recorded function %s:%s", f.Address, f.VendorID, f.ProductID),
				"its device gives containers nothing, or another device", "gpustack container prepare --remove "+f.Address.String()+", then prepare the device at its present address")
			continue
		}
		if !slices.ContainsFunc(devices, func(d cdi.Device) bool { return d.Name == name && d.File != "" }) {
			fail(machine.ContractFile, "no spec has "+name+", which is recorded", fmt.Sprintf(`"Error: setting up CDI devices: unresolvable CDI devices %s"`, name), again)
		}
	}
	v.eachEdit(func(file, _, kind, device string, _ *specs.ContainerEdits) {
		if kind != c.Options.GPUKind && kind != c.Options.HCAKind || device == "" {
			return
		}
		if a, ok := addressOf(device); ok && c.At(a) == nil {
			fail(file, fmt.Sprintf("%s=%s is not recorded", kind, device), "containers can use a device that may be assigned to guests",
				"remove it from the file, or record it: gpustack container prepare --device "+a.String())
		}
	})
	for i, f := range c.Files {
		switch {
		case i >= len(v.Files):
		case !v.Files[i].Seen():
			findings = append(findings, blind(f.Name, v.Files[i].Err)...)
		case v.Files[i].Value == "":
			fail(f.Name, f.Name+" is missing", "what is recorded does not take effect", "gpustack container prepare writes it again")
		case v.Files[i].Value != f.Hash:
			fail(f.Name, f.Name+" was changed since gpustack wrote it", "what is recorded may not take effect", "gpustack container prepare --dry-run shows the difference")
		}
	}
	return or(findings, "%s as recorded", plural(len(c.Functions), "device"))
}

// kindOf returns the kind of the spec that has a recorded function.
func kindOf(o machine.ContainerOptions, hca bool) string {
	if hca {
		return o.HCAKind
	}
	return o.GPUKind
}
