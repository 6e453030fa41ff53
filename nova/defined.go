package nova

import (
	"errors"

	"gpustack/host/pci"
	"gpustack/nova/devspec"
)

// Defined is what configuration files define of the devices that flavors request.
type Defined struct {
	Aliases []Named
	Classes []Class
}

// Class is the resource class of the devices that a device_spec offers.
type Class struct {
	Name       string // as Placement knows it
	VendorID   pci.ID
	ProductID  pci.ID
	OneTimeUse bool   // the devices stay reserved after their first guest
	Where      string // FILE:LINE
}

// DefinedBy returns what the configurations of machines define, of every option name that some
// release reads. A device_spec without a vendor and a product defines no class.
//
// Errors: ErrAliasValue, ErrAlias.
func DefinedBy(sides []Side) (d Defined, err error) {
	var errs []error
	for _, side := range sides {
		found, malformed := side.named(Newest)
		d.Aliases, errs = append(d.Aliases, found...), append(errs, malformed...)
		for _, line := range devspec.Lines(side.Files, Newest.SpecNames()) {
			for _, spec := range line.Specs {
				vendor, vendorErr := pci.ParseID(spec.Vendor)
				product, productErr := pci.ParseID(spec.Product)
				if vendorErr != nil || productErr != nil {
					continue
				}
				class, _ := spec.Object["resource_class"].(string)
				d.Classes = append(d.Classes, Class{devspec.ResourceClass(class, vendor, product), vendor, product, spec.IsOn("one_time_use"), line.Where()})
			}
		}
	}
	return d, errors.Join(errs...)
}
