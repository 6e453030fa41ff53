package novacheck

import (
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
)

// mediated checks the types of mediated devices (vGPUs) that nova-compute creates
// (nova/virt/libvirt/driver.py, _get_supported_vgpu_types): a type without addresses leaves only the
// first one, and an address of two types stops nova-compute.
func (c *checker) mediated(of side) {
	const section = "devices"
	s := of.Compute()
	found := s.Find(conf.Name{Section: section, Key: "enabled_mdev_types"}, conf.Name{Section: section, Key: "enabled_vgpu_types"})
	if len(found) == 0 {
		return
	}
	types := found[len(found)-1]
	names, owner := conf.ParseList(types.Value), map[string]string{}
	for _, name := range names {
		at := s.Find(conf.Name{Section: "mdev_" + name, Key: "device_addresses"}, conf.Name{Section: "vgpu_" + name, Key: "device_addresses"})
		if len(at) == 0 && len(names) > 1 {
			c.add(checkOption, host.Fail, types.File, types.Line(), fmt.Sprintf("%s of mediated devices has no device_addresses", name),
				"uses only the first type, "+names[0], host.Textf("set device_addresses in [mdev_%s]", name))
		}
		if len(at) == 0 {
			continue
		}
		last := at[len(at)-1]
		for _, address := range conf.ParseList(last.Value) {
			if other := owner[strings.ToLower(address)]; other != "" && other != name {
				c.add(checkOption, host.Fail, last.File, last.Line(), fmt.Sprintf("%s is an address of %s and of %s", address, other, name),
					"does not start nova-compute", host.Plain("leave the address to one type"))
			}
			owner[strings.ToLower(address)] = name
		}
	}
}
