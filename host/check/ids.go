package check

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/checklist"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// effective is the setting that determines which products a driver claims.
type effective struct {
	driver string
	ids    []string
	file   string
	line   int // 0 for an argument of the kernel
}

func (h effective) String() string {
	if h.line == 0 {
		return "the kernel argument in " + h.file
	}
	return fmt.Sprintf("%s:%d", h.file, h.line)
}

// effective returns the effective ids= setting of a driver: the kernel uses the last of modprobe's
// lines, and its own arguments override them all.
func (v view) effective(driver string) effective {
	h := effective{driver: driver}
	for _, o := range v.Conf.Value.Options(driver, "ids") {
		h.ids, h.file, h.line = modprobe.AddIDs(nil, o.Value), o.File, o.Number
	}
	args, file := v.Running.Value, machine.CmdlineFile
	if entries := normal(v.Entries.Value); len(entries) > 0 {
		next := entries[max(slices.IndexFunc(entries, func(e boot.Entry) bool { return e.Boots }), 0)]
		args, file = next.Args, next.File
	}
	if values := args.Values(driver + ".ids"); len(values) > 0 {
		h.ids, h.file, h.line = modprobe.AddIDs(nil, values[len(values)-1]), file, 0
	}
	return h
}

// driverctl finds functions for guests that driverctl binds to another driver than the recorded one.
func (v view) driverctl() (findings []host.Finding) {
	for _, d := range v.Guests {
		name, ok := v.Driverctl.Value[d.Address]
		if f := v.Recorded(d.Address); !ok || f != nil && name == f.Driver || f == nil && pci.LeavesAlone(name) {
			continue
		}
		findings = append(findings, host.Finding{
			Status: host.Fail, File: machine.DriverctlFile(d.Address), Seen: fmt.Sprintf("driverctl binds %s to %s at every boot, after gpustack", d.Address, name),
			Effect: "its group cannot be assigned to a guest", Remedy: host.Textf("run %s, which removes the file", host.NewCommand("host prepare").Flag("take-over")),
		})
	}
	return findings
}

// ids finds ids= lines of VFIO drivers that are ignored, recorded products that no effective line
// names, and ids that also match functions which should stay with the host; it warns of functions
// that other files bind too ("prepared by other means").
func (v view) ids() []host.Finding {
	if !v.Stated.Seen() {
		return unread(v.Stated)
	}
	findings := append(v.byOtherMeans(), v.driverctl()...)
	if !v.Conf.Seen() {
		return append(findings, unread(v.Conf)...)
	}
	lines := 0
	for _, driver := range []string{machine.VFIO, machine.Stub} {
		h := v.effective(driver)
		options := v.Conf.Value.Options(driver, "ids")
		lines += len(options)
		if missing := v.notTaken(h); missing != nil {
			findings = append(findings, missing...)
			continue
		}
		for _, o := range options {
			if losing := without(modprobe.AddIDs(nil, o.Value), h.ids); len(losing) > 0 {
				findings = append(findings, host.Finding{
					Status: host.Warn, File: o.File, Line: o.Number,
					Seen:   fmt.Sprintf("ids=%[2]s is ignored here for %[1]s; %[3]s overrides it", driver, strings.Join(losing, ","), h),
					Effect: "these products remain with the host",
					Remedy: host.Plain("remove the line, or add its ids to the effective one"),
				})
			}
		}
		findings = append(findings, v.taken(h)...)
	}
	switch {
	case findings != nil:
		return findings
	case v.phase == unseen:
		return checklist.NA("what is recorded is unknown")
	case lines == 0:
		return checklist.Pass("no ids= line below %s", modprobe.Dir)
	}
	return checklist.Pass("all ids= lines are effective")
}

// byOtherMeans finds ids= of others that match functions for guests or, on a machine that is not
// prepared, any function. Lines of the recorded driver that gpustack's own line overrides are left
// out.
func (v view) byOtherMeans() (findings []host.Finding) {
	for _, s := range v.stated() {
		var matched, products []string
		ofConf := s.Number == 0 || slices.ContainsFunc(v.Conf.Value, func(l modprobe.Line) bool { return l.File == s.File }) // see taken
		for i := range v.Devices.Value {
			d := &v.Devices.Value[i]
			if !ofConf && s.Matches(d) {
				findings = append(findings, v.never(d, s.File, s.Number, s.String()+" matches")...)
			}
			if (v.Contract.Value == nil || v.Recorded(d.Address) != nil) && s.Matches(d) {
				matched = append(matched, d.Address.String())
				products = append(products, fmt.Sprintf("%s:%s", d.VendorID, d.ProductID))
			}
		}
		if matched != nil {
			remedy := host.Textf("%s removes the ids of selected functions there", host.NewCommand("host prepare").Flag("take-over"))
			if len(s.Without(products)) == len(s.IDs) {
				remedy = host.Plain("remove the ids there")
			}
			findings = append(findings, host.Finding{
				Status: host.Warn, File: s.File, Line: s.Number,
				Seen: fmt.Sprintf("prepared by other means: %s matches %s", s, strings.Join(matched, ", ")),
				Effect: fmt.Sprintf("the driver binds them at boot whatever gpustack records: gpustack=off and %s do not return them",
					host.NewCommand("host prepare").Flag("none")),
				Remedy: remedy,
			})
		}
	}
	return findings
}

// stated returns the ids= of others that may bind functions in addition to what is recorded.
func (v view) stated() []modprobe.Stated {
	recorded := host.Value(v.Contract.Value).Driver
	stated := slices.DeleteFunc(v.StatedByOthers(), func(s modprobe.Stated) bool {
		return s.Driver == recorded && slices.ContainsFunc(v.Conf.Value, func(l modprobe.Line) bool { return l.File == s.File })
	})
	for _, driver := range []string{machine.VFIO, machine.Stub} {
		if h := v.effective(driver); driver != recorded && h.file != "" && h.line == 0 {
			stated = append(stated, modprobe.Stated{File: h.file, Driver: driver, IDs: h.ids})
		}
	}
	return stated
}

// notTaken finds products that are recorded as bound by ids and are missing in the effective
// setting. It skips records with ids in the kernel arguments, which other checks compare, and
// records with a missing file, which the check "files" reports.
func (v view) notTaken(h effective) []host.Finding {
	c := v.Contract.Value
	if c == nil || c.Driver != h.driver || len(boot.Args(c.Arguments).Values(h.driver+".ids")) > 0 ||
		slices.ContainsFunc(v.Files, func(l machine.Look[string]) bool { return l.Seen() && l.Value == "" }) {
		return nil
	}
	missing := without(c.IDs(), h.ids)
	if len(missing) == 0 {
		return nil
	}
	f := host.Finding{
		Status: host.Fail, File: h.file, Line: h.line,
		Seen:   fmt.Sprintf("%s lacks ids=%s; %s overrides it", h.driver, strings.Join(missing, ","), h),
		Effect: "from the next boot on these functions remain with the host",
		Remedy: host.Textf("%s merges such a line into a file that sorts after it", host.NewCommand("host prepare")),
	}
	if h.file == "" {
		f.File, f.Remedy = modprobe.Dir, host.Textf("%s writes it again", host.NewCommand("host prepare"))
		f.Seen = fmt.Sprintf("%s lacks ids=%s; no line sets it", h.driver, strings.Join(missing, ","))
	}
	return []host.Finding{f}
}

// taken finds functions that the ids match although no option lets them leave the host, recorded or
// not, and others that should remain with the host: a driver binds each function of a product by its
// ids, also one that was added later.
func (v view) taken(h effective) []host.Finding {
	var findings []host.Finding
	for _, id := range h.ids {
		h := v.source(h, id)
		one := modprobe.Stated{IDs: []string{id}}
		for i := range v.Devices.Value {
			d := &v.Devices.Value[i]
			if !one.Matches(d) {
				continue
			}
			if never := v.never(d, h.file, h.line, fmt.Sprintf("ids=%s of %s also matches", id, h.driver)); never != nil {
				findings = append(findings, never...)
			} else if v.Contract.Value != nil && v.Recorded(d.Address) == nil && !v.movedTo[d.Address] {
				remedy := host.Textf("remove the id there and run %s", host.NewCommand("host prepare"))
				if slices.ContainsFunc(v.Contract.Value.Files, func(f machine.Hash) bool { return f.Name == h.file }) { // gpustack's own
					remedy = host.Textf("%s binds the recorded functions by their addresses", host.NewCommand("host prepare"))
				}
				findings = append(findings, host.Finding{
					Status: host.Warn, File: h.file, Line: h.line,
					Seen:   fmt.Sprintf("ids=%[2]s of %[1]s also matches %[3]s, which should stay with the host", h.driver, id, d.Address),
					Effect: "from the next boot on it is not available to the host", Remedy: remedy,
				})
			}
		}
	}
	return findings
}

// source returns an effective setting with the line of others from which gpustack's own one has an
// id, if there is such a line: host prepare would add the id again.
func (v view) source(h effective, id string) effective {
	for _, s := range v.StatedByOthers() {
		ofConf := slices.ContainsFunc(v.Conf.Value, func(l modprobe.Line) bool { return l.File == s.File })
		if ofConf && s.Driver == h.driver && len(s.Without([]string{id})) < len(s.IDs) {
			h.file, h.line = s.File, s.Number
		}
	}
	return h
}

// without returns the words that others does not contain.
func without(words, others []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(others, w) })
}

// never finds a function that ids match although no option lets it leave the host. matches says what
// matches it.
func (v view) never(d *pci.Device, file string, line int, matches string) []host.Finding {
	if !v.Needs.Seen() {
		return unread(v.Needs)
	}
	r := gate.New(v.Machine).Never(d.Address)
	if r == nil {
		return nil
	}
	return []host.Finding{{
		Status: host.Fail, File: file, Line: line, Seen: fmt.Sprintf("%s %s, which %s", matches, d.Address, r.Reason),
		Effect: "from the next boot on it is not available to the host",
		Remedy: host.Textf("remove the id there and run %s", host.NewCommand("host prepare")),
	}}
}
