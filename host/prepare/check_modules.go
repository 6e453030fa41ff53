package prepare

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/initramfs"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// kernels looks whether each installed kernel has the drivers that hold functions.
func (v view) kernels() []host.Finding {
	if !v.Kernels.seen() {
		if errors.Is(v.Kernels.Err, ErrNoKernel) {
			return na("%v", withFile(host.ModulesDir, v.Kernels.Err.Error()))
		}
		return v.Kernels.blind()
	}
	drivers := []string{VFIO}
	if c := v.Contract.Value; c != nil {
		drivers = nil
		for _, f := range c.Functions {
			if !slices.Contains(drivers, f.Driver) {
				drivers = append(drivers, f.Driver)
			}
		}
	}
	var findings []host.Finding
	for _, m := range v.Kernels.Value {
		missing := slices.DeleteFunc(slices.Clone(drivers), func(d string) bool { return m.Loadable(d) || m.Builtin(d) })
		if len(missing) > 0 {
			findings = append(findings, host.Finding{
				Status: v.weight(m.Release), File: host.ModulesDir + "/" + m.Release,
				Seen:   fmt.Sprintf("kernel %s has no %s", m.Release, strings.Join(missing, ", ")),
				Effect: "booted with it, the host keeps all functions",
				Remedy: "install the rest of its modules, or remove that kernel",
			})
		}
	}
	if findings == nil {
		return pass("%s with %s", plural(len(v.Kernels.Value), "kernel"), strings.Join(drivers, ", "))
	}
	return findings
}

// weight is how bad it is that a kernel lacks something: a fail of the one that runs,
// of the one that is booted next, and of the only one.
func (v view) weight(release string) host.Status {
	entries := normal(v.Entries.Value)
	if release == text(v.Facts.Kernel) || len(v.Kernels.Value) == 1 || len(entries) > 0 && strings.HasSuffix(entries[0].Kernel, release) {
		return host.Fail
	}
	return host.Warn
}

// images looks whether each kernel's initramfs binds functions before the host's drivers come, and
// whether gpustack=off keeps the blacklist from applying.
func (v view) images() []host.Finding {
	return append(v.hooks(), v.blacklist()...)
}

// blacklist finds a blacklist of ours in /etc, which applies to each boot.
func (v view) blacklist() []host.Finding {
	if v.Contract.Value == nil || !v.Conf.seen() {
		return nil
	}
	var modules []string
	var first modprobe.Line
	for _, line := range v.Conf.Value {
		if line.Command == "blacklist" && slices.Contains(modprobe.OwnFiles(), line.File) {
			if modules == nil {
				first = line
			}
			modules = append(modules, line.Module)
		}
	}
	if modules == nil {
		return nil
	}
	return one(host.Finding{
		Status: host.Warn, File: first.File, Line: first.Number,
		Seen:   fmt.Sprintf("gpustack=off does not cover the blacklist here (%s)", strings.Join(modules, ", ")),
		Effect: "booted with gpustack=off, the host does not load these drivers by itself",
		Remedy: "gpustack host prepare moves the blacklist into the initramfs, once every kernel starts with one",
	})
}

// hooks looks whether the initramfs of each kernel has the recorded hook: those made before host
// prepare, or without the generator, do not.
func (v view) hooks() []host.Finding {
	switch {
	case v.phase == unprepared:
		return na("nothing is recorded that is to be in one")
	case v.phase == unseen:
		return na("what is recorded is not known")
	case errors.Is(v.Images.Err, errNoImages):
		return na("%v", v.Images.Err)
	case !v.Images.seen():
		return v.Images.blind()
	}
	var findings []host.Finding
	for _, i := range v.Images.Value {
		switch faults := faultsOf(i); {
		case len(faults) > 0:
			findings = append(findings, host.Finding{
				Status: v.weight(i.Kernel), File: i.File,
				Seen:   fmt.Sprintf("the initramfs of %s %s", i.Kernel, strings.Join(faults, "; ")),
				Effect: "booted with it, drivers of the host may be faster",
				Remedy: "make it anew: gpustack host prepare --rebuild",
			})
		case i.Err != nil:
			findings = append(findings, blind(i.File, i.Err))
		}
	}
	if findings == nil {
		return pass("%s with what is recorded", plural(len(v.Images.Value), "initramfs image"))
	}
	return findings
}

// faultsOf says what is wrong with an initramfs that could be looked into.
func faultsOf(i Image) []string {
	var missing, faults []string
	for _, err := range split(i.Err) {
		fault := strings.TrimPrefix(err.Error(), i.File+": ")
		switch {
		case errors.Is(err, initramfs.ErrMissing):
			fault = strings.TrimSuffix(fault, ": "+initramfs.ErrMissing.Error())
			missing = append(missing, strings.TrimSuffix(fault, " of "+i.Kernel))
		case errors.Is(err, initramfs.ErrDiffers), errors.Is(err, initramfs.ErrOrder):
			faults = append(faults, fault)
		}
	}
	if missing != nil {
		faults = append([]string{"has no " + strings.Join(missing, ", ")}, faults...)
	}
	return faults
}

// heeded is what tells a driver which products to take, in the end.
type heeded struct {
	driver string
	ids    []string
	file   string
	line   int // 0 for an argument of the kernel
}

func (h heeded) String() string {
	if h.line == 0 {
		return "the kernel's argument in " + h.file
	}
	return fmt.Sprintf("%s:%d", h.file, h.line)
}

// heeded finds it: of modprobe's lines the kernel keeps the last, and what its own
// arguments say comes after all of them.
func (v view) heeded(driver string) heeded {
	h := heeded{driver: driver}
	for _, o := range v.Conf.Value.Options(driver, "ids") {
		h.ids, h.file, h.line = addIDs(nil, o.Value), o.File, o.Number
	}
	args, file := v.Running.Value, cmdlineFile
	if entries := normal(v.Entries.Value); len(entries) > 0 {
		args, file = entries[0].Args, entries[0].File
	}
	if values := args.Values(driver + ".ids"); len(values) > 0 {
		h.ids, h.file, h.line = addIDs(nil, values[len(values)-1]), file, 0
	}
	return h
}

// ids looks for lines that tell a driver which products to take, and are not heeded,
// and for products that none takes or that are to stay.
func (v view) ids() []host.Finding {
	if !v.Conf.seen() {
		return v.Conf.blind()
	}
	var findings []host.Finding
	lines := 0
	for _, driver := range []string{VFIO, Stub} {
		h := v.heeded(driver)
		options := v.Conf.Value.Options(driver, "ids")
		lines += len(options)
		if missing := v.notTaken(h); missing != nil {
			findings = append(findings, missing...)
			continue
		}
		for _, o := range options {
			if losing := without(addIDs(nil, o.Value), h.ids); len(losing) > 0 {
				findings = append(findings, host.Finding{
					Status: host.Warn, File: o.File, Line: o.Number,
					Seen:   fmt.Sprintf("%s is told to take %s here, and does not heed it: what counts is %s", driver, strings.Join(losing, ","), h),
					Effect: "those products stay with the host",
					Remedy: "take the line out, or add its ids to the line that counts",
				})
			}
		}
		findings = append(findings, v.taken(h)...)
	}
	switch {
	case findings != nil:
		return findings
	case v.phase == unseen:
		return na("what is recorded is not known")
	case lines == 0:
		return pass("no line below %s tells a driver which products to take", modprobeDir)
	}
	return pass("each line that tells a driver which products to take is heeded")
}

// notTaken finds products that are recorded to be taken by ids, and are not. Those that
// are recorded among the kernel's arguments are looked for there, and what a file of
// ours that is gone has said by the check of files.
func (v view) notTaken(h heeded) []host.Finding {
	c := v.Contract.Value
	if c == nil || c.Driver != h.driver || len(boot.Args(c.Arguments).Values(h.driver+".ids")) > 0 ||
		slices.ContainsFunc(v.Files, func(l Look[string]) bool { return l.seen() && l.Value == "" }) {
		return nil
	}
	var want []string
	for _, f := range c.Functions {
		if f.By == ByIDs {
			want = addIDs(want, f.VendorID.String()+":"+f.ProductID.String())
		}
	}
	missing := without(want, h.ids)
	if len(missing) == 0 {
		return nil
	}
	f := host.Finding{
		Status: host.Fail, File: h.file, Line: h.line,
		Seen:   fmt.Sprintf("%s is to take %s, and what counts is %s", h.driver, strings.Join(missing, ","), h),
		Effect: "from the next boot on the host keeps those functions",
		Remedy: "gpustack host prepare takes such a line over, in a file that sorts after it",
	}
	if h.file == "" {
		f.File, f.Remedy = modprobeDir, "gpustack host prepare writes it anew"
		f.Seen = fmt.Sprintf("%s is to take %s, and no line tells it so", h.driver, strings.Join(missing, ","))
	}
	return one(f)
}

// taken finds functions that are to stay with the host, and that ids take from it.
func (v view) taken(h heeded) []host.Finding {
	if v.Contract.Value == nil {
		return nil
	}
	var findings []host.Finding
	for _, id := range h.ids {
		selector, err := pci.ParseSelector(id)
		if err != nil {
			continue // with a subsystem or class, which takes fewer
		}
		for i := range v.Devices.Value {
			if d := &v.Devices.Value[i]; selector.Matches(d) && v.recorded(d.Address) == nil && !v.hasMovedTo(d.Address) {
				findings = append(findings, host.Finding{
					Status: host.Warn, File: h.file, Line: h.line,
					Seen:   fmt.Sprintf("%s is to take %s, and so takes %s, which is to stay with the host", h.driver, id, d.Address),
					Effect: "from the next boot on the host does without it",
					Remedy: "take the id out there, and run gpustack host prepare",
				})
			}
		}
	}
	return findings
}

// without returns the words that are not among others.
func without(words, others []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(others, w) })
}
