package guest

import (
	"path"
	"strings"

	"gpustack/host/pci"
)

// netClass is the folder of network interfaces; each that a PCI function provides is linked to it
// as device (Linux, Documentation/ABI/testing/sysfs-class-net).
const netClass = "/sys/class/net"

// lower returns the functions of network interfaces that a file of a domain names. If one cannot be
// mapped, its function may be any network function of the host: all of them become doubtful, and
// other functions are judged as before.
func (o *observer) lower(interfaces []string, named string) (functions []pci.Address) {
	for _, name := range interfaces {
		function, err := o.below(path.Join(netClass, name, "device"))
		if err == nil && name != "" && !strings.Contains(name, "/") && name != ".." {
			functions = append(functions, function)
			continue
		}
		if o.report.Doubtful == nil {
			o.report.Doubtful = &Doubtful{Functions: o.networkFunctions()}
		}
		o.report.Doubtful.Because = append(o.report.Doubtful.Because, valid(named+": the function of network interface "+name+" cannot be determined"))
	}
	return functions
}

// networkFunctions returns the functions of the machine whose class begins with that of networks
// (PCI Code and ID Assignment Specification), or cannot be read.
func (o *observer) networkFunctions() []pci.Address {
	functions := []pci.Address{}
	names, _ := o.root.ReadDir(pciDevices) // if they cannot be listed, the report is incomplete
	for _, name := range names {
		a, err := pci.ParseAddress(name)
		if err != nil {
			continue
		}
		class, err := o.root.ReadHead(path.Join(pciDevices, a.String(), "class"), 16)
		if err != nil || strings.HasPrefix(string(class), "0x02") {
			functions = append(functions, a)
		}
	}
	return functions
}
