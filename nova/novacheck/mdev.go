package novacheck

import (
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// mediated checks the types of mediated devices (vGPUs) that nova-compute creates
// (nova/virt/libvirt/driver.py, _get_supported_vgpu_types): a type without addresses leaves only the
// first one, and an address of two types stops nova-compute.
func (c *checker) mediated(of side) {
	last := func(section, key, oldSection, oldKey string) (at nova.Placed, values []string) {
		for _, at = range of.Compute().Find(conf.Name{Section: section, Key: key}, conf.Name{Section: oldSection, Key: oldKey}) {
			values = conf.ParseList(at.Value)
		}
		return at, values
	}
	types, names := last("devices", "enabled_mdev_types", "devices", "enabled_vgpu_types")
	owner := map[string]string{}
	for _, name := range names {
		at, addresses := last("mdev_"+name, "device_addresses", "vgpu_"+name, "device_addresses")
		if len(addresses) == 0 && len(names) > 1 {
			c.add(checkOption, host.Fail, types.File, types.Line(), fmt.Sprintf("%s of mediated devices has no device_addresses", name),
				"uses only the first type, "+names[0], host.Textf("set device_addresses in [mdev_%s]", name))
		}
		for _, address := range addresses {
			if other := owner[strings.ToLower(address)]; other != "" && other != name {
				c.add(checkOption, host.Fail, at.File, at.Line(), fmt.Sprintf("%s is an address of %s and of %s", address, other, name),
					"does not start nova-compute", host.Plain("leave the address to one type"))
			}
			owner[strings.ToLower(address)] = name
		}
	}
}
