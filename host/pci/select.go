package pci

import (
	"fmt"
	"slices"
	"strings"
)

// Selector selects one function by its address, or all functions of a product by vendor and
// product id ("10de:11b4").
type Selector struct {
	address         Address
	vendor, product ID
	byAddress       bool
}

// ParseSelector parses ADDRESS or VENDOR:PRODUCT.
func ParseSelector(s string) (Selector, error) {
	address, err := ParseGiven(s)
	if err == nil || strings.Contains(s, ".") {
		return Selector{address: address, byAddress: true}, err
	}
	vendor, product, _ := strings.Cut(s, ":")
	v, vendorErr := ParseID(vendor)
	p, productErr := ParseID(product)
	if vendorErr != nil || productErr != nil {
		return Selector{}, fmt.Errorf("neither an address nor VENDOR:PRODUCT: %q", s)
	}
	return Selector{vendor: v, product: p}, nil
}

// Address returns the address of a selector that selects one function by its address.
func (s Selector) Address() (a Address, ok bool) {
	return s.address, s.byAddress
}

// Matches reports whether the selector selects d.
func (s Selector) Matches(d *Device) bool {
	if s.byAddress {
		return d.Address == s.address
	}
	return d.IsVendor(s.vendor) && d.ProductID != nil && *d.ProductID == s.product
}

func (s Selector) String() string {
	if s.byAddress {
		return s.address.String()
	}
	return s.vendor.String() + ":" + s.product.String()
}

// ClassPrefix is a class, or all classes of one base class: "0302" stands for 3D controllers, "03"
// for all display controllers.
type ClassPrefix struct {
	class Class
	base  bool // compare only the base class
}

// ParseClassPrefix parses two or four hexadecimal digits.
func ParseClassPrefix(s string) (ClassPrefix, error) {
	digits := strings.TrimPrefix(s, "0x")
	base := len(digits) == 2
	if base {
		digits += "00"
	}
	class, err := ParseClass(digits)
	if len(digits) != 4 || err != nil {
		return ClassPrefix{}, fmt.Errorf("not a class of two or four hexadecimal digits: %q", s)
	}
	return ClassPrefix{class: class, base: base}, nil
}

// matches reports whether d is known to be of the class.
func (p ClassPrefix) matches(d *Device) bool {
	if d.Class == nil {
		return false
	}
	if p.base {
		return d.Class.base() == p.class.base()
	}
	return *d.Class == p.class
}

// Filter selects functions that match at least one value of each kind that has any. The zero
// Filter selects all.
type Filter struct {
	Vendors []ID
	Classes []ClassPrefix
	Devices []Selector
}

// IsZero reports whether the filter selects every function.
func (f Filter) IsZero() bool {
	return len(f.Vendors)+len(f.Classes)+len(f.Devices) == 0
}

// Matches reports whether the filter selects a function.
func (f Filter) Matches(d *Device) bool {
	return anyOf(f.Vendors, d.IsVendor) &&
		anyOf(f.Classes, func(p ClassPrefix) bool { return p.matches(d) }) &&
		anyOf(f.Devices, func(s Selector) bool { return s.Matches(d) })
}

// GPUs returns a function that reports whether a device is one of the GPUs that a machine has for
// guests or containers: those of NVIDIA or, on a machine without any, those of other vendors, without
// those of management controllers. Virtual functions are among them.
func GPUs(devices []Device) func(*Device) bool {
	nvidia := slices.ContainsFunc(devices, func(d Device) bool { return d.IsNVIDIAGPU() })
	return func(d *Device) bool { return d.IsNVIDIAGPU() || !nvidia && d.IsGPU() && !d.IsManagementConsole() }
}

// Candidates returns a function that reports whether a device is one of the GPUs of the machine, in
// the slot or IOMMU group of one, or an NVSwitch.
func Candidates(devices []Device) func(*Device) bool {
	isGPU := GPUs(devices)
	groups, slots := map[int]bool{}, map[Address]bool{}
	for i := range devices {
		if d := &devices[i]; isGPU(d) {
			slots[d.Address.Card()] = true
			if d.IOMMUGroup != nil {
				groups[*d.IOMMUGroup] = true
			}
		}
	}
	return func(d *Device) bool {
		return slots[d.Address.Card()] || d.IsNVSwitch() || d.IOMMUGroup != nil && groups[*d.IOMMUGroup]
	}
}

// anyOf reports whether one of the values matches, or there are none.
func anyOf[T any](values []T, matches func(T) bool) bool {
	return len(values) == 0 || slices.ContainsFunc(values, matches)
}
