package novacheck

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// Effects of device specs.
const (
	noStart       = "rejects this line: nova-compute does not start"
	rejectsSpec   = noStart + ", and nova-scheduler finds no host where it reads the line"
	neverReports  = "fails to update the resources of the host, and never reports its devices"
	noLiveMigrate = "rejects live_migratable with libvirt older than 10.0.0 or QEMU older than 8.2.2: nova-compute does not start"
)

// readSpecs returns the values of device_spec of a compute node, and adds their specs to those of
// all compute nodes.
func (c *checker) readSpecs(s side) []devspec.Line {
	lines := c.specLines(s.Compute())
	for _, l := range lines {
		for i, spec := range l.Specs {
			o := spec.Object
			if o["vendor_id"] == nil && o["product_id"] == nil && o["address"] == nil && o["devname"] == nil {
				c.addSpec(l, host.Warn, "a device_spec has neither ids nor an address", "offers every PCI device of the host to guests",
					host.Plain("add vendor_id and product_id"))
			}
			c.specs = append(c.specs, specAt{s, l, spec, l.First + i})
		}
	}
	return lines
}

// specLines returns the values of device_spec of a side, and adds findings for those that Nova
// rejects or misreads.
func (c *checker) specLines(s nova.Side) []devspec.Line {
	lines := devspec.Lines(s.Files, c.release.SpecNames())
	for _, l := range lines {
		for _, f := range nova.SpecFaults(l, c.release) {
			if f.IsTolerated {
				c.addSpec(l, host.Warn, f.Seen, "reads it as false", host.Plain(f.Remedy))
			} else {
				c.stop(checkDeviceSpec, l.File, l.Option.Line(), f.Seen, rejectsSpec, host.Plain(f.Remedy))
			}
		}
	}
	return lines
}

func (c *checker) addSpec(l devspec.Line, status host.Status, seen, effect string, remedy host.Text) {
	c.add(checkDeviceSpec, status, l.File, l.Option.Line(), seen, effect, remedy)
}

// checkSpecs checks the specs of a compute node against each other, the release, the hypervisor and
// the hardware: its own, or else that of the inventories.
func (c *checker) checkSpecs(s side, lines []devspec.Line) {
	nodes := c.of(s)
	if len(nodes) == 0 { // a devname is wrong whatever the hardware is
		nodes = []node{{}}
	}
	for _, l := range lines {
		for _, f := range nova.TagFaults(l, s.Compute().IsOn(nova.ReportInPlacement) && c.release >= nova.Zed, c.release) {
			c.stop(checkDeviceSpec, l.File, l.Option.Line(), f.Seen, neverReports, host.Plain(f.Remedy))
		}
	}
	if i := slices.IndexFunc(lines, func(l devspec.Line) bool {
		return slices.ContainsFunc(l.Specs, func(spec devspec.Spec) bool { return nova.HasLiveMigratable(spec, c.release) })
	}); i >= 0 {
		for _, part := range s.Hypervisor.LacksLiveMigration() {
			if !part.IsOld() {
				c.addSpec(lines[i], host.NA, fmt.Sprintf("a device_spec has live_migratable, but the version of %s is unknown", part.Name), noLiveMigrate,
					host.Textf("run %s on the compute node, or give the version with --%s", host.NewCommand("nova check"), strings.ToLower(part.Name)))
			}
		}
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		for _, f := range s.StartFaults(n.hardware, c.release) {
			status := host.Fail
			if n.Name != "" && f.OfHost {
				if status, f.Seen = n.guess(f.Seen, f.Line.File); n.isSure {
					f.Seen = "host " + n.Name + ": " + f.Seen
				}
			}
			switch {
			case seen[f.Line.Where()+f.Seen]:
			case status == host.Fail:
				c.stop(checkDeviceSpec, f.Line.File, f.Line.Option.Line(), f.Seen, noStart, f.Remedy)
			default:
				c.addSpec(f.Line, status, f.Seen, noStart, f.Remedy)
			}
			seen[f.Line.Where()+f.Seen] = true
		}
	}
	c.shadowed(s)
}

// shadowed finds specs without effect, because earlier specs match all of their devices.
func (c *checker) shadowed(s side) {
	specs, nodes := c.specsOf(s), c.of(s)
	devices := host.FlatMap(nodes, func(n node) []pci.Device { return n.Devices })
	all := devspec.NewHardware(devices, s.Interfaces)
	for i, it := range specs {
		by := broader(all, specs, i)
		if by < 0 && len(nodes) == 1 { // of several hosts, each may have a file of its own
			by = together(all, specs, i)
		}
		if by >= 0 {
			c.addShadowed(it, specs[by], all.Contains(it.spec, specs[by].spec))
		}
	}
}

// broader returns the index of a spec that matches all devices of spec i and is read first, or -1.
func broader(all devspec.Hardware, specs []specAt, i int) int {
	it := specs[i]
	by := slices.IndexFunc(specs[:i], func(s specAt) bool { return all.Contains(s.spec, it.spec) })
	if by >= 0 {
		return by
	}
	// Where the order of files is unknown, a later one may be read first.
	return slices.IndexFunc(specs, func(s specAt) bool {
		return nova.FileGroup(s.line.File) != nova.FileGroup(it.line.File) && all.Contains(s.spec, it.spec) && !all.Contains(it.spec, s.spec)
	})
}

// together returns the index of one of several specs that together match all devices of spec i that
// the hardware has, or -1: the first whose tags differ.
func together(all devspec.Hardware, specs []specAt, i int) int {
	by := -1
	for k := range all.Devices {
		d := &all.Devices[k]
		if !all.Matches(specs[i].spec, d) {
			continue
		}
		first := slices.IndexFunc(specs, func(s specAt) bool { return all.Matches(s.spec, d) })
		if first == i {
			return -1
		}
		if by < 0 && len(specs[i].spec.Lost(specs[first].spec)) > 0 {
			by = first
		}
	}
	return by
}

// addShadowed adds a finding of a spec that another one shadows. same says that each of them
// matches all devices of the other.
func (c *checker) addShadowed(it, by specAt, same bool) {
	differ := slices.Concat(it.spec.Lost(by.spec), by.spec.Lost(it.spec))
	slices.Sort(differ)
	differ = slices.Compact(differ)
	seen := fmt.Sprintf("spec %d %s is shadowed by spec %d %s (%s)", it.n, conf.Written(it.spec.Object), by.n, conf.Written(by.spec.Object), by.line.Where())
	move := host.Textf("move spec %d before spec %d, or remove it", it.n, by.n)
	if same { // in either order, the first one counts
		move = host.Textf("remove spec %d", it.n)
		if len(differ) > 0 {
			move = host.Textf("remove spec %d or spec %d", by.n, it.n)
		}
	}
	switch {
	case nova.FileGroup(it.line.File) != nova.FileGroup(by.line.File):
		// The actual order may be the intended one.
		if len(differ) > 0 {
			c.addSpec(it.line, host.Warn, seen+" if nova-compute reads that file first",
				"reads the files of nova.conf.d first or last, depending on how nova-compute is started", host.Plain("move both into one file"))
		}
	case len(differ) > 0:
		c.addSpec(it.line, host.Fail, seen, fmt.Sprintf("gives the devices the tags of spec %d; these differ: %s", by.n, strings.Join(differ, ", ")), move)
	default:
		c.addSpec(it.line, host.Warn, seen, fmt.Sprintf("never uses spec %d; the tags are the same", it.n), move)
	}
}
