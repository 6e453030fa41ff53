package nova

import (
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
)

// installedRole returns the role that the units below root tell, and those units. The role is ""
// if there is no unit of Nova.
func installedRole(root host.Root) (role Role, from string, err error) {
	var found []string
	for _, r := range []Role{Controller, Compute} {
		units, err := packagedUnits(root, r)
		if err != nil {
			return "", "", err
		}
		if len(units) == 0 {
			continue
		}
		found = append(found, units[0]+".service")
		if role != "" {
			r = All
		}
		role = r
	}
	if role == "" {
		return "", "", nil
	}
	return role, strings.Join(found, " and ") + isOrAre(len(found)) + "installed", nil
}

func isOrAre(n int) string {
	if n == 1 {
		return " is "
	}
	return " are "
}

// roleSigns are options that only services of one role use, except [database], which many
// installations set everywhere, and those of packages' defaults. Keys "" stand for any option of
// the section.
var roleSigns = []struct {
	role Role
	name conf.Name
}{
	{Compute, conf.Name{Section: "pci", Key: "device_spec"}},
	{Compute, conf.Name{Section: "pci", Key: "passthrough_whitelist"}},
	{Compute, conf.Name{Section: "DEFAULT", Key: "pci_passthrough_whitelist"}},
	{Compute, ReportInPlacement},
	{Compute, conf.Name{Section: "DEFAULT", Key: "compute_driver"}},
	{Compute, conf.Name{Section: "libvirt", Key: "virt_type"}},
	{Controller, conf.Name{Section: "filter_scheduler", Key: "enabled_filters"}},
	{Controller, conf.Name{Section: "DEFAULT", Key: "scheduler_default_filters"}},
	{Controller, conf.Name{Section: "api_database", Key: "connection"}},
	{Controller, PCIInPlacement},
}

// inferRole returns the role that the options of files tell, and what it was inferred from. It is
// All if they do not tell it.
func inferRole(files []conf.Source) (role Role, from string) {
	signs := map[Role]string{}
	for _, f := range files {
		if isPackaged(f.Name) || f.File == nil {
			continue
		}
		for _, sign := range roleSigns {
			if signs[sign.role] == "" && len(f.File.Find(sign.name)) > 0 {
				signs[sign.role] = sign.name.String()
			}
		}
	}
	switch controls, computes := signs[Controller], signs[Compute]; {
	case controls != "" && computes != "":
		return All, controls + " and " + computes + " are set"
	case controls != "":
		return Controller, controls + " is set"
	case computes != "":
		return Compute, computes + " is set"
	}
	return All, "no option tells which services read it"
}
