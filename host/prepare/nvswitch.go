package prepare

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// The service that programs NVSwitches which remain with the host, and its configuration
// (NVIDIA Fabric Manager User Guide, "Managing the Fabric Manager Service" and "Fabric Manager
// Config Options": FABRIC_MODE=1 is the shared NVSwitch mode).
const (
	fabricUnit   = "nvidia-fabricmanager.service"
	fabricConfig = "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
	fabricMode   = "FABRIC_MODE"
	sharedMode   = "1"
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
		ok, err := root.Exists(path.Join(dir, fabricUnit))
		if err != nil {
			return look(path.Join(dir, fabricUnit), f, err)
		}
		f.Installed = f.Installed || ok
	}
	// "systemctl enable" links the unit into the folder of the target that wants it.
	const enabledDir = "/etc/systemd/system"
	names, err := root.ReadDir(enabledDir)
	if err != nil && !host.IsAbsent(err) {
		return look(enabledDir, f, err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".wants") && !strings.HasSuffix(name, ".requires") {
			continue
		}
		units, err := root.ReadDir(path.Join(enabledDir, name))
		if err != nil {
			return look(path.Join(enabledDir, name), f, err)
		}
		f.Enabled = f.Enabled || slices.Contains(units, fabricUnit)
	}
	data, err := root.ReadFile(fabricConfig)
	if err != nil && !host.IsAbsent(err) {
		return look(fabricConfig, f, err)
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == fabricMode {
			f.Mode = strings.TrimSpace(value) // the last one counts
		}
	}
	return look(fabricConfig, f, nil)
}

// divided tells which side has the NVSwitches of a machine whose board GPUs are among some
// functions: "" where it has none, or no such GPU is among them.
func (n Node) divided(goes func(pci.Address) bool) NVSwitch {
	side := NVSwitch("")
	gpus := false
	for i := range n.Devices {
		d := &n.Devices[i]
		gpus = gpus || d.IsBoardGPU() && goes(d.Address)
		switch {
		case !d.IsNVSwitch():
		case goes(d.Address):
			return SwitchesToGuest
		default:
			side = SwitchesToHost
		}
	}
	if !gpus {
		return ""
	}
	return side
}

const (
	needsFabric    = "nvidia-fabricmanager must be installed, enabled and have " + fabricMode + "=" + sharedMode + " in " + fabricConfig
	needsPartition = "a partition must be activated before a guest with several GPUs starts, which Nova does not do: offer flavors with a single GPU, which work without NVLink"
)

// switchLines returns what Nova must be configured with to offer the NVSwitches among some
// functions: one device_spec for each, and an alias for each product.
func (n Node) switchLines(goes func(pci.Address) bool) []string {
	var specs, aliases []string
	for i := range n.Devices {
		d := &n.Devices[i]
		if !d.IsNVSwitch() || !goes(d.Address) || d.VendorID == nil || d.ProductID == nil {
			continue
		}
		kind := pci.TypePCI
		if d.DeviceType != nil {
			kind = *d.DeviceType
		}
		spec := fmt.Sprintf(`device_spec = {"vendor_id": "%s", "product_id": "%s"}`, d.VendorID, d.ProductID)
		if d.NVSwitchManager != nil { // ordinary adapters have the same ids
			spec = fmt.Sprintf(`device_spec = {"address": "%s"}`, d.Address)
		}
		alias := fmt.Sprintf(`alias = {"name": "NVSwitch", "vendor_id": "%s", "product_id": "%s", "device_type": "%s"}`, d.VendorID, d.ProductID, kind)
		if !slices.Contains(specs, spec) {
			specs = append(specs, spec)
		}
		if !slices.Contains(aliases, alias) {
			aliases = append(aliases, alias)
		}
	}
	return append(specs, aliases...)
}

// nvswitchWarnings says what the chosen side of the NVSwitches calls for.
func (n Node) nvswitchWarnings(s selection) []string {
	goes := func(a pci.Address) bool { return slices.Contains(s.all, a) }
	switch n.divided(goes) {
	case SwitchesToHost:
		return []string{"NVSwitches remain with the host: " + needsFabric, "NVSwitches remain with the host: " + needsPartition}
	case SwitchesToGuest:
		return []string{"Nova offers the NVSwitches only with lines of their own in [pci] of nova.conf: " + strings.Join(n.switchLines(goes), "; ")}
	}
	return nil
}

// fabric checks whether NVSwitches can serve the GPUs that go to guests.
func (v view) fabric() []host.Finding {
	switch {
	case v.phase == unseen:
		return na("what is recorded is unknown")
	case v.phase == unprepared:
		return na("nothing is recorded")
	case !v.Devices.seen():
		return v.Devices.blind()
	}
	n := Node{Devices: v.Devices.Value}
	goes := func(a pci.Address) bool { return v.recorded(a) != nil }
	switch n.divided(goes) {
	case SwitchesToGuest:
		f := pass("NVSwitches are assigned to guests")[0]
		f.Effect = "Nova offers them only with lines of their own in [pci] of nova.conf"
		f.Remedy = strings.Join(n.switchLines(goes), "; ")
		return one(f)
	case SwitchesToHost:
	default:
		return na("no GPU for guests is on a board with NVSwitches")
	}
	f, mode := v.Fabric.Value, v.Fabric.Value.Mode
	finding := host.Finding{Status: host.Fail, File: fabricConfig, Effect: "guests cannot use GPUs over NVLink, and CUDA may not start in them", Remedy: needsFabric}
	if v.Contract.Value.NVSwitch == "" {
		finding.Status = host.Warn // recorded before there was a choice: the refusals were lifted one by one
	}
	switch {
	case !v.Fabric.seen():
		return v.Fabric.blind()
	case !f.Installed:
		finding.File, finding.Seen = "", fabricUnit+" is not installed"
	case !f.Enabled:
		finding.File, finding.Seen, finding.Remedy = "", fabricUnit+" is not enabled", "systemctl enable --now "+fabricUnit
	case mode == "":
		finding.Seen = fabricConfig + " does not set " + fabricMode
	case mode != sharedMode:
		finding.Seen = fabricConfig + " sets " + fabricMode + "=" + mode
	default:
		done := pass("%s is enabled in shared NVSwitch mode", fabricUnit)[0]
		done.Effect = needsPartition
		return one(done)
	}
	return one(finding)
}
