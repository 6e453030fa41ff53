package image

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/flavor"
)

// Check judges whether guests of a flavor, which [Seen] must have, can boot an image and use their
// GPUs. An image with os_type=windows is judged for Windows whatever the purpose.
func Check(purpose Purpose, s Seen) []host.Finding {
	if strings.EqualFold(s.has(osType), "windows") {
		purpose = ForWindows
	}
	c := &checker{Seen: s, purpose: purpose}
	c.image()
	c.properties()
	c.disk()
	c.ram()
	c.bars()
	c.windows()
	c.hypervisor()
	c.secureBoot()
	c.traits()
	return c.findings
}

type checker struct {
	Seen
	purpose  Purpose
	findings []host.Finding
}

func (c *checker) add(check string, status host.Status, seen, effect string, remedy host.Text) {
	c.findings = append(c.findings, host.Finding{Check: check, Status: status, Seen: seen, Effect: effect, Remedy: remedy})
}

// set returns the command that changes the image.
func (c *checker) set() host.Command {
	name := cmp.Or(c.Given, c.Image.Name)
	if name == "" || name[0] == '-' || strings.ContainsAny(name, " '\"$\\") {
		name = c.Image.ID
	}
	return host.NewCommand("image set").Arg(name).Flag("profile", string(c.purpose))
}

// setBy returns the command that sets a property.
func (c *checker) setBy(name, value string) host.Text {
	return host.Textf("%s", c.set().Flag("property", name+"="+value))
}

// image checks whether Nova can boot from the image at all.
func (c *checker) image() {
	text := "status " + c.Image.Status
	if c.Image.Hidden {
		text += "; hidden: lists of images do not show it"
	}
	if c.Image.Protected {
		text += "; protected from deletion"
	}
	switch c.Image.Status {
	case "active":
		c.add(checkImage, host.Pass, text, "", nil)
	case "deactivated":
		c.add(checkImage, host.Fail, text, "Nova cannot download it: guests fail", host.Textf("openstack image set --activate %s", c.Image.ID))
	default:
		c.add(checkImage, host.Fail, text, "Nova boots only from active images",
			host.Textf("wait if it is being uploaded: openstack image show %s; otherwise delete it, and create it with its data", c.Image.ID))
	}
}

// properties checks the values of properties: Nova rejects a boot from an image with one that it
// does not know, and ignores properties of newer releases. It names the properties that it does not
// know itself.
func (c *checker) properties() {
	before, names := len(c.findings), slices.Sorted(maps.Keys(c.Image.Properties))
	for _, name := range names {
		value := c.Image.Properties[name]
		if fault := invalid(name, value); fault != "" {
			c.add(checkProperties, host.Fail, fault, "Nova rejects guests of this image", c.setBy(name, ""))
		}
		if since := known[name].since; c.Newest < since {
			c.add(checkProperties, host.Warn, fmt.Sprintf("%s=%s: the cloud has microversion %s, and the property is of a release with %s", name, value,
				c.Newest, since),
				"Nova ignores it", c.setBy(name, ""))
		}
	}
	for _, name := range []string{secureBoot, numaPolicy, multiqueue, lockedMemory} { // nova/virt/hardware.py rejects others that differ
		inImage, ok := c.Image.Properties[name]
		inFlavor, there := c.Flavor.ExtraSpecs[extraSpec(name)]
		differ := inImage != inFlavor
		if name == multiqueue || name == lockedMemory {
			differ = isTrue(inImage) != isTrue(inFlavor)
		}
		if ok && there && differ {
			c.add(checkProperties, host.Fail, fmt.Sprintf("%s=%s, but flavor %s has %s=%s", name, inImage, c.Flavor.Name, extraSpec(name), inFlavor),
				"Nova rejects guests of this flavor and image", c.setBy(name, inFlavor))
		}
	}
	locked, where := c.effective(lockedMemory)
	if _, sized := c.effective(memPageSize); isTrue(locked) && sized == "" && c.Newest >= known[lockedMemory].since { // get_locked_memory_constraint
		c.add(checkProperties, host.Fail, where+" is "+locked+", and hw:mem_page_size is not set", "Nova rejects guests of this flavor and image",
			host.Plain("use a flavor with hw:mem_page_size"))
	}
	isKnown := func(name string) bool { _, is := known[name]; return is }
	if len(c.findings) == before {
		c.add(checkProperties, host.Pass, fmt.Sprintf("Nova accepts the properties that gpustack checks: %d", len(host.Filter(names, isKnown))), "", nil)
	}
	if others := host.Filter(names, func(name string) bool { return !isKnown(name) && readByNova().MatchString(name) }); len(others) > 0 {
		c.add(checkProperties, host.NA, "not checked: "+strings.Join(others, ", "), "Nova rejects guests if it does not accept the value of one", nil)
	}
}

// disk compares the size of the disk with the flavor. Nova's API compares only the size of the file
// and min_disk with it (nova/compute/api.py, _validate_flavor_image_nostatus); a larger disk fails
// on the host (nova/virt/libvirt/imagebackend.py, verify_base_size).
func (c *checker) disk() {
	f, i := c.Flavor, c.Image
	gib, known := i.DiskGiB()
	before := len(c.findings)
	disk := fmt.Sprintf("the disk of the image has %d GiB", gib)
	if !known {
		disk = "the size of the image's disk is unknown: Glance has no virtual_size"
	}
	if !known && i.MinDisk == 0 {
		c.add(checkDisk, host.Warn, disk,
			"guests fail on the host if it is larger than the flavor's disk",
			host.Textf("'qemu-img info FILE' shows it; then: %s", c.set().Flag("min-disk", "GIB")))
	} else if i.MinDisk < gib {
		c.add(checkDisk, host.Warn, fmt.Sprintf("min_disk is %d GiB, and %s", i.MinDisk, disk),
			"Nova accepts flavors with smaller disks, and their guests fail on the host", host.Textf("%s", c.set()))
	}
	switch {
	case f.Disk == 0:
		c.add(checkDisk, host.Warn, "flavor "+f.Name+" has a disk of 0 GiB",
			"the disk of a guest is as large as the image's, and only administrators may boot guests without a volume",
			host.Plain("boot from a volume, or use a flavor with a disk"))
	case f.Disk < i.MinDisk:
		c.add(checkDisk, host.Fail, fmt.Sprintf("flavor %s has a disk of %d GiB, and min_disk is %d GiB", f.Name, f.Disk, i.MinDisk), "Nova rejects guests that do not boot from a volume", larger)
	case known && f.Disk < gib:
		c.add(checkDisk, host.Fail, fmt.Sprintf("flavor %s has a disk of %d GiB, and %s", f.Name, f.Disk, disk),
			"Nova accepts guests, as it compares only the file with the flavor; unless they boot from a volume, they fail on the host", larger)
	}
	if len(c.findings) == before {
		c.add(checkDisk, host.Pass, fmt.Sprintf("%s; min_disk is %d GiB, and flavor %s has %d GiB", disk, i.MinDisk, f.Name, f.Disk), "", nil)
	}
}

var larger = host.Textf("boot from a volume, or use a flavor with a larger disk: %s", host.NewCommand("flavor create").Arg("ALIAS:COUNT").Flag("disk", "SIZE"))

func (c *checker) ram() {
	f, least := c.Flavor, c.Image.MinRAM
	if f.RAM < least {
		c.add(checkRAM, host.Fail, fmt.Sprintf("flavor %s has %s of RAM, and min_ram is %s", f.Name, flavor.Size(f.RAM, flavor.MiB), flavor.Size(least, flavor.MiB)),
			"Nova rejects guests", host.Textf("use a flavor with more RAM: %s", host.NewCommand("flavor create").Arg("ALIAS:COUNT").Flag("ram", "SIZE")))
		return
	}
	c.add(checkRAM, host.Pass, fmt.Sprintf("min_ram is %s, and flavor %s has %s", flavor.Size(least, flavor.MiB), f.Name, flavor.Size(f.RAM, flavor.MiB)), "", nil)
}

// bars checks whether firmware and addresses of the guests are enough for the memory regions of
// their devices.
func (c *checker) bars() {
	if _, asks := c.Flavor.ExtraSpecs[nova.RequestKey]; !asks {
		c.add(checkBARs, host.Fail, "flavor "+c.Flavor.Name+" requests no devices", "guests have no GPU",
			host.Textf("%s shows the flavors that request devices", host.NewCommand("flavor list")))
		return
	}
	if len(c.Hosts) == 0 {
		c.add(checkBARs, host.NA, "without --inventory, the memory regions of the devices are unknown", "guests may not see GPUs with large regions", scanAgain)
		return
	}
	all, err := c.spans()
	switch {
	case err != nil:
		c.add(checkBARs, host.Fail, err.Error(), "Nova rejects guests", host.Textf("%s plans the request", host.NewCommand("flavor create")))
		return
	case !c.isX86():
		c.add(checkBARs, host.NA, "the rules are for x86, and the image is for another architecture", "", nil)
		return
	case len(all) == 0:
		c.add(checkBARs, host.NA, "no host in the inventories has the devices of flavor "+c.Flavor.Name, "",
			host.Plain("name their product: --alias NAME=VENDOR:PRODUCT"))
		return
	}
	if names := hostsOf(all, func(p span) bool { return p.unknown }); names != "" {
		c.add(checkBARs, host.NA, "the inventory of "+names+" lacks memory regions of devices", "guests may not see GPUs with large regions", scanAgain)
	}
	needs := c.regionNeeds()
	if p := biggest(all); needs == nil && p != nil {
		c.add(checkBARs, host.Pass, fmt.Sprintf("the largest memory region has %s: every machine type and firmware is enough", size(p.largest)), "", nil)
	}
	met := true
	for _, n := range needs {
		met = met && n.met
		c.need(n)
	}
	if len(needs) > 0 && met {
		c.add(checkBARs, host.Pass, needs[0].why+": machine type, firmware and addresses are as needed", "", nil)
	}
	if len(needs) > 0 {
		c.window(all)
	}
}

// need adds a finding for a need that is not met.
func (c *checker) need(n need) {
	if n.met {
		return
	}
	has, where := c.effective(n.name)
	seen := n.name + " is not set"
	if where != "" {
		seen = where + " is " + has
	}
	if n.check == checkBARs {
		seen += "; " + n.why
	}
	status, set := n.status, c.set()
	if n.check == checkBARs {
		set = set.Flag("inventory", "FILE")
	}
	remedy := host.Textf("%s", set)
	if reason := c.unsupported(n.name, n.value); reason != "" {
		// The operator can do nothing about the image.
		status, remedy = host.Warn, host.Plain("it is not set by image set: "+reason)
	}
	c.add(n.check, status, seen, n.effect, remedy)
}

// window checks whether the regions of all devices of a guest fit where its firmware places them.
func (c *checker) window(all []span) {
	mode, _ := c.effective(addressMode)
	for _, p := range all {
		if p.largest < largeBAR {
			continue
		}
		bits := 0
		switch {
		case mode == "emulate":
			given, _ := c.effective(addressBits)
			bits, _ = strconv.Atoi(given) // properties reports a value that is no number
		case mode == "passthrough" && p.host.Machine != nil && p.host.Machine.CPU.AddressBits != nil:
			bits = *p.host.Machine.CPU.AddressBits
		}
		const slack = 2 // regions are aligned to their size
		needed := slack * p.total
		switch room := windowOf(bits); {
		case bits == 0 && mode == "passthrough":
			c.add(checkBARs, host.NA, "host "+p.host.Name+": the size of the processor's addresses is unknown",
				"whether the regions of all devices of a guest fit is not checked",
				host.Textf("run on the compute node: %s", host.NewCommand("host scan").Flag("machine").Flag("o", "json").Elsewhere()))
		case bits == 0:
		case needed > room:
			c.add(checkBARs, host.Fail, fmt.Sprintf("host %s: the devices of a guest need %s of addresses, and firmware has %s of %d bits", p.host.Name,
				size(needed), size(room), bits),
				"the guest does not see GPUs that do not fit", host.Plain("request fewer devices, or use hosts whose processors have larger addresses"))
		default:
			c.add(checkBARs, host.Pass, fmt.Sprintf("host %s: the devices of a guest need %s of addresses, and firmware has %s of %d bits", p.host.Name,
				size(needed), size(room), bits),
				"", nil)
		}
	}
}

func (c *checker) windows() {
	if c.purpose != ForWindows {
		c.add(checkWindows, host.NA, "not an image of Windows", "", nil)
		return
	}
	met := true
	for _, n := range c.windowsNeeds() {
		met = met && n.met
		c.need(n)
	}
	if met {
		c.add(checkWindows, host.Pass, "os_type, disk and network are as Windows guests need them", "", nil)
	}
}

// hypervisor checks whether KVM is hidden where that does not help: it is needed by GeForce cards
// with drivers before R465 on Windows alone (Error 43), and hides kvm-clock from Linux.
func (c *checker) hypervisor() {
	where := ""
	for _, spec := range []string{"hw:hide_hypervisor_id", "hide_hypervisor_id"} { // the latter up to Ussuri
		if isTrue(c.Flavor.ExtraSpecs[spec]) {
			where = "flavor " + c.Flavor.Name + " has " + spec
		}
	}
	remedy := host.Textf("%s shows the flavors; one without --hide-hypervisor", host.NewCommand("flavor list"))
	if isTrue(c.has(hideKVM)) {
		where, remedy = "the image has "+hideKVM, c.setBy(hideKVM, "")
	}
	if where == "" {
		c.add(checkHypervisor, host.Pass, "KVM is not hidden from guests", "", nil)
		return
	}
	text, helps := c.hiding(strings.EqualFold(c.has(osType), "windows"))
	if helps {
		c.add(checkHypervisor, host.Pass, where+": "+text, "", nil)
		return
	}
	c.add(checkHypervisor, host.Warn, where, text, remedy)
}

func (c *checker) secureBoot() {
	value, where := c.effective(secureBoot)
	if value != "required" {
		c.add(checkSecureBoot, host.Pass, "secure boot is not required", "", nil)
		return
	}
	// nova/virt/libvirt/driver.py, _check_secure_boot_support
	firmware, machine := c.has(firmwareType), c.has(machineType)
	if firmware != "uefi" {
		c.add(checkSecureBoot, host.Fail, where+"=required without hw_firmware_type=uefi", "the guest fails on the host", c.setBy(firmwareType, "uefi"))
	}
	if c.isX86() && !strings.Contains(machine, "q35") {
		status := host.Fail
		if machine == "" { // [libvirt] hw_machine_type of the host decides
			status = host.Warn
		}
		c.add(checkSecureBoot, status, where+"=required without hw_machine_type=q35", "the guest fails on the host", c.setBy(machineType, "q35"))
	}
	c.add(checkSecureBoot, host.Warn, where+"=required", "the guest loads only signed modules, and NVIDIA's driver that DKMS builds is not signed",
		host.Plain("use an image with a signed driver, or with an enrolled key (docs/images.md)"))
}

// traits checks whether a compute node has the traits that image and flavor demand.
func (c *checker) traits() {
	before := len(c.findings)
	for _, name := range []string{addressMode, viommuModel, secureBoot} {
		value, where := c.effective(name)
		trait := demand(name, &value)
		if where == "" || trait == "" {
			continue
		}
		demands, effect := "demands", "Nova finds no host (NoValidHost)"
		if !scheduled(name) {
			demands, effect = "needs", "the guest fails on the host"
		}
		remedy := host.Plain("use another flavor")
		if where == name {
			remedy = c.setBy(name, "")
		}
		nodes, err := c.Traits.of(trait)
		switch {
		case err != nil:
			c.add(checkTraits, host.NA, fmt.Sprintf("%s=%s %s trait %s: %v", where, value, demands, trait, err), effect+" if no compute node has it",
				host.Textf("openstack resource provider list --required %s", trait))
		case len(nodes) == 0:
			c.add(checkTraits, host.Fail, fmt.Sprintf("%s=%s %s trait %s, which no compute node reports", where, value, demands, trait), effect,
				remedy)
		default:
			c.add(checkTraits, host.Pass, fmt.Sprintf("%s=%s: trait %s is reported by %s", where, value, trait, someOf(nodes)), "", nil)
		}
	}
	if len(c.findings) == before {
		c.add(checkTraits, host.Pass, "image and flavor demand no trait", "", nil)
	}
}
