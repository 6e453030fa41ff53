package selection

import (
	"fmt"
	"strings"

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

// SwitchLines returns the [pci] lines with which Nova offers the NVSwitches among the functions
// for which goes returns true: one device_spec for each, and an alias for each product.
func SwitchLines(devices pci.Devices, goes func(pci.Address) bool) []string {
	var specs, aliases []string
	listed := map[string]bool{}
	for i := range devices {
		d := &devices[i]
		if !d.IsNVSwitch() || !goes(d.Address) || d.VendorID == nil || d.ProductID == nil {
			continue
		}
		kind := pci.TypePCI
		if d.DeviceType != nil {
			kind = *d.DeviceType
		}
		spec := fmt.Sprintf(`device_spec = {"vendor_id": "%s", "product_id": "%s"}`, d.VendorID, d.ProductID)
		if d.NVSwitchManager.Known() { // ordinary adapters have the same ids, so the line must name the address
			spec = fmt.Sprintf(`device_spec = {"address": "%s"}`, d.Address)
		}
		alias := fmt.Sprintf(`alias = {"name": "NVSwitch", "vendor_id": "%s", "product_id": "%s", "device_type": "%s"}`, d.VendorID, d.ProductID, kind)
		if !listed[spec] {
			specs = append(specs, spec)
		}
		if !listed[alias] {
			aliases = append(aliases, alias)
		}
		listed[spec], listed[alias] = true, true
	}
	return append(specs, aliases...)
}

// NVSwitchWarnings returns the setup steps that the chosen side of the NVSwitches requires.
func (n Node) NVSwitchWarnings(s gate.Selection) []string {
	selected := pci.Set(s.All)
	goes := func(a pci.Address) bool { return selected[a] }
	switch Divided(n.Devices, goes) {
	case machine.SwitchesToHost:
		return []string{"NVSwitches remain with the host: " + NeedsFabric, "NVSwitches remain with the host: " + NeedsPartition}
	case machine.SwitchesToGuest:
		return []string{"Nova offers the NVSwitches only with lines of their own in [pci] of nova.conf: " + strings.Join(SwitchLines(n.Devices, goes), "; ")}
	}
	return nil
}
