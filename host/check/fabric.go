package check

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// fabric checks whether NVSwitches can serve the GPUs for guests: by NVIDIA's Fabric Manager on the
// host, or by the configuration with which Nova offers the switches.
func (v view) fabric() []host.Finding {
	if not := v.notComparable(); not != nil {
		return not
	}
	goes := func(a pci.Address) bool { return v.Recorded(a) != nil }
	switch selection.Divided(v.Devices.Value, goes) {
	case machine.SwitchesToGuest:
		f := checklist.Pass("NVSwitches are assigned to guests")[0]
		f.Effect, f.Remedy = "a guest gets them only if its flavor requests them", selection.OfferSwitches(v.Devices.Value, goes)
		return []host.Finding{f}
	case machine.SwitchesToHost:
	default:
		return checklist.NA("no GPU for guests is on a board with NVSwitches")
	}
	f, mode := v.Fabric.Value, v.Fabric.Value.Mode
	finding := host.Finding{Status: host.Fail, File: machine.FabricConfig,
		Effect: "guests cannot use GPUs over NVLink, and CUDA may not start in them", Remedy: host.Plain(selection.NeedsFabric)}
	switch {
	case !v.Fabric.Seen():
		return unread(v.Fabric)
	case !f.Installed:
		finding.File, finding.Seen = "", machine.FabricUnit+" is not installed"
	case !f.Enabled:
		finding.File, finding.Seen, finding.Remedy = "", machine.FabricUnit+" is not enabled", host.Plain("systemctl enable --now "+machine.FabricUnit)
	case mode == "":
		finding.Seen = machine.FabricConfig + " does not set " + machine.FabricMode
	case mode != machine.SharedMode:
		finding.Seen = machine.FabricConfig + " sets " + machine.FabricMode + "=" + mode
	default:
		done := checklist.Pass("%s is enabled in shared NVSwitch mode", machine.FabricUnit)[0]
		done.Effect = selection.NeedsPartition
		return []host.Finding{done}
	}
	return []host.Finding{finding}
}
