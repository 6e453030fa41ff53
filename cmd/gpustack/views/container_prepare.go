package views

import (
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/container/containerprepare"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// ContainerPrepare is the output of container prepare (docs/json.md).
type ContainerPrepare struct {
	Report
	Changes []FileChange `json:"changes"` // the files that change, in order
	// AtBoot is the CDI specs that each boot writes to /run/cdi, as far as they differ now. On the
	// running machine they are written with the plan, below another --root by the tree's boot. No
	// journal entry contains them.
	AtBoot []FileChange `json:"at_boot"`
	// the functions that are recorded for containers when the plan is applied, by address
	Functions []containerFunction `json:"devices"`
	// how containers get these functions; null without a function
	Options *machine.ContainerOptions `json:"options"`
	// qualified CDI names, as in podman run --device NAME
	Names []string `json:"names"`
	// the costs, and what the operator has to do besides
	Notes []string `json:"notes"`
}

// containerFunction is a function of the record.
type containerFunction struct {
	machine.ContainerFunction
	Names []string `json:"names"` // the function's qualified CDI names
}

// NewContainerPrepare returns the report of a plan of container prepare. head is its common part.
func NewContainerPrepare(head Report, plan containerprepare.Plan) ContainerPrepare {
	r := ContainerPrepare{
		Report: head, Changes: FileChanges(plan.Files), AtBoot: FileChanges(plan.Boot),
		Names: plan.Names, Notes: plan.Notes,
	}
	r.Changed = len(plan.Files.Pending()) > 0 || head.Root.IsMachine() && len(plan.Boot.Pending()) > 0
	r.Functions = host.Map(plan.Record.Functions, func(f machine.ContainerFunction) containerFunction {
		return containerFunction{f, plan.NamesOf[f.Address]}
	})
	if len(r.Functions) > 0 {
		r.Options = &plan.Record.Options
	}
	r.Restart = append(r.Restart, plan.Restart...)
	r.then(host.NewCommand("container check"))
	return r
}

// PrintContainerPrepare prints the plan as text.
func PrintContainerPrepare(u *term.UI, r ContainerPrepare) {
	var rows [][]string
	for _, f := range r.Functions {
		what := either(f.HCA, "RDMA adapter", "GPU")
		row := []string{f.Address.String(), what, f.VendorID.String() + ":" + f.ProductID.String(), ""}
		for i, name := range f.Names {
			if i > 0 {
				rows, row = append(rows, row), []string{"", "", "", ""}
			}
			row[3] = name
		}
		rows = append(rows, row)
	}
	start := ""
	if i := slices.IndexFunc(r.Functions, func(f containerFunction) bool { return len(f.Names) > 0 }); i >= 0 {
		start = "\nto start a container with one: podman run --device " + r.Functions[i].Names[0] + " IMAGE; docker since 25.0 and nerdctl alike\n"
	}
	if !printSelection(u, r.Changed, []string{"FUNCTION", "WHAT", "ID", "CDI NAMES"}, rows, start,
		"no function is for containers", "no function is for containers any more; running containers keep what they have") {
		return
	}
	printDiffs(u, r.Changes)
	if len(r.AtBoot) > 0 {
		when := "written at each boot, as the machine is then; from what this tree has:"
		if r.Root.IsMachine() {
			when = "written now, and at each boot as the machine is then:"
		}
		u.Printf("\n%s\n", when)
		printDiffs(u, r.AtBoot)
	}
	printNotes(u, r.Notes...)
}

// ContainerPrepareSummary returns the summary of container prepare.
func ContainerPrepareSummary(r ContainerPrepare, recorded *machine.Containers) string {
	planned := host.Map(r.Functions, func(f containerFunction) pci.Address { return f.Address })
	parts := host.Map(recorded.Without(planned), func(a pci.Address) string { return a.String() + " for containers" })
	for _, a := range recorded.Addresses() {
		if !slices.Contains(planned, a) {
			parts = append(parts, a.String()+" returned to the host")
		}
	}
	files := r.Changes
	if r.Root.IsMachine() {
		files = slices.Concat(files, r.AtBoot)
	}
	return term.Sentence(strings.Join(parts, ", "), filesText(files, "changed", "new"))
}
