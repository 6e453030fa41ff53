package views

import (
	"strconv"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
)

// FlavorPlan is the output of flavor create and flavor delete (docs/json.md).
type FlavorPlan struct {
	Report
	Cloud string `json:"cloud"` // the address of Nova's API
	// the microversion of the requests: "2.86", or the newest of the cloud if that is older
	Microversion string          `json:"microversion"`
	Changes      []cloud.Request `json:"changes"` // the requests, in order
	// the flavor before the change; null if it is new
	Before *flavor.State `json:"before"`
	// the flavor after the change, whose id is "" until it is created; null if it is deleted
	After    *flavor.State `json:"after"`
	Defaults []string      `json:"defaults"` // the default sizes for each device
	// what each device can have on the hosts; absent without --fit of flavor create
	Fit *flavor.Fit `json:"fit,omitempty"`
}

// NewFlavorPlan returns the report of a plan of a flavor. head is its common part; fit is how
// sizes were derived, if they were.
func NewFlavorPlan(head Report, c *cloud.Compute, plan flavor.Plan, fit *flavor.Fit) FlavorPlan {
	if plan.After != nil {
		head.then(host.NewCommand("flavor test").Arg(plan.After.Name).Flag("image", "IMAGE"))
	}
	return FlavorPlan{
		Report: head, Cloud: c.URL, Microversion: c.Microversion.String(), Changes: plan.Requests(),
		Before: plan.Before, After: plan.After, Defaults: plan.Defaults, Fit: fit,
	}
}

// PrintFlavorPlan prints the plan of a flavor as text.
func PrintFlavorPlan(u *term.UI, r FlavorPlan, plan flavor.Plan) {
	u.Printf("%s at %s (microversion %s)\n", term.Printable("flavor "+plan.Name()), term.Printable(r.Cloud), r.Microversion)
	if !r.Changed {
		u.Printf("%s\nnothing to do: the flavor is as planned\n", term.Printable(indented(flavor.Text(plan.Before))))
		return
	}
	u.Diff(objectDiff(plan.Move))
	if r.Fit != nil {
		printFit(u, *r.Fit)
	}
	if len(r.Defaults) > 0 {
		u.Printf("\ndefaults for each device: %s\n", strings.Join(r.Defaults, ", "))
	}
	printRequests(u, r.Changes)
}

// FlavorMade returns what was done to a flavor, as a sentence.
func FlavorMade(made flavor.Move) string {
	done := either(made.Before == nil, "created", "changed")
	return done + " flavor " + term.Printable(made.After.Name) + ", id " + term.Printable(made.After.ID)
}

// indented returns text with each line indented.
func indented(text string) string {
	return strings.TrimSuffix("  "+strings.ReplaceAll(text, "\n", "\n  "), "  ")
}

// printFit prints how the sizes of a flavor were derived, and the guests of each host.
func printFit(u *term.UI, f flavor.Fit) {
	u.Printf("\neach device: %d vCPUs and %s of RAM, the smallest share of all hosts; in each NUMA node %s and %s remain with the host\n\n",
		f.VCPUs, flavor.Size(f.RAM, flavor.MiB), host.Numbered(f.Reserve.Cores, "core"), flavor.Size(f.Reserve.Memory, flavor.MiB))
	rows := host.Map(f.Hosts, func(h flavor.FitHost) []string {
		ram := flavor.Size(h.RAM, flavor.MiB) + either(h.HugePages, " (huge pages)", "")
		return []string{h.Host, strconv.Itoa(h.Devices), strconv.Itoa(h.Guests), strconv.Itoa(h.Within), strconv.Itoa(h.VCPUs), ram}
	})
	u.Table([]string{"HOST", "DEVICES", "GUESTS", "IN ONE NODE", "VCPUS EACH", "RAM EACH"}, rows)
}
