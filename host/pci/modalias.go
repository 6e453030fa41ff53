package pci

import (
	"fmt"
	"strconv"
)

// Modalias are the ids and the class that a function's modalias shows.
type Modalias struct {
	Vendor, Product, SubsystemVendor, Subsystem ID
	Class                                       Class
}

// modaliasForm is the form of a modalias with an X for each digit that differs (Linux, modalias_show
// in drivers/pci/pci-sysfs.c: "pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X"). Ids have 16 bits
// (struct pci_dev in include/linux/pci.h), so the first four of their digits are 0.
const modaliasForm = "pci:v0000XXXXd0000XXXXsv0000XXXXsd0000XXXXbcXXscXXiXX"

// ParseModalias parses the modalias of a function as the kernel writes it. A text in another form,
// such as a pattern of modules.alias or a text with lower-case digits, is an error.
func ParseModalias(s string) (Modalias, error) {
	digits := make([]byte, 0, len(modaliasForm))
	matches := len(s) == len(modaliasForm)
	for i := 0; matches && i < len(s); i++ {
		switch c := s[i]; {
		case modaliasForm[i] != 'X':
			matches = c == modaliasForm[i]
		case '0' <= c && c <= '9', 'A' <= c && c <= 'F':
			digits = append(digits, c)
		default:
			matches = false
		}
	}
	if !matches {
		return Modalias{}, fmt.Errorf("not the modalias of a PCI function: %q", s)
	}
	number := func(from int) uint16 {
		n, _ := strconv.ParseUint(string(digits[from:from+4]), 16, 16)
		return uint16(n)
	}
	return Modalias{
		Vendor: ID(number(0)), Product: ID(number(4)), SubsystemVendor: ID(number(8)), Subsystem: ID(number(12)),
		Class: Class(number(16)), // without the programming interface
	}, nil
}
