package views

import (
	"slices"

	"gpustack/nova/cloud"
	"gpustack/nova/probe"
	"gpustack/nova/servertest"
)

// FlavorTest is the output of flavor test (docs/json.md).
type FlavorTest struct {
	Report
	Cloud        string `json:"cloud"`        // the address of Nova's API
	Microversion string `json:"microversion"` // the microversion of the requests
	// the flavor's name; null with --clean, as are image, network, free_devices and verdict
	Flavor string `json:"flavor" null:"zero"`
	Image  string `json:"image" null:"zero"` // the image's name
	// the name or id of a network, "none" or "auto"; null where Nova chooses it
	Network string `json:"network" null:"zero"`
	// the number of devices that each guest should have, by product: {"10de:11b4": 2}
	Wanted map[probe.ID]int `json:"wanted"`
	// where the ids of each alias or resource class come from, for people
	WantedFrom []string `json:"wanted_from"`
	// "sha256:" and the hash of the command of --run or --run-file; null without one
	RunHash string `json:"run_hash" null:"zero"`
	// the limits of the project; empty with --clean
	Quotas []servertest.Quota `json:"quotas"`
	// the free devices that Placement shows; null if it shows none of the wanted resource classes,
	// or cannot be read
	Free *cloud.Free `json:"free_devices"`
	// the requests, with a command's user_data masked; a server that is to be deleted has the path
	// /servers/ID
	Changes []cloud.Request `json:"changes"`
	// "fail" if one server failed, else "unknown" if one is unknown; null before the test
	Verdict probe.Verdict `json:"verdict" null:"zero"`
	// the servers of the test, several with --count; empty with --clean
	Servers   []servertest.Outcome  `json:"servers"`
	Leftovers []servertest.Leftover `json:"leftovers"` // the servers of earlier tests that --clean found
}

// NewFlavorTest returns the report of tests in a cloud, without a plan. head is its common part.
func NewFlavorTest(head Report, c *cloud.Compute) FlavorTest {
	return FlavorTest{
		Report: head, Cloud: c.URL, Microversion: c.Microversion.String(), Wanted: map[probe.ID]int{}, Quotas: []servertest.Quota{},
	}
}

// AddPlan adds the plan of a test.
func (r *FlavorTest) AddPlan(p servertest.Plan) error {
	requests, err := p.Requests()
	if err != nil {
		return err
	}
	r.Flavor, r.Image, r.Network, r.Changes = p.Flavor.Name, p.Image.Name, p.NetworkName, requests
	r.Wanted, r.WantedFrom, r.Quotas, r.RunHash = p.Wanted.IDs, p.Wanted.From, p.Quotas, p.Command.Hash()
	r.Free, r.Warnings = p.Free, append(r.Warnings, p.Warnings...)
	for _, s := range p.Servers {
		r.Servers = append(r.Servers, servertest.Outcome{Server: s})
	}
	return nil
}

// AddServers adds the ids of the planned servers, as far as they were created.
func (r *FlavorTest) AddServers(servers []servertest.Server) {
	for i, s := range servers {
		r.Servers[i].Server = s
	}
}

// AddOutcomes adds the outcomes of all servers and the verdict. console says that the report may
// contain the last lines of consoles, and output of the command.
func (r *FlavorTest) AddOutcomes(outcomes []servertest.Outcome, console bool) {
	r.Servers = slices.Clone(outcomes)
	for i := range r.Servers {
		if o := &r.Servers[i]; !console {
			o.Console = nil
			if o.Run != nil {
				o.Run = new(*o.Run)
				o.Run.Output = nil
			}
		}
	}
	r.Verdict = servertest.Verdict(outcomes)
}

// AddCleaning adds the plan of a cleaning.
func (r *FlavorTest) AddCleaning(c servertest.Cleaning) {
	r.Leftovers = c.Leftovers // of which Clean sets those that are deleted
	remove := c.Remove()
	for _, s := range remove {
		r.Changes = append(r.Changes, cloud.Request{Method: "DELETE", Path: "/servers/" + s.ID})
	}
	r.Changed = len(remove)+len(c.Closed) > 0
}
