package nova

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
)

// installedRole returns the role that the units below root tell, and those units. The role is ""
// if there is no unit of Nova.
func installedRole(root host.Root) (role Role, from string, err error) {
	var found []string
	for _, r := range []Role{Controller, Compute} {
		units, err := packagedUnits(root, r.Programs()...)
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
	are := " is "
	if len(found) > 1 {
		are = " are "
	}
	return role, strings.Join(found, " and ") + are + "installed", nil
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

// untold is what a role was inferred from that is All because no option tells another one.
const untold = "no option tells which services read it"

// ErrNoRole means that nothing on a machine tells which services of Nova it runs.
var ErrNoRole = host.WithHint(errors.New("cannot determine which services of Nova this machine runs"), "give --role controller, compute or all")

// InferRole returns the role of the services that the machine below root runs, as nova check infers
// it from units, files and what is recorded for guests, and what it was inferred from. place is
// where the configuration is. recorded is as for [Observe].
//
// Errors: ErrNoRole; those of [ReadServices].
func InferRole(root host.Root, place Place, recorded Recorded) (role Role, from string, err error) {
	sides, err := place.services(root, recorded)
	if err != nil {
		return "", "", err
	}
	var reasons []string
	for _, s := range sides {
		switch {
		case s.RoleFrom == untold:
			return "", "", fmt.Errorf("%s: %w", s.Name(), ErrNoRole)
		case role == "" || role == s.Role:
			role = s.Role
		default:
			role = All
		}
		if !slices.Contains(reasons, s.RoleFrom) {
			reasons = append(reasons, s.RoleFrom)
		}
	}
	return role, strings.Join(reasons, "; "), nil
}

// services returns the services that read the configuration at a place: those of the machine, or
// those that read the file which the operator has named.
func (p Place) services(root host.Root, recorded Recorded) ([]Side, error) {
	if !p.Given {
		sides, _, err := ReadServices(root, "", "", recorded)
		return sides, err
	}
	names, err := Files(root, p.File, All)
	if err != nil {
		return nil, err
	}
	side, err := ReadSide(root, "", names)
	return []Side{side.guestsTell(recorded)}, err
}

// guestsTell returns the side with the role that functions recorded for guests tell, if its options
// alone tell its role: nova-compute runs there.
func (s Side) guestsTell(recorded Recorded) Side {
	if len(recorded.Selected) > 0 && (s.Role == Controller || s.RoleFrom == untold) {
		role, from := All, s.RoleFrom+", and functions are prepared for guests"
		if s.RoleFrom == untold {
			role, from = Compute, "functions are prepared for guests"
		}
		s.Role, s.RoleFrom = role, from
	}
	return s
}

// inferRole returns the role that the options of files tell, and what it was inferred from. It is
// All if they do not tell it.
func inferRole(files []conf.Source) (role Role, from string) {
	signs := map[Role]string{}
	for _, f := range files {
		if isPackaged(f.Name) {
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
	return All, untold
}
