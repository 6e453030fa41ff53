package nova

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Effects on nova-compute.
const (
	noStart       = "does not start nova-compute"
	noLiveMigrate = "does not start nova-compute with live_migratable below libvirt 10.0.0 and QEMU 8.2.2"
)

// Lowest versions with which nova-compute starts with live_migratable (nova/virt/libvirt/
// driver.py of 2025.1).
var (
	liveLibvirt = Version{10, 0, 0}
	liveQEMU    = Version{8, 2, 2}
)

// readSpecs reads the specs of a compute node, and finds those that cannot be read.
func (c *checker) readSpecs(s Side) []specLine {
	c.computes = true
	lines := c.release.specLines(s.Files)
	for _, l := range lines {
		if !l.isJSON {
			c.addSpec(l, host.Fail, "a device_spec is no JSON object", noStart, "write an object, or a list of them")
		}
		for _, fault := range l.faults {
			c.addSpec(l, host.Fail, fmt.Sprintf("a device_spec: %v", fault), noStart, "correct it")
		}
		for _, spec := range l.specs {
			o := spec.object
			if o["vendor_id"] == nil && o["product_id"] == nil && o["address"] == nil && o["devname"] == nil {
				c.addSpec(l, host.Warn, "a device_spec names neither ids nor an address", "offers every PCI device of the host", "name the product")
			}
			c.specs = append(c.specs, specAt{s, l.file, l.option.Line(), o})
		}
	}
	return lines
}

func (c *checker) addSpec(l specLine, status host.Status, seen, effect, remedy string) {
	c.add(checkDeviceSpec, status, l.file, l.option.Line(), seen, effect, remedy)
}

// checkSpecs checks the specs of a compute node against each other, the release, the
// hypervisor and the hardware: its own, or else that of the inventories.
func (c *checker) checkSpecs(s Side, lines []specLine) {
	machines, sure := c.machines(s)
	reports := s.isOn(reportInPlacement) && c.release >= zed
	for _, l := range lines {
		for _, spec := range l.specs {
			c.booleans(l, spec)
			c.liveMigratable(s, l, spec)
			if c.release >= r2025_2 && spec.isOn("one_time_use") && !reports {
				c.addSpec(l, host.Fail, "a device_spec has one_time_use, and report_in_placement is not set", noStart, "run gpustack nova configure --role compute --placement")
			}
		}
	}
	seen := map[string]bool{}
	for _, m := range machines {
		h := newHardware(m.Devices, s.Interfaces)
		var found []specFault
		if reports {
			found = h.reportFaults(lines)
		}
		for _, f := range append(found, c.wrongFunctions(h, lines)...) {
			status := host.Fail
			if m.Name != "" && !strings.Contains(f.seen, "devname") {
				if status, f.seen = guess(f.seen, f.line.file, m, sure); sure {
					f.seen = "host " + m.Name + ": " + f.seen
				}
			}
			if !seen[f.line.where()+f.seen] {
				c.addSpec(f.line, status, f.seen, noStart, "name functions by address, either the PF or its VFs, all VFs of one PF alike")
			}
			seen[f.line.where()+f.seen] = true
		}
	}
	if reports && len(machines) == 0 { // a name needs no hardware to be wrong
		for _, f := range newHardware(nil, nil).reportFaults(lines) {
			c.addSpec(f.line, host.Fail, f.seen, noStart, "name the function by address")
		}
	}
	c.shadowed(s, lines, machines)
}

// isOn reports whether a boolean tag is true.
func (s deviceSpec) isOn(tag string) bool {
	on, err := pythonBool(s.object[tag])
	return err == nil && on
}

// booleanSince are the releases that read a tag as a boolean.
var booleanSince = map[string]Release{"trusted": rocky, "remote_managed": yoga, "managed": r2025_1, "live_migratable": r2025_1, "one_time_use": r2025_2}

// booleans finds tags whose values are no booleans. Those that came first Nova reads as
// false then; with the others nova-compute does not start.
func (c *checker) booleans(l specLine, spec deviceSpec) {
	for _, tag := range booleanTags {
		value := spec.object[tag]
		_, err := pythonBool(value)
		if value == nil || err == nil || c.release < booleanSince[tag] {
			continue
		}
		effect := noStart
		if booleanSince[tag] < r2025_1 {
			effect = "reads it as false"
		}
		c.addSpec(l, host.Fail, fmt.Sprintf("a device_spec: %s %v", tag, err), effect, "write \"yes\" or \"no\"")
	}
}

// liveMigratable checks the hypervisor of specs with live_migratable.
func (c *checker) liveMigratable(s Side, l specLine, spec deviceSpec) {
	if c.release < r2025_1 || !spec.isOn("live_migratable") {
		return
	}
	for _, part := range []struct {
		name, flag   string
		have, lowest Version
	}{{"libvirt", "--libvirt", s.Hypervisor.Libvirt, liveLibvirt}, {"QEMU", "--qemu", s.Hypervisor.QEMU, liveQEMU}} {
		switch {
		case part.have == nil && c.unknown[part.name+s.Name()]:
		case part.have == nil:
			c.unknown[part.name+s.Name()] = true // once for all specs of the side
			c.addSpec(l, host.NA, fmt.Sprintf("a device_spec has live_migratable, and the version of %s is unknown", part.name), noLiveMigrate, "run this on the compute node, or give the version: "+part.flag)
		case part.have.before(part.lowest):
			c.addSpec(l, host.Fail, fmt.Sprintf("a device_spec has live_migratable, and %s is %s", part.name, part.have), noLiveMigrate, fmt.Sprintf("upgrade %s to %s, or remove live_migratable", part.name, part.lowest))
		}
	}
}

// wrongFunctions finds tags that Nova refuses on functions of a kind: remote_managed on
// PFs (devspec.py, _init_dev_details) and one_time_use on VFs.
func (c *checker) wrongFunctions(h hardware, lines []specLine) []specFault {
	var found []specFault
	for _, l := range lines {
		for _, spec := range l.specs {
			if c.release < yoga || !spec.isOn("remote_managed") || !h.pfs[spec.single] {
				continue
			}
			var pf, vf string // products
			for i := range h.devices {
				switch d := &h.devices[i]; {
				case d.ProductID == nil:
				case d.Address.String() == spec.single:
					pf = d.ProductID.String()
				case d.SRIOV.PF != nil && d.SRIOV.PF.String() == spec.single:
					vf = d.ProductID.String()
				}
			}
			// The address of a PF with the product of its VFs stands for the VFs.
			if spec.product != vf && (spec.product == anything || spec.product == pf || vf != "") {
				found = append(found, specFault{l, fmt.Sprintf("the device_spec %s has remote_managed, and %s is a PF", written(spec.object), spec.single)})
			}
		}
	}
	if c.release < r2025_2 {
		return found
	}
	for i := range h.devices {
		if r, ok := h.first(lines, &h.devices[i]); ok && h.devices[i].SRIOV.PF != nil && r.spec.isOn("one_time_use") {
			found = append(found, specFault{r.line, fmt.Sprintf("the device_spec %s has one_time_use, and %s is a VF", written(r.spec.object), h.devices[i].Address)})
		}
	}
	return found
}

// shadowed finds specs that never give a device its tags, because an earlier one matches
// all of the same devices.
func (c *checker) shadowed(s Side, lines []specLine, machines []Host) {
	type numbered struct {
		line specLine
		spec deviceSpec
		n    int
	}
	var specs []numbered
	for _, l := range lines {
		for i, s := range l.specs {
			specs = append(specs, numbered{l, s, l.first + i})
		}
	}
	var all hardware
	for _, m := range machines {
		all.devices = append(all.devices, m.Devices...)
	}
	all = newHardware(all.devices, s.Interfaces)
	add := func(by, it numbered) {
		differ := slices.Concat(it.spec.lost(by.spec), by.spec.lost(it.spec))
		slices.Sort(differ)
		differ = slices.Compact(differ)
		seen := fmt.Sprintf("spec %d %s is shadowed by spec %d %s (%s)", it.n, written(it.spec.object), by.n, written(by.spec.object), by.line.where())
		move := fmt.Sprintf("move spec %d before spec %d, or remove it", it.n, by.n)
		if all.contains(it.spec, by.spec) { // in either order, the first one counts
			move = fmt.Sprintf("remove spec %d", it.n)
			if len(differ) > 0 {
				move = fmt.Sprintf("remove spec %d or spec %d", by.n, it.n)
			}
		}
		switch {
		case fileGroup(it.line.file) != fileGroup(by.line.file):
			// One of the two orders is the one that is meant.
			if len(differ) > 0 {
				c.addSpec(it.line, host.Warn, seen+" if nova-compute reads that file first", "reads files of nova.conf.d first or last, depending on how it is started", "write both into one file")
			}
		case len(differ) > 0:
			c.addSpec(it.line, host.Fail, seen, fmt.Sprintf("gives the devices the tags of spec %d, which differ in %s", by.n, strings.Join(differ, ", ")), move)
		default:
			c.addSpec(it.line, host.Warn, seen, fmt.Sprintf("never uses spec %d; the tags are the same", it.n), move)
		}
	}
	// On a machine at hand, several specs together may shadow one.
	shadowedThere := func(i int) int {
		by := -1
		for k := range all.devices {
			d := &all.devices[k]
			if !all.matches(specs[i].spec, d) {
				continue
			}
			first := slices.IndexFunc(specs, func(s numbered) bool { return all.matches(s.spec, d) })
			if first == i {
				return -1
			}
			if by < 0 && len(specs[i].spec.lost(specs[first].spec)) > 0 {
				by = first
			}
		}
		return by
	}
	for i, it := range specs {
		by := slices.IndexFunc(specs[:i], func(s numbered) bool { return all.contains(s.spec, it.spec) })
		if by < 0 { // where the order of files is unknown, a later one may be read first
			by = slices.IndexFunc(specs, func(s numbered) bool {
				return fileGroup(s.line.file) != fileGroup(it.line.file) && all.contains(s.spec, it.spec) && !all.contains(it.spec, s.spec)
			})
		}
		if by < 0 && len(machines) == 1 { // of several hosts, each may have a file of its own
			by = shadowedThere(i)
		}
		if by >= 0 {
			add(specs[by], it)
		}
	}
}

// fileGroup is nova.conf.d for the files in it, and "" for others. Which group is read
// first depends on how a service is started: files of nova.conf.d come before the others
// where the command line names files, and after them where oslo.config finds them itself
// (oslo.config, cfg.py, find_config_files, find_config_dirs). Within a group the order is
// always the same.
func fileGroup(name string) string {
	if dir := path.Dir(name); path.Base(dir) == dropInDir {
		return dir
	}
	return ""
}
