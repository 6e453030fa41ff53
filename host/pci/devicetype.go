package pci

import "slices"

// firstTuring is the lowest product id of the generation of NVIDIA GPUs that is the first with
// SR-IOV. Every product of the table of models below it is older (Kepler, Maxwell, Pascal, Volta),
// and has no such capability.
const firstTuring ID = 0x1e00

// TypeOfProduct returns the device type of all boards of an NVIDIA GPU, or "" if the product is not
// in the table of models or its type depends on the board and its firmware.
func TypeOfProduct(vendor, product ID) DeviceType {
	isModel := slices.ContainsFunc(models[:], func(m model) bool { return m.product == product })
	if vendor == NVIDIA && isModel && product < firstTuring {
		return TypePCI
	}
	return ""
}
