package pci

import (
	"encoding/binary"
	"errors"
	"path"

	"gpustack/host"
)

// SwitchedOff returns the bridges above devices that have switched off a part of the access control
// which they support: the kernel switches all of it on at boot where the IOMMU is on (Linux,
// drivers/pci/pci.c, pci_std_enable_acs). It is in an extended capability (PCI Express Base
// Specification, Access Control Services): id 0x000d, with capabilities at 4 and control at 6; source
// validation is bit 0, redirection of requests and completions bits 2 and 3, upstream forwarding bit 4.
// The kernel shows extended capabilities to root only: bridges whose cannot be read are left out.
func (ds Devices) SwitchedOff(root host.Root, devices []Device) (bridges []Address, err error) {
	const id, parts, first, size = 0x000d, 0b11101, 0x100, 4096
	var above []Address
	for i := range devices {
		above = append(above, ds.Path(&devices[i])...)
	}
	var errs []error
	for _, a := range Unique(above) {
		name := path.Join(devicesDir, a.String(), "config")
		config, err := root.ReadHead(name, size)
		if err != nil && !host.IsAbsent(err) {
			errs = append(errs, host.OfFile(name, err))
		}
		for at, steps := first, 0; at >= first && at+8 <= len(config) && steps < size/8; steps++ {
			header := binary.LittleEndian.Uint32(config[at:])
			if header&0xffff == id {
				if supported, on := config[at+4], config[at+6]; supported&parts&^on != 0 {
					bridges = append(bridges, a)
				}
				break
			}
			at = int(header >> 20)
		}
	}
	return bridges, errors.Join(errs...)
}
