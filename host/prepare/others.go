package prepare

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// kernelArguments is the File of what kernel arguments state.
const kernelArguments = "kernel arguments"

// stated returns every ids= of others, those among the kernel's arguments included.
func (n node) stated() []modprobe.Stated {
	stated := slices.Clone(n.Stated)
	for _, driver := range []string{machine.VFIO, machine.Stub} {
		for _, list := range n.foreignIDs(driver) {
			if ids := modprobe.AddIDs(nil, list); ids != nil {
				stated = append(stated, modprobe.Stated{File: kernelArguments, Driver: driver, IDs: ids})
			}
		}
	}
	return stated
}

// withOthers plans what --take-over removes and returns the node as it is then. Without it, it adds
// a warning for each setting of others that binds functions, and an error where a driver of the
// kernel itself would bind selected functions first.
func (n node) withOthers(w *Want) (node, error) {
	products := modprobe.AddIDs(nil, host.Map(w.contract.Functions, machine.Function.IDs)...)
	returned := n.returned(w.contract, products)
	if w.contract.TakeOver {
		if returned != nil {
			return n, errors.Join(host.Map(returned, func(r *gate.Refusal) error { return r })...)
		}
		var err error
		if w.takeOver, err = modprobe.TakeOver(n.edited, n.Stated, products); err != nil {
			return n, err
		}
		n.Conf, n.takenOver = n.Conf.Planned(w.takeOver), products
		n.Stated = slices.DeleteFunc(slices.Clone(n.Stated), func(s modprobe.Stated) bool { return len(s.Without(products)) == 0 })
		for i, s := range n.Stated {
			n.Stated[i].IDs = s.Without(products)
		}
	}
	if err := n.withDriverctl(w); err != nil {
		return n, err
	}
	var errs []error
	for _, s := range n.stated() {
		// gpustack's own setting overrides it, and has its ids.
		overridden := s.Driver == w.contract.Driver && (s.Number == 0 || strings.HasPrefix(s.File, modprobe.Dir+"/"))
		bound, staying := n.boundBy(s, w.contract)
		if n.isEffective(s) {
			warnings, refused := n.taken(s, staying)
			w.warnings, errs = append(w.warnings, warnings...), append(errs, refused...)
		}
		if len(bound) == 0 {
			continue
		}
		if s.File == kernelArguments && !overridden && n.anyKernel(func(m modprobe.Modules) bool { return m.Builtin(s.Driver) }) {
			errs = append(errs, n.wins(s, bound[0]))
			continue
		}
		not := "--none does not return them"
		if !overridden {
			not, w.others = "neither gpustack=off nor --none returns them", append(w.others, s)
		}
		remedy := "--take-over removes these ids there"
		switch {
		case len(s.Without(products)) == len(s.IDs):
			remedy = "remove these ids there"
		case returned != nil:
			others := host.Map(returned, func(r *gate.Refusal) pci.Address { return r.Address })
			remedy = "--take-over, with --device for " + pci.Joined(others, ", ") + ", removes these ids there"
		}
		w.warnings = append(w.warnings, fmt.Sprintf("%s: %s, set outside gpustack, binds %s at boot: %s; %s",
			s.Place(), s, pci.Joined(bound, ", "), not, remedy))
	}
	if !w.contract.Unsafe {
		w.warnings = append(w.warnings, n.unsafeByOthers()...)
	}
	return n, errors.Join(errs...)
}

// returned returns a refusal for each function that is not selected and that --take-over would
// return to the host, since ids of these products in settings of others have bound it.
func (n node) returned(c machine.Contract, products []string) (refusals []*gate.Refusal) {
	guests, returned := n.uses.ByGuests(), map[pci.Address]bool{}
	for _, s := range n.stated() {
		_, staying := n.boundBy(s, c)
		for _, a := range staying {
			d := n.Devices.At(a)
			if returned[a] || !n.IsNew(a) || n.driverctl[a] != "" || !pci.LeavesAlone(d.DriverName()) || !(modprobe.Stated{IDs: products}).Matches(d) {
				continue
			}
			returned[a] = true
			err := fmt.Errorf("is bound to %s by ids= in %s, which --take-over removes", d.DriverName(), s.Place())
			if g := guests[a]; g != nil {
				err = fmt.Errorf("%w: %s", err, g.Who())
			}
			hint := host.Textf("select it, too: --device %s; or leave out --take-over, and the line remains", a)
			refusals = append(refusals, gate.Refuse(a, host.WithCode(host.WithHint(err, hint), host.CodeOtherOwner, "")))
		}
	}
	return refusals
}

// isEffective reports whether a driver accepts an ids= of others: of modprobe's lines the last one
// is effective, unless the kernel arguments have ids. A driver that is built into a kernel gets all
// ids among its arguments.
func (n node) isEffective(s modprobe.Stated) bool {
	options := n.Conf.Options(s.Driver, "ids")
	i := slices.IndexFunc(options, func(o modprobe.Option) bool { return o.File == s.File && o.Number == s.Number })
	if i < 0 {
		return true
	}
	builtin := n.anyKernel(func(m modprobe.Modules) bool { return m.Builtin(s.Driver) })
	return len(n.foreignIDs(s.Driver)) == 0 && (builtin || i == len(options)-1)
}

// taken asks the gate, as if they were selected, for functions that remain with the host although
// an ids= of others matches them: the driver binds them at the next boot, and the initramfs of
// gpustack loads it before the drivers of the host. A function that may leave is a warning.
func (n node) taken(s modprobe.Stated, staying []pci.Address) (warnings []string, errs []error) {
	asked := slices.DeleteFunc(slices.Clone(staying), func(a pci.Address) bool {
		d := n.Devices.At(a)
		return d.IsBridge() || pci.LeavesAlone(d.DriverName())
	})
	refused := map[pci.Address]bool{}
	for _, r := range n.Decide(gate.Selection{Selected: asked, All: asked, Kind: gate.AtBoot}, n.uses, nil).Refused {
		if refused[r.Address] {
			continue
		}
		refused[r.Address] = true
		code, allow := r.Refusal()
		reason := fmt.Sprintf("%s; %s in %s matches it", r.Reason, s, s.Place())
		hint := "remove the ids of functions that remain with the host from " + s.Place()
		if allow != "" {
			hint += ", or let them leave: --device and --allow ADDRESS"
		}
		err := host.WithHint(errors.New(reason), hint)
		errs = append(errs, &gate.Refusal{Address: r.Address, Reason: reason, Absolute: true, Err: err, Code: code, File: s.File})
	}
	for _, a := range staying {
		if !refused[a] {
			warnings = append(warnings, fmt.Sprintf("%s remains with the host, but ids=%s of %s, set in %s outside gpustack, matches it",
				a, strings.Join(s.IDs, ","), s.Driver, s.Place()))
		}
	}
	return warnings, errs
}

// withDriverctl plans the removal of driverctl's files of recorded functions with --take-over, and
// warns of each without it: driverctl binds the function after gpustack.
func (n node) withDriverctl(w *Want) error {
	for _, f := range w.contract.Functions {
		name, ok := n.driverctl[f.Address]
		if !ok {
			continue
		}
		file := machine.DriverctlFile(f.Address)
		if w.contract.TakeOver {
			c, err := n.edited.Remove(file)
			if err != nil {
				return err
			}
			w.takeOver = append(w.takeOver, c)
			continue
		}
		w.warnings = append(w.warnings, fmt.Sprintf("%s: driverctl binds %s to %s at every boot, after gpustack, which is to bind it to %s; "+
			"--take-over removes the file",
			file, f.Address, name, f.Driver))
	}
	return nil
}

// wins returns the refusal of a function that a driver of the kernel itself binds.
func (n node) wins(s modprobe.Stated, a pci.Address) error {
	i := slices.IndexFunc(n.Kernels, func(m modprobe.Modules) bool { return m.Builtin(s.Driver) })
	err := fmt.Errorf("%[1]s is built into kernel %[2]s and binds it before other drivers: %[1]s.ids=%[3]s is among the kernel arguments",
		s.Driver, n.Kernels[i].Release, strings.Join(s.IDs, ","))
	return gate.Refuse(a, host.WithCode(host.WithHint(err, "--take-over removes the ids of selected functions there"), host.CodeOtherOwner, ""))
}

// boundBy returns the functions whose products a setting names: those of a contract, and those that
// remain with the host.
func (n node) boundBy(s modprobe.Stated, c machine.Contract) (bound, staying []pci.Address) {
	for i := range n.Devices {
		d := &n.Devices[i]
		if !s.Matches(d) {
			continue
		}
		if c.At(d.Address) != nil {
			bound = append(bound, d.Address)
		} else {
			staying = append(staying, d.Address)
		}
	}
	return bound, staying
}

// unsafeByOthers returns a warning for each line of others that lets guests have devices without
// interrupt remapping.
func (n node) unsafeByOthers() (warnings []string) {
	const parameter = "allow_unsafe_interrupts"
	warn := func(place, value string) {
		if slices.Contains([]string{"1", "y", "Y", "on"}, value) {
			warnings = append(warnings, fmt.Sprintf("%s sets %s=%s outside gpustack, and it remains: where interrupts are not remapped, guests may attack the host",
				place, parameter, value))
		}
	}
	for _, o := range n.Conf.Options("vfio_iommu_type1", parameter) {
		warn(fmt.Sprintf("%s:%d", o.File, o.Number), o.Value)
	}
	if !n.mixed() || !n.Recorded.Unsafe {
		for _, value := range n.Loader.Args().Values("vfio_iommu_type1." + parameter) {
			warn("a kernel argument", value)
		}
	}
	return warnings
}

// blacklistsOfOthers returns the settings of others that keep all drivers of the host from a GPU of
// a contract. The kernel argument gpustack=off does not disable them.
func (n node) blacklistsOfOthers(c machine.Contract) (settings []string) {
	for _, f := range c.Functions {
		d := n.Devices.At(f.Address)
		if d == nil || !d.IsGPU() {
			continue
		}
		drivers := n.drivers(d)
		lines := host.Filter(modprobe.Preventing(n.Conf, n.Loader.Args().String(), drivers...), isOfOthers)
		if slices.ContainsFunc(drivers, func(name string) bool {
			return !slices.ContainsFunc(lines, func(l modprobe.Line) bool { return l.Module == modprobe.Normal(name) })
		}) {
			continue
		}
		for _, line := range lines {
			text := line.String()
			if line.IsArgument() {
				text = fmt.Sprintf("kernel argument %s=%s", line.Command, line.Module)
			}
			settings = host.Union(settings, text)
		}
	}
	return settings
}

// dropTakenOver removes the ids of selected functions from kernel arguments of others.
func (n node) dropTakenOver(w *Want) {
	if n.takenOver == nil {
		return
	}
	for _, driver := range []string{machine.VFIO, machine.Stub} {
		name := driver + ".ids="
		lists := n.Loader.Args().Values(driver + ".ids")
		names := slices.ContainsFunc(lists, func(list string) bool {
			ids := modprobe.AddIDs(nil, list)
			return len(modprobe.Stated{IDs: ids}.Without(n.takenOver)) < len(ids)
		})
		if !names || slices.ContainsFunc(w.arguments.Exact, func(arg string) bool { return strings.HasPrefix(arg, name) }) {
			continue
		}
		n.setIDs(&w.arguments, driver, n.foreignIDs(driver))
	}
}

// stillBound returns a warning for each setting of others that binds recorded functions after
// --none.
func (n node) stillBound() (warnings []string) {
	if n.Recorded == nil {
		return nil
	}
	for _, s := range n.stated() {
		if bound, _ := n.boundBy(s, *n.Recorded); len(bound) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s: %s, set outside gpustack, binds %s at boot: remove it there to return them to the host",
				s.Place(), s, pci.Joined(bound, ", ")))
		}
	}
	return warnings
}
