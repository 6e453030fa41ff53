package pci

import "fmt"

// Modalias are the ids and the class that a function's modalias shows.
type Modalias struct {
	Vendor, Product, SubsystemVendor, Subsystem ID
	Class                                       Class
}

// modaliasForm is the form of a modalias; an X stands for an upper-case hexadecimal digit (Linux,
// modalias_show in drivers/pci/pci-sysfs.c: "pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X"). Ids
// have 16 bits (struct pci_dev in include/linux/pci.h), so the first four of their digits are 0.
const modaliasForm = "pci:v0000XXXXd0000XXXXsv0000XXXXsd0000XXXXbcXXscXXiXX"

// ParseModalias parses the modalias of a function as the kernel writes it. A text in another form,
// such as a pattern of modules.alias or a text with lower-case digits, is an error.
func ParseModalias(s string) (Modalias, error) {
	if len(s) != len(modaliasForm) {
		return Modalias{}, errModalias(s)
	}
	var n [7]uint16 // in the order of the form
	field := -1
	for i := range len(s) {
		if modaliasForm[i] != 'X' {
			if s[i] != modaliasForm[i] {
				return Modalias{}, errModalias(s)
			}
			continue
		}
		digit, ok := upperDigit(s[i])
		if !ok {
			return Modalias{}, errModalias(s)
		}
		if modaliasForm[i-1] != 'X' {
			field++
		}
		n[field] = n[field]<<4 | digit
	}
	return Modalias{
		Vendor: ID(n[0]), Product: ID(n[1]), SubsystemVendor: ID(n[2]), Subsystem: ID(n[3]),
		Class: Class(n[4]<<8 | n[5]), // without the programming interface
	}, nil
}

func errModalias(s string) error {
	return fmt.Errorf("not the modalias of a PCI function: %q", s)
}

func upperDigit(c byte) (digit uint16, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint16(c - '0'), true
	case 'A' <= c && c <= 'F':
		return uint16(c-'A') + 10, true
	}
	return 0, false
}
