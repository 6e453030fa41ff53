package machine

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// ByOtherMeans returns a warning for each ids= in files of others that matches functions which are
// bound to a driver for passthrough and not recorded: gpustack neither verifies nor returns them.
func (m *Machine) ByOtherMeans(root host.Root) ([]string, error) {
	conf, err := modprobe.ReadConf(root, modprobe.RunFiles()...)
	if err != nil {
		return nil, err
	}
	stated, err := modprobe.ReadStated(root, conf)
	if err != nil {
		return nil, err
	}
	var warnings []string
	for _, s := range stated {
		matched := m.Devices.Value.Where(func(d *pci.Device) bool {
			return m.Recorded(d.Address) == nil && pci.LeavesAlone(d.DriverName()) && s.Matches(d)
		})
		if matched != nil {
			warnings = append(warnings, fmt.Sprintf("%s: %s binds %s: prepared by other means, which gpustack does not verify or undo",
				s.Place(), s, pci.Joined(matched, ", ")))
		}
	}
	return warnings, nil
}
