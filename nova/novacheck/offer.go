package novacheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// prepared compares the specs of this machine's nova-computes with what host prepare has selected
// there, and with the drivers that the functions have.
func (c *checker) prepared() {
	here := host.Map(host.Filter(c.sides, func(s side) bool { return s.Role.Computes() && len(s.Devices) > 0 }),
		func(s side) nova.Side { return s.Side })
	if len(here) > 0 {
		m := here[0].ComputeNode // all sides with devices are this machine's
		c.findings = append(c.findings, Prepared(nova.NewOffered(c.release, here, m.Devices), m)...)
	}
}

// Prepared returns the findings about what the nova-computes of a machine offer: functions that
// host prepare has selected and that none of them offers, a failure if that is so for all, or that
// are not on the machine, addresses in device_spec without a function, and functions that are
// offered although a driver of the host has them. Those that containers have are found by [Run]
// alone.
func Prepared(o nova.Offered, m nova.ComputeNode) (findings []host.Finding) {
	add := func(status host.Status, file string, line int, seen, effect string, remedy host.Text) {
		findings = append(findings, finding(checkDeviceSpec, status, file, line, seen, effect, remedy))
	}
	command := o.Configure(m)
	configure := host.Textf("run %s", command)
	present := slices.DeleteFunc(slices.Clone(m.Selected), func(a pci.Address) bool { return !m.Has(a) })
	switch lacking := o.Lacks(present); {
	case len(lacking) == 0:
	case len(lacking) == len(present):
		add(host.Fail, o.Files[0], 0, fmt.Sprintf("host prepare has selected %s for guests, and no device_spec offers one of them: %s",
			host.Numbered(len(lacking), "function"), pci.Joined(lacking, ", ")), "gives no guest a device of this host (NoValidHost)", configure)
	default:
		add(host.Warn, o.Files[0], 0, fmt.Sprintf("no device_spec offers %s, which host prepare has selected for guests", pci.Joined(lacking, ", ")),
			"never assigns it to a guest", configure)
	}
	findings = append(findings, absent(o, m, command)...)
	of := func(functions []devspec.Reported) [][]devspec.Reported { // those of containers have findings of their own
		return nova.ByLine(slices.DeleteFunc(functions, func(f devspec.Reported) bool { return slices.Contains(m.Containers, f.Device.Address) }))
	}
	for _, functions := range of(o.OfHost(m.Selected, m.Needed)) {
		first, names, it := functions[0], withDrivers(functions), pronoun(functions)
		remedy := o.Withdraw(functions, m.Given)
		if prepare := toPrepare(functions); len(prepare) > 0 {
			remedy = host.Textf("%s, or %s", prepare, remedy)
		}
		if slices.Contains(m.Given, first.Device.Address) {
			remedy = host.Textf("reboot: %s shows whether the next boot binds %s for guests", host.NewCommand("host check"), it)
		}
		add(host.Fail, first.Line.File, first.Line.Option.Line(), fmt.Sprintf("a device_spec offers %s, and a driver of the host has %s", names, it),
			"assigns "+it+" to guests while the host may use "+it, remedy)
	}
	leaving := o.Of(m.Left)
	if m.Returning {
		leaving = append(leaving, slices.DeleteFunc(o.ReadyGPUs(), func(f devspec.Reported) bool { return slices.Contains(m.Given, f.Device.Address) })...)
	}
	for _, functions := range of(leaving) {
		first, it := functions[0], pronoun(functions)
		add(host.Fail, first.Line.File, first.Line.Option.Line(), fmt.Sprintf("a device_spec offers %s, and the next boot takes %s from guests",
			withDrivers(functions), it), "assigns "+it+" to guests that cannot start after the boot", o.Withdraw(functions, m.Given))
	}
	return findings
}

// absent finds functions that host prepare has selected and that the machine does not have, and
// device specs of one address that match no function. configure offers what is prepared.
func absent(o nova.Offered, m nova.ComputeNode, configure host.Command) (findings []host.Finding) {
	specs := host.Filter(o.Lacking, func(r devspec.Reported) bool { return !m.Awaits(r.Spec) })
	for _, a := range host.Filter(m.Selected, func(a pci.Address) bool { return !m.Has(a) }) {
		f := finding(checkDeviceSpec, host.Warn, o.Files[0], 0,
			fmt.Sprintf("%s, which host prepare has selected for guests, is not on this machine", a), "never assigns it to a guest",
			host.Textf("run %s, then %s", host.NewCommand("host prepare").Flag("remove", a.String()), configure))
		if i := slices.IndexFunc(specs, func(r devspec.Reported) bool { return r.Spec.Single == a.String() }); i >= 0 {
			f.File, f.Line = specs[i].Line.File, specs[i].Line.Option.Line()
			specs = slices.Delete(specs, i, i+1)
		}
		findings = append(findings, f)
	}
	for _, r := range specs {
		remedy := host.Plain("correct the address, or remove the device_spec")
		if m.Wrote(r.Line) {
			remedy = host.Textf("run %s", configure)
		}
		findings = append(findings, finding(checkDeviceSpec, host.Warn, r.Line.File, r.Line.Option.Line(),
			"no function of this machine matches the device_spec "+conf.Written(r.Spec.Object),
			"assigns to guests whatever function comes to that address and matches", remedy))
	}
	return findings
}

// Planned judges the planned files of a machine. The error has each finding of [Run] about them with
// which a service does not start, or fails whatever it is asked, with its line on disk. The warnings
// are, of a compute node, the findings about its hardware: what an alias does not get, products that
// no host has, functions that are offered although they are not ready for guests, and devices that
// nova-scheduler asks Placement for and nova-compute does not report. An alias that only fails the
// requests for it is an error if the plan turns pci_in_placement on, else a warning.
func Planned(r nova.Release, p nova.Plan) (warnings []host.Finding, err error) {
	c := newChecker(r, []nova.Side{p.Side}, p.Hosts)
	c.files()
	for _, f := range c.findings {
		switch isOwn := f.Effect == "Nova "+rejectsOwn; {
		case isOwn && p.AsksPlacement:
			c.stops = append(c.stops, f)
		case isOwn:
			warnings = append(warnings, f)
		}
	}
	var errs []error
	for i, f := range c.stops {
		if contains(c.stops[:i], f) {
			continue
		}
		err := fmt.Errorf("%s: %s: %s", p.OnDisk(f.File, f.Line), f.Seen, f.Effect)
		if f.Check == checkDeviceSpec || f.Check == checkFilters {
			err = host.WithCode(err, host.CodeNotStartable, "")
		}
		errs = append(errs, host.WithHint(err, f.Remedy))
	}
	if err := errors.Join(errs...); err != nil || !p.Side.Role.Computes() {
		return warnings, err
	}
	c.findings = nil
	c.prepared()
	c.offered()
	c.missing()
	c.placement()
	return append(warnings, slices.DeleteFunc(c.findings, func(f host.Finding) bool { return f.Status == host.NA })...), nil
}

// withDrivers returns functions with their drivers as a text.
func withDrivers(functions []devspec.Reported) string {
	return strings.Join(host.Map(functions, func(f devspec.Reported) string {
		return fmt.Sprintf("%s (%s)", f.Device.Address, f.Device.DriverName())
	}), ", ")
}

func pronoun(functions []devspec.Reported) string {
	if len(functions) > 1 {
		return "them"
	}
	return "it"
}

// toPrepare returns how GPUs get ready for guests, "" if none can: host prepare refuses those that
// have virtual functions, and other functions unless --allow names them.
func toPrepare(functions []devspec.Reported) host.Text {
	prepare := host.NewCommand("host prepare")
	for _, f := range functions {
		if f.Device.SRIOV.NumVFs != nil && *f.Device.SRIOV.NumVFs > 0 || !f.Device.IsGPU() || f.Device.IsManagementConsole() {
			continue
		}
		prepare = prepare.Flag("device", f.Device.Address.String())
	}
	if !prepare.HasFlag("device") {
		return nil
	}
	return host.Textf("run %s and reboot", prepare)
}

// missing finds device specs for products that the compute node does not have.
func (c *checker) missing() {
	for _, s := range c.sides {
		nodes := c.of(s)
		if len(nodes) == 0 {
			continue
		}
		where := "no host in the inventories has"
		if nodes[0].isSure && len(nodes) == 1 {
			where = nodes[0].Call() + " does not have"
		}
		devices := host.FlatMap(nodes, func(n node) []pci.Device { return n.Devices })
		for _, at := range c.specsOf(s) {
			spec := at.spec
			switch isProduct := spec.Vendor != devspec.Anything && spec.Product != devspec.Anything; {
			case spec.Faulty, !isProduct, s.Awaits(spec), slices.ContainsFunc(devices, func(d pci.Device) bool {
				return d.VendorID != nil && d.ProductID != nil && spec.MatchesIDs(d.VendorID.String(), d.ProductID.String())
			}):
			case !allList(hostsOf(nodes), spec.Vendor):
				c.addSpec(at.line, host.NA, fmt.Sprintf("a device_spec selects product %s:%s, which is no GPU, and an inventory lists GPUs only", spec.Vendor,
					spec.Product), "matches no device with it if the host has none", scanAll)
			default:
				c.addSpec(at.line, host.Warn, fmt.Sprintf("a device_spec selects product %s:%s, which %s", spec.Vendor, spec.Product, where),
					"matches no device with it", host.Textf("%s lists the devices of a host", host.NewCommand("host scan").Flag("all")))
			}
		}
	}
}

// keptFunctions finds functions that a spec of a compute node matches although they should remain
// with the host, beside identical functions for guests, or containers have them, on each machine to
// which its files may belong.
func (c *checker) keptFunctions(s side) {
	configure := host.Textf("run %s there", nova.Configure(nova.Compute))
	for _, at := range c.specsOf(s) {
		file, line := at.line.File, at.line.Option.Line()
		for _, n := range c.of(s) {
			if kept := n.WronglyOffered(n.hardware, at.spec); len(kept) > 0 {
				status, seen := n.guess(fmt.Sprintf("a device_spec also matches %s, which should remain with %s", pci.Joined(kept, ", "), n.Call()), file)
				remedy := configure
				if !nova.IsOwn(at.spec) {
					remedy = host.HintOf(nova.ErrKept)
				}
				c.add(checkDeviceSpec, status, file, line, seen, "assigns them to guests", remedy)
			}
			var both []string
			for i := range n.Devices {
				if d := &n.Devices[i]; slices.Contains(n.Containers, d.Address) && n.hardware.Matches(at.spec, d) {
					both = append(both, d.Address.String())
				}
			}
			if both == nil {
				continue
			}
			status, seen := n.guess(fmt.Sprintf("a device_spec matches %s, which containers of %s have", strings.Join(both, ", "), n.Call()), file)
			remedy := configure
			if !at.spec.Everywhere() { // nova configure leaves addresses that it has not written
				remedy = host.Plain("remove the address from the device_spec")
			}
			c.add(checkDeviceSpec, status, file, line, seen, "can assign to a guest what a container uses",
				host.Textf("%s, or take it from containers: %s", remedy, host.NewCommand("container prepare").Flag("remove", both[0])))
		}
	}
}
