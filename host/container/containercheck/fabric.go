package containercheck

import (
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// fabric checks that Fabric Manager runs on boards with NVSwitches.
func (v view) fabric() []host.Finding {
	if why := v.noDriver(); why != nil {
		return why
	}
	ours := func(d pci.Device) bool {
		return (d.IsNVSwitch() || d.IsBoardGPU()) && v.Contract.Value.At(d.Address) == nil
	}
	switch {
	case !slices.ContainsFunc(v.Devices.Value, func(d pci.Device) bool { return d.IsNVSwitch() }):
		return checklist.NA("the machine has no NVSwitches")
	case !slices.ContainsFunc(v.Devices.Value, ours):
		return checklist.NA("the board with NVSwitches is for guests")
	case v.Driver.Value.FabricManager:
		return checklist.Pass("%s runs", machine.FabricUnit)
	}
	return []host.Finding{{
		Status: host.Fail, Seen: machine.FabricUnit + " does not run: no process is nv-fabricmanager",
		Effect: "CUDA does not start on the GPUs of the board: " + notReady,
		Remedy: host.Plain("install nvidia-fabricmanager of the driver's version, then: systemctl enable --now " + machine.FabricUnit),
	}}
}
