package machine

import (
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// The service that programs the NVSwitches which remain with the host, and its configuration
// (NVIDIA Fabric Manager User Guide, "Managing the Fabric Manager Service" and "Fabric Manager
// Config Options": FABRIC_MODE=1 is the shared NVSwitch mode).
const (
	FabricUnit   = "nvidia-fabricmanager.service"
	FabricConfig = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
	FabricMode   = "FABRIC_MODE"
	SharedMode   = "1"
)

// Fabric is the setup of NVIDIA's Fabric Manager on a machine.
type Fabric struct {
	Installed, Enabled bool
	Mode               string // "" if the file does not set it
}

// readFabric reads the setup of the Fabric Manager. It is absent if neither its unit nor its
// configuration exists.
func readFabric(root host.Root) Look[Fabric] {
	var f Fabric
	unit, err := root.FindUnit(FabricUnit)
	if err != nil {
		return Saw(unit, f, err)
	}
	f.Installed = unit != ""
	// "systemctl enable" links the unit into the folder of the target that wants it.
	const enabledDir = "/etc/systemd/system"
	names, err := root.ReadDir(enabledDir)
	if err != nil && !host.IsAbsent(err) {
		return Saw(enabledDir, f, err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".wants") && !strings.HasSuffix(name, ".requires") {
			continue
		}
		units, err := root.ReadDir(path.Join(enabledDir, name))
		if err != nil {
			return Saw(path.Join(enabledDir, name), f, err)
		}
		f.Enabled = f.Enabled || slices.Contains(units, FabricUnit)
	}
	data, err := root.ReadFile(FabricConfig)
	if err != nil && !host.IsAbsent(err) {
		return Saw(FabricConfig, f, err)
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == FabricMode {
			f.Mode = strings.TrimSpace(value) // the last line applies
		}
	}
	return Saw(FabricConfig, f, nil)
}
