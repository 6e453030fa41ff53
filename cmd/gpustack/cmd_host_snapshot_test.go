package main

import (
	"testing"

	"gpustack/host/pci"
)

// TestChoicesToRead: a snapshot of many equal GPUs plans no more often than one of a single GPU.
func TestChoicesToRead(t *testing.T) {
	class, product, other := pci.Class(0x0302), pci.ID(0x20b0), pci.ID(0x20b2)
	vendor := pci.NVIDIA
	gpu := func(bus uint8, product *pci.ID) pci.Device {
		return pci.Device{Address: pci.Address{Bus: bus}, Class: &class, VendorID: &vendor, ProductID: product}
	}
	one := len(choicesToRead(pci.Devices{gpu(1, &product)}))
	var many pci.Devices
	for bus := range uint8(64) {
		many = append(many, gpu(bus, &product))
	}
	if got := len(choicesToRead(many)); got != one {
		t.Errorf("%d selections, not %d", got, one)
	}
	if got := len(choicesToRead(append(many, gpu(200, &other), gpu(201, nil)))); got != one+1 {
		t.Errorf("%d selections, not %d", got, one+1)
	}
}
