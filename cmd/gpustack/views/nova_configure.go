package views

import (
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/selection"
	"gpustack/nova"
	"gpustack/operate/cloud"
)

// NovaConfigure is the output of nova configure (docs/json.md).
type NovaConfigure struct {
	Report
	// the release of Nova: "mitaka" to "2026.2", also for a newer one, with a warning
	Release nova.Release `json:"release"`
	Role    nova.Role    `json:"role"` // which services the files are written for
	// what the role was inferred from; null if --role gives it
	RoleFrom string       `json:"role_from" null:"zero"`
	Changes  []FileChange `json:"changes"` // the files that change, in order
	Aliases  []nova.Alias `json:"aliases"` // the aliases, as they are written
	// the device specs, as they are written on a compute node
	Specs []nova.Spec `json:"device_specs"`
	// aliases and device specs that gpustack has not written and that stay, with file and line
	Kept []string `json:"kept"`
	// aliases and device specs that --remove-alias removes, and options that the release ignores,
	// with file and line
	Removed []string `json:"removed"`
	// filters that are removed because the release does not have them
	Dropped  []string       `json:"dropped_filters"`
	Services []nova.Service `json:"services"` // the services of restart
	// ComputesReport is, when pci_in_placement is turned on, "verified" if every compute node with
	// these devices has them in Placement, "asserted" if --computes-report says so and it could not
	// be verified; otherwise null.
	ComputesReport *string `json:"computes_report"`
	// Rendered is the options for a deployment tool: with --render, and where such a tool generates
	// the files; otherwise null.
	Rendered *string `json:"rendered"`

	companions []string // products that share a card or an IOMMU group with a GPU, and are not offered
	reporting  bool     // the plan is for a compute node that is to report to Placement
}

// NewNovaConfigure returns the report of a plan. The common part gets the warnings of c, of what is
// wanted and of the plan.
func NewNovaConfigure(common Report, c cloud.Configuration, want nova.Want, plan nova.Plan) NovaConfigure {
	r := NovaConfigure{
		Report: common, Release: c.Release, Role: c.Role, RoleFrom: c.RoleFrom, Changes: FileChanges(plan.Files),
		Aliases: want.Aliases, Specs: want.Specs, Kept: plan.Kept,
		Removed: plan.Removed, Dropped: plan.Dropped, Services: plan.Restart,
		companions: companionsOf(c.Hosts), reporting: c.Placement && c.Role != nova.Controller,
	}
	r.Changed = len(r.Changes) > 0
	r.Warnings = append(r.Warnings, slices.Concat(c.Warnings, want.Warnings, plan.Warnings)...)
	r.Restart = host.Map(plan.Restart, serviceName)
	var needs []host.Need
	if len(r.Restart) > 0 {
		needs = append(needs, host.NeedRestart)
	}
	r.then(host.NewCommand("nova check"), needs...)
	return r
}

// companionsOf returns the names of the companions of the GPUs of hosts, by product.
func companionsOf(hosts []nova.Host) (names []string) {
	for _, h := range hosts {
		for _, d := range selection.Companions(h.Devices) {
			names = append(names, IDs(d)+" ("+functionKind(d)+")")
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Summary returns the sentence that ends the plan, above the question.
func (r NovaConfigure) Summary() string {
	restart := host.FlatMap(r.Services, nova.Service.Names)
	specs := either(r.Role.Computes(), term.Some(len(r.Specs), "device spec", ""), "") // of the files of this machine
	return term.Sentence(
		term.Join(", ", term.Some(len(r.Aliases), "alias", ""), specs), term.Some(len(r.Removed), "line", " removed"),
		filesText(r.Changes, "changed", "new"), after("to restart: ", strings.Join(restart, ", ")))
}

// Print prints the plan as text.
func (r NovaConfigure) Print(u *term.UI) {
	u.Printf("Nova %s, %s%s\n", r.Release, r.Role, after(", because ", term.Printable(r.RoleFrom)))
	if !r.Changed || u.Full { // the diff has them too
		r.printAliases(u)
	}
	printLines(u, "removed", r.Removed)
	printLines(u, "kept", r.Kept)
	if !r.Changed {
		u.Printf("\nnothing to do: the files are as planned\n")
		return
	}
	if len(r.Dropped) > 0 {
		u.Printf("\nremoved, because %s does not have these filters: %s\n", r.Release, term.Printable(strings.Join(r.Dropped, ", ")))
	}
	printDiffs(u, r.Changes)
	printRestarts(u, r.Services)
	isVerified := host.Value(r.ComputesReport) == cloud.ReportVerified
	printNotes(u, either(r.Role.Computes() && len(r.Specs) > 0, companionsText(r.companions), ""),
		either(r.reporting, "report_in_placement cannot be turned off again on this host", ""),
		either(isVerified, "verified: every compute node with these devices reports them to Placement", ""))
}

func serviceName(s nova.Service) string { return s.Name }

// printLines prints lines below a title, and nothing without lines.
func printLines(u *term.UI, title string, lines []string) {
	if len(lines) > 0 {
		u.Printf("\n%s:\n%s\n", title, term.Printable(strings.Join(lines, "\n")))
	}
}

// printAliases prints the aliases of a plan.
func (r NovaConfigure) printAliases(u *term.UI) {
	tableBelow(u, []string{"ALIAS", "ID", "TYPE"}, host.Map(r.Aliases, func(a nova.Alias) []string {
		return []string{a.Name, a.VendorID.String() + ":" + a.ProductID.String(), orDash(a.DeviceType)}
	}))
}

// printRestarts prints the services to restart with the commands that restart them on the machine.
func printRestarts(u *term.UI, services []nova.Service) {
	switch {
	case len(services) == 0:
		return
	case len(services) == 1 && services[0].Command != nil:
		u.Printf("\nrestart %s: %s\n", services[0].Name, term.Printable(*services[0].Command))
		if services[0].Interrupts != "" {
			u.Printf("  interrupts %s\n", services[0].Interrupts)
		}
		return
	}
	u.Printf("\nrestart these services, on compute nodes first, nova-api last:\n")
	unknown := host.Filter(services, func(s nova.Service) bool { return s.Command == nil })
	tableWith(u, "COMMAND", len(unknown) < len(services), []string{"SERVICE", "COMMAND", "INTERRUPTS"}, host.Map(services, func(s nova.Service) []string {
		return []string{s.Name, Text(s.Command), s.Interrupts}
	}))
	if len(unknown) > 0 {
		u.Printf("no unit was found that runs %s\n", host.Listed(host.Map(unknown, serviceName), "or"))
	}
}

// printRendered prints the options for a deployment tool, below comments that name the file in
// which the tool reads them. Those of kolla-ansible are in the text.
func printRendered(u *term.UI, form nova.Form, c cloud.Configuration, text string) {
	switch form {
	case nova.FormTripleO:
		u.Printf("# For TripleO: an environment file of \"openstack overcloud deploy -e FILE\".\n" +
			"# Compute and Controller stand for the roles of the nodes. Each list replaces that of other environment\n" +
			"# files: copy their lines, and those of nova.conf, into it.\n")
	case nova.FormRHOSO:
		if c.Role.Controls() {
			u.Printf("# For RHOSO: the spec is a part of the OpenStackControlPlane.\n")
		}
		if c.Role.Computes() {
			u.Printf("# For RHOSO: the ConfigMap is listed in dataSources of the nodes' OpenStackDataPlaneService for Nova.\n")
		}
	}
	if c.Role.Controls() && len(c.SchedulerFiles.Files) == 0 {
		u.Printf("# No file of nova-scheduler was read. Where enabled_filters is set already, append to that list: this\n" +
			"# list replaces it, and filters that keep tenants apart would be lost.\n")
	}
	u.Raw(text)
}

// RenderNova prints the options for a deployment tool, and the file in which it reads them.
func RenderNova(u *term.UI, common Report, form nova.Form, c cloud.Configuration, want nova.Want) error {
	if c.Unread != nil {
		u.Warn("aliases that are in use on this machine are unknown: " + c.Unread.Error())
	}
	want.Warnings = append(slices.Clip(want.Warnings), nova.ReshapeWarnings(c.Options, c.Generated)...)
	u.Warn(want.Warnings...)
	text, err := form.Render(c.Options, want)
	if err != nil {
		return err
	}
	u.Warn(c.Warnings...)
	if c.Placement && c.Role != nova.Compute {
		u.Warn("--render does not verify it: set pci_in_placement only after every compute node reports its PCI devices and nova-compute was restarted")
	}
	if u.Document.Requested() {
		report := NewNovaConfigure(common, c, want, nova.Plan{})
		report.Rendered = &text
		u.Document.Show(report)
		return nil
	}
	printRendered(u, form, c, text)
	return nil
}
