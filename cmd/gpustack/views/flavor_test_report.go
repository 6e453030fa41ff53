package views

import (
	"math"
	"time"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova/cloud"
	"gpustack/nova/probe"
	"gpustack/nova/servertest"
)

// FlavorTest is the output of flavor test (docs/json.md).
type FlavorTest struct {
	Report
	Cloud        string             `json:"cloud"`
	Microversion string             `json:"microversion"`
	Flavor       *string            `json:"flavor"` // null with --clean, as the next ones
	Image        *string            `json:"image"`
	Network      *string            `json:"network"`
	Wanted       map[probe.ID]int   `json:"wanted"`
	WantedFrom   []string           `json:"wanted_from"`
	RunHash      *string            `json:"run_hash"` // null without a command
	Quotas       []servertest.Quota `json:"quotas"`
	Free         *freeDevices       `json:"free_devices"`
	Changes      []cloud.Request    `json:"changes"`
	Verdict      *probe.Verdict     `json:"verdict"`
	Servers      []testedServer     `json:"servers"`
	Leftovers    []leftover         `json:"leftovers"`
}

// freeDevices is the free devices that Placement shows.
type freeDevices struct {
	Devices    int  `json:"device_count"`
	Hosts      int  `json:"host_count"`
	OneTimeUse bool `json:"stay_reserved"`
}

// testedServer is a server of a test.
type testedServer struct {
	Server     *string          `json:"server"` // its id; null before it is created
	Name       string           `json:"name"`
	Host       *string          `json:"host"` // null if the user may not see it
	Verdict    *probe.Verdict   `json:"verdict"`
	Reasons    []string         `json:"reasons"`
	Hints      []host.Text      `json:"hints"`
	Seen       map[probe.ID]int `json:"seen" null:"zero"` // null if the guest has not reported
	Others     map[probe.ID]int `json:"others" null:"zero"`
	Unassigned []pci.Address    `json:"unassigned"`
	Run        *commandRun      `json:"run"`
	Seconds    seconds          `json:"seconds"`
	Deleted    host.Bool        `json:"deleted"`
	Freed      host.Bool        `json:"freed"`
	FreedBy    *string          `json:"freed_by"`
	Console    []string         `json:"console_lines" null:"zero"`
}

// commandRun is what became of the command of a test in a guest.
type commandRun struct {
	State      probe.RunState `json:"state"`
	ExitStatus *int           `json:"exit_status"`
	Elapsed    *float64       `json:"elapsed_seconds"`
	Programs   []gpuProgram   `json:"gpu_programs"`
	Lines      []string       `json:"output_lines" null:"zero"` // null without --console
}

// gpuProgram is what a program of the command has printed about GPUs.
type gpuProgram struct {
	Program string      `json:"program"`
	GPUs    *int        `json:"gpu_count"`
	Models  []string    `json:"gpu_models"`
	Figures []gpuFigure `json:"measurements"`
}

// gpuFigure is a measurement. One of its values is null.
type gpuFigure struct {
	Name   string   `json:"name"`
	MBps   *float64 `json:"mb_per_second"`
	GFLOPs *float64 `json:"gflop_per_second"`
}

// newCommandRun returns what became of a command, nil if that is unknown. console says that the
// report may contain its output.
func newCommandRun(r *probe.Run, console bool) *commandRun {
	if r == nil {
		return nil
	}
	c := &commandRun{State: r.State, ExitStatus: r.ExitStatus, Elapsed: rounded(r.Took)}
	c.Programs = gpuPrograms(r.Programs())
	if console {
		c.Lines = r.Output()
	}
	return c
}

// seconds are how long the parts of a test took.
type seconds struct {
	Build  *float64 `json:"build"`
	Guest  *float64 `json:"guest"`
	Delete *float64 `json:"delete"`
}

// leftover is a server that a test has left.
type leftover struct {
	Server  string    `json:"server"`
	Name    string    `json:"name"`
	Project string    `json:"project_id"`
	Host    *string   `json:"host"`
	Created time.Time `json:"created"`
	Entry   *int      `json:"entry"`
	Reason  *string   `json:"reason"` // why it stays; null if it is deleted
	Deleted bool      `json:"deleted"`
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
	r.Warnings = append(r.Warnings, p.Warnings...)
	if p.Free != nil {
		r.Free = &freeDevices{p.Free.Devices, p.Free.Hosts, p.Free.OneTimeUse}
	}
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
