package pci

import (
	"fmt"
	"strconv"

	"gpustack/host"
)

// Modalias are the ids and the class that a function's modalias shows.
type Modalias struct {
	Vendor, Product, SubsystemVendor, Subsystem ID
	Class                                       Class
}

// modaliasForm matches a modalias (Linux, modalias_show in drivers/pci/pci-sysfs.c:
// "pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X"). Ids have 16 bits (struct pci_dev in
// include/linux/pci.h), so the first four of their digits are 0.
var modaliasForm = host.LazyRegexp(`^pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})sv0000([0-9A-F]{4})sd0000([0-9A-F]{4})` +
	`bc([0-9A-F]{2})sc([0-9A-F]{2})i[0-9A-F]{2}$`)

// ParseModalias parses the modalias of a function as the kernel writes it. A text in another form,
// such as a pattern of modules.alias or a text with lower-case digits, is an error.
func ParseModalias(s string) (Modalias, error) {
	m := modaliasForm().FindStringSubmatch(s)
	if m == nil {
		return Modalias{}, fmt.Errorf("not the modalias of a PCI function: %q", s)
	}
	number := func(digits string) uint16 {
		n, _ := strconv.ParseUint(digits, 16, 16) // the form has digits only
		return uint16(n)
	}
	return Modalias{
		Vendor: ID(number(m[1])), Product: ID(number(m[2])),
		SubsystemVendor: ID(number(m[3])), Subsystem: ID(number(m[4])),
		Class: Class(number(m[5] + m[6])), // without the programming interface
	}, nil
}
