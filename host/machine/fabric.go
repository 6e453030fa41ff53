package machine

import (
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// The service that programs NVSwitches which remain with the host, and its configuration
// (NVIDIA Fabric Manager User Guide, "Managing the Fabric Manager Service" and "Fabric Manager
// Config Options": FABRIC_MODE=1 is the shared NVSwitch mode).
const (
	FabricUnit   = "nvidia-fabricmanager.service"
	FabricConfig = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
	FabricMode   = "FABRIC_MODE"
	SharedMode   = "1"
)

// unitDirs are where systemd reads units (systemd.unit(5)).
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// Fabric is what a machine shows of NVIDIA's Fabric Manager.
type Fabric struct {
	Installed, Enabled bool
	Mode               string // "" where the file does not set it
}

// readFabric reads how the Fabric Manager is set up. It is absent where neither unit nor
// configuration is there.
func readFabric(root host.Root) Look[Fabric] {
	var f Fabric
	for _, dir := range unitDirs {
		ok, err := root.Exists(path.Join(dir, FabricUnit))
		if err != nil {
			return Saw(path.Join(dir, FabricUnit), f, err)
		}
		f.Installed = f.Installed || ok
	}
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
			f.Mode = strings.TrimSpace(value) // the last one counts
		}
	}
	return Saw(FabricConfig, f, nil)
}
