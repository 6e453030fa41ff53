package pci

import "strings"

// IsRepresentor reports whether an interface with this name of its port (Linux,
// Documentation/ABI/testing/sysfs-class-net: phys_port_name) represents a port of an adapter's
// embedded switch: a VF, a subfunction or a host's function. Such an interface belongs to the
// function of the physical port, which has a name such as p0 (net/devlink/port.c,
// __devlink_port_phys_port_name_get). Up to Linux 5.0, mlx5 named the representor of a VF by the
// VF's number alone.
func IsRepresentor(portName string) bool {
	name := strings.TrimSpace(portName)
	if rest, ok := strings.CutPrefix(name, "c"); ok { // of another host's controller
		name = strings.TrimLeft(rest, digits)
	}
	function, ok := strings.CutPrefix(name, "pf")
	return ok && function != "" && strings.Contains(digits, function[:1]) || name != "" && strings.Trim(name, digits) == ""
}

const digits = "0123456789"
