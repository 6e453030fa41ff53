package views

import (
	"math"
	"time"

	"gpustack/host"
	"gpustack/host/cuda"
	"gpustack/host/pci"
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
	Flavor *string `json:"flavor"`
	Image  *string `json:"image"` // the image's name
	// the name or id of a network, "none" or "auto"; null where Nova chooses it
	Network *string `json:"network"`
	// the number of devices that each guest should have, by product: {"10de:11b4": 2}
	Wanted map[probe.ID]int `json:"wanted"`
	// where the ids of each alias or resource class come from, for people
	WantedFrom []string `json:"wanted_from"`
	// "sha256:" and the hash of the command of --run or --run-file; null without one
	RunHash *string `json:"run_hash"`
	// the limits of the project; empty with --clean
	Quotas []servertest.Quota `json:"quotas"`
	// the free devices that Placement shows; null if it shows none of the wanted resource classes,
	// or cannot be read
	Free *cloud.Free `json:"free_devices"`
	// the requests, with a command's user_data masked; a server that is to be deleted has the path
	// /servers/ID
	Changes []cloud.Request `json:"changes"`
	// "fail" if one server failed, else "unknown" if one is unknown; null before the test
	Verdict *probe.Verdict `json:"verdict"`
	// the servers of the test, several with --count; empty with --clean
	Servers   []testedServer `json:"servers"`
	Leftovers []leftover     `json:"leftovers"` // the servers of earlier tests that --clean found
}

// testedServer is a server of a test.
type testedServer struct {
	Server *string `json:"server"` // the id; null before the server is created
	// "gpustack-test-" and 8 hexadecimal digits, which its metadata "gpustack-test" has too
	Name    string         `json:"name"`
	Host    *string        `json:"host"`    // the server's host; null if the user may not see it
	Verdict *probe.Verdict `json:"verdict"` // the result; null before the test
	Reasons []string       `json:"reasons"` // why the verdict is not "pass", for people
	Hints   []host.Text    `json:"hints"`   // what to do about these reasons, for people
	// the number of wanted devices in the guest, by product; null if it has not reported
	Seen map[probe.ID]int `json:"seen" null:"zero"`
	// the number of the guest's other functions without bridges, by product; null if it has not
	// reported
	Others map[probe.ID]int `json:"others" null:"zero"`
	// wanted devices with a memory region that has no address in the guest, by their addresses
	// there
	Unassigned []pci.Address `json:"unassigned"`
	// the result of the command; null without one, and until its guest has reported the end
	Run     *commandRun `json:"run"`
	Seconds seconds     `json:"seconds"` // how long the parts of the test took
	// whether the server is deleted; null before that
	Deleted host.Bool `json:"deleted"`
	// whether its devices are free again; null if that is not verified
	Freed host.Bool `json:"freed"`
	// which source shows that: "Placement" or "the database"
	FreedBy *string `json:"freed_by"`
	// the last lines of its console; null without --console
	Console []string `json:"console_lines" null:"zero"`
}

// commandRun is what became of the command of a test in a guest.
type commandRun struct {
	State probe.RunState `json:"state"` // how the command ended
	// the exit status of a command that ended; 128 and the number of the signal that ended it
	ExitStatus *int `json:"exit_status"`
	// how long it ran, by the guest's clock since boot; null if unknown
	Elapsed *float64 `json:"elapsed_seconds"`
	// results of the programs that gpustack recognizes in its output, in order
	Programs []cuda.Program `json:"gpu_programs"`
	// the first and last lines of its output, "..." for lines left out; null without --console
	Lines []string `json:"output_lines" null:"zero"`
}

// newCommandRun returns what became of a command, nil if that is unknown. console says that the
// report may contain its output.
func newCommandRun(r *probe.Run, console bool) *commandRun {
	if r == nil {
		return nil
	}
	c := &commandRun{State: r.State, ExitStatus: r.ExitStatus, Elapsed: rounded(r.Took), Programs: r.Programs()}
	if console {
		c.Lines = r.Output()
	}
	return c
}

// seconds are how long the parts of a test took.
type seconds struct {
	// from the request until the server was active; null if it was not
	Build  *float64 `json:"build"`
	Guest  *float64 `json:"guest"`  // from then until the guest has reported; null if it has not
	Delete *float64 `json:"delete"` // from the request until Nova no longer had the server
}

// leftover is a server that a test has left.
type leftover struct {
	Server  string    `json:"server"`     // the id
	Name    string    `json:"name"`       // as the test named it
	Project string    `json:"project_id"` // the server's project
	Host    *string   `json:"host"`       // the server's host; null if the user may not see it
	Created time.Time `json:"created"`    // by Nova's clock
	// the journal entry that records the server; null for none
	Entry   *int    `json:"entry"`
	Reason  *string `json:"reason"`  // why it is not to be deleted, for people; null if it is
	Deleted bool    `json:"deleted"` // whether it is deleted
}

// NewFlavorTest returns the report of tests in a cloud, without a plan. head is its common part.
func NewFlavorTest(head Report, c *cloud.Compute) FlavorTest {
	return FlavorTest{
		Report: head, Cloud: c.URL, Microversion: c.Microversion.String(), Wanted: map[probe.ID]int{}, Quotas: []servertest.Quota{},
		Leftovers: []leftover{},
	}
}

// AddPlan adds the plan of a test.
func (r *FlavorTest) AddPlan(p servertest.Plan) error {
	requests, err := p.Requests()
	if err != nil {
		return err
	}
	r.Flavor, r.Image, r.Network, r.Changes = &p.Flavor.Name, &p.Image.Name, Optional(p.NetworkName), requests
	r.Wanted, r.WantedFrom, r.Quotas, r.RunHash = p.Wanted.IDs, p.Wanted.From, p.Quotas, Optional(p.Command.Hash())
	r.Free, r.Warnings = p.Free, append(r.Warnings, p.Warnings...)
	for _, s := range p.Servers {
		r.Servers = append(r.Servers, testedServer{Name: s.Name})
	}
	return nil
}

// AddServers adds the ids of the planned servers, as far as they were created.
func (r *FlavorTest) AddServers(servers []servertest.Server) {
	for i, s := range servers {
		r.Servers[i].Server = Optional(s.ID)
	}
}

// AddOutcomes adds the outcomes of all servers and the verdict. console says that the report may
// contain the last lines of consoles.
func (r *FlavorTest) AddOutcomes(outcomes []servertest.Outcome, console bool) {
	for i, o := range outcomes {
		s := &r.Servers[i]
		s.Host, s.Verdict, s.Unassigned, s.Run = Optional(o.Host), &o.Verdict, o.Unassigned, newCommandRun(o.Run, console)
		s.Reasons, s.Hints = append(s.Reasons, o.Reasons...), append(s.Hints, o.Hints...)
		if o.Guest != nil {
			s.Seen, s.Others = o.Seen, o.Others
		}
		s.Seconds = seconds{rounded(o.Build), rounded(o.Guest), rounded(o.Deletion)}
		s.Deleted, s.Freed, s.FreedBy = host.BoolOf(o.Deleted), o.Freed.Free, Optional(o.Freed.By)
		if console {
			s.Console = o.Console
		}
	}
	verdict := servertest.Verdict(outcomes)
	r.Verdict = &verdict
}

// rounded returns a time in seconds, to a tenth.
func rounded(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	s := math.Round(d.Seconds()*10) / 10
	return &s
}

// AddCleaning adds the plan of a cleaning.
func (r *FlavorTest) AddCleaning(c servertest.Cleaning) {
	for _, l := range c.Leftovers {
		item := leftover{Server: l.ID, Name: l.Name, Project: l.Project, Host: Optional(l.Host), Created: l.Created, Reason: Optional(l.Leave)}
		if l.Entry != 0 {
			item.Entry = &l.Entry
		}
		r.Leftovers = append(r.Leftovers, item)
	}
	remove := c.Remove()
	for _, s := range remove {
		r.Changes = append(r.Changes, cloud.Request{Method: "DELETE", Path: "/servers/" + s.ID})
	}
	r.Changed = len(remove)+len(c.Closed) > 0
}

// AddCleaned adds which servers a cleaning has deleted.
func (r *FlavorTest) AddCleaned(c servertest.Cleaning) {
	for i, l := range c.Leftovers {
		r.Leftovers[i].Deleted = l.Deleted
	}
}
