package selection

import (
	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Divided returns the side that has the NVSwitches if board GPUs are among the functions for which
// goes returns true, or "" if the machine has no NVSwitches or no such GPU is among them.
func Divided(devices pci.Devices, goes func(pci.Address) bool) machine.NVSwitch {
	side := machine.NVSwitch("")
	gpus := false
	for i := range devices {
		d := &devices[i]
		gpus = gpus || d.IsBoardGPU() && goes(d.Address)
		switch {
		case !d.IsNVSwitch():
		case goes(d.Address):
			return machine.SwitchesToGuest
		default:
			side = machine.SwitchesToHost
		}
	}
	if !gpus {
		return ""
	}
	return side
}

// What guests need to use GPUs over NVLink while the host has the NVSwitches.
const (
	NeedsFabric    = "nvidia-fabricmanager must be installed, enabled and have " + machine.FabricMode + "=" + machine.SharedMode + " in " + machine.FabricConfig
	NeedsPartition = "a partition must be activated before a guest with several GPUs starts, which Nova does not do: offer flavors with a single GPU, which work without NVLink"
)

// OfferSwitches returns how guests get the NVSwitches that are assigned to them, with the number of
// these and of board GPUs for which goes returns true.
func OfferSwitches(devices pci.Devices, goes func(pci.Address) bool) host.Text {
	gpus, switches := 0, 0
	for i := range devices {
		switch d := &devices[i]; {
		case !goes(d.Address):
		case d.IsNVSwitch():
			switches++
		case d.IsBoardGPU():
			gpus++
		}
	}
	return host.Textf("run %s, and request all NVSwitches of the board in flavors with all of its GPUs: GPU-ALIAS:%d,NVSWITCH-ALIAS:%d",
		host.NewCommand("nova configure"), gpus, switches)
}

// NVSwitchWarnings returns the setup steps that the chosen side of the NVSwitches requires.
func (n Node) NVSwitchWarnings(s gate.Selection) []string {
	selected := host.Set(s.All)
	goes := func(a pci.Address) bool { return selected[a] }
	switch Divided(n.Devices, goes) {
	case machine.SwitchesToHost:
		return []string{"NVSwitches remain with the host: " + NeedsFabric, "NVSwitches remain with the host: " + NeedsPartition}
	case machine.SwitchesToGuest:
		return []string{"a guest gets NVSwitches only if its flavor requests them: " + OfferSwitches(n.Devices, goes).String()}
	}
	return nil
}
