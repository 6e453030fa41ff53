package iommu

import (
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Isolation returns warnings of what makes IOMMU groups no isolation: kernel arguments in file, which
// make the kernel report isolation that bridges do not have or switch theirs off (pcie_acs_override,
// which kernels with that patch have, as Proxmox's; Linux, Documentation/admin-guide/
// kernel-parameters.txt, pci=disable_acs_redir and config_acs), and bridges that switched it off after
// the groups were made.
func Isolation(file string, arguments []string, bridges []pci.Address) (warnings []host.Finding) {
	var splitting []string
	for _, arg := range arguments {
		// In names of parameters, '-' and '_' are equal.
		name, value, _ := strings.Cut(strings.NewReplacer(`"`, "", "-", "_").Replace(arg), "=")
		if name == "pcie_acs_override" || name == "pci" && slices.ContainsFunc(strings.Split(value, ","), func(o string) bool {
			return strings.HasPrefix(o, "disable_acs_redir=") || strings.HasPrefix(o, "config_acs=")
		}) {
			splitting = append(splitting, arg)
		}
	}
	warn := func(file, seen string, remedy host.Text) {
		warnings = append(warnings, host.Finding{Status: host.Warn, File: file, Seen: seen, Remedy: remedy,
			Effect: "IOMMU groups are no isolation: a guest can read and write the memory of another through their devices"})
	}
	if splitting != nil {
		warn(file, "kernel arguments change which devices can reach each other: "+strings.Join(splitting, " "),
			host.Plain("remove them and reboot, and assign whole groups, or assign these devices to guests that trust each other"))
	}
	if bridges != nil {
		warn("", "PCIe access control was switched off after boot at "+pci.Joined(bridges, " "),
			host.Plain("remove what switches it off (setpci, for GPUDirect or NCCL), and reboot"))
	}
	return warnings
}
