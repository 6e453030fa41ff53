package views

import (
	"fmt"
	"net/netip"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/host/rdma/perf"
	"gpustack/host/rdma/ping"
)

// RDMATest is the output of rdma test (docs/json.md).
type RDMATest struct {
	Schema      int             `json:"schema"`
	Time        time.Time       `json:"time"` // when the test began
	Program     string          `json:"program"`
	Sides       string          `json:"sides"`
	Peer        *netip.Addr     `json:"peer"`
	PeerCommand *string         `json:"peer_command"`
	ServicePort int             `json:"service_port"`
	Iterations  int             `json:"requested_iterations"`
	Size        int             `json:"iteration_bytes"`
	Timeout     float64         `json:"timeout_seconds"`
	Containers  *testContainers `json:"containers"`
	Verdict     *ping.Verdict   `json:"verdict"`
	Tests       []portTest      `json:"tests"`
	Untested    []untested      `json:"untested"`
	Warnings    []string        `json:"warnings"`
}

// Values of rdmaTestReport.Sides.
const (
	sidesLoopback = "loopback"
	SidesListen   = "listen"
	SidesPeer     = "peer"
)

// Values of RDMATest.Program.
const (
	programRping    = "rping"
	programPerftest = "perftest"
)

// portTest is the test of a port.
type portTest struct {
	Address    *pci.Address   `json:"address"`
	Name       string         `json:"name"`
	Port       int            `json:"port"`
	LinkLayer  string         `json:"link_layer"`
	Netdev     string         `json:"netdev"`
	IP         netip.Addr     `json:"ip"`
	Verdict    *ping.Verdict  `json:"verdict"`
	Elapsed    *float64       `json:"elapsed_seconds"`
	Iterations int            `json:"iterations"`
	Bytes      int64          `json:"bytes"`
	Counters   []ping.Counter `json:"counters"`
	Carried    host.Bool      `json:"packets_counted"`
	Causes     []ping.Cause   `json:"causes"`
	Devices    []string       `json:"container_devices"`
	Hardware   *measuredOn    `json:"measured_on"`
	Figures    []measurement  `json:"measurements"`

	title     string
	container string // how rping was started; "" on the machine
}

// testContainers is how rdma test starts rping in containers (docs/json.md).
type testContainers struct {
	Image  string `json:"image"`
	Engine string `json:"engine"`
}

// untested is a port that could not be tested, or an adapter without one.
type untested struct {
	Address *pci.Address `json:"address"`
	Name    string       `json:"name"`
	Port    *int         `json:"port"`
	Reason  string       `json:"reason"`
	Hint    *string      `json:"hint"`
}

// NewRDMATest returns the report of rdma test on a machine, without results. measures says that its
// ports are measured.
func NewRDMATest(m ping.Machine, measures bool) *RDMATest {
	r := RDMATest{
		Schema: 1, Time: time.Now().UTC().Truncate(time.Second), Program: programRping, Sides: sidesLoopback,
		ServicePort: m.Port, Iterations: m.Count, Size: m.Size, Timeout: m.Timeout.Seconds(),
		Warnings: m.Warnings,
	}
	if measures {
		r.Program = programPerftest
	}
	if c := m.Container; c != nil {
		r.Containers = &testContainers{c.Image, c.Engine}
	}
	for _, s := range m.Skipped {
		r.Untested = append(r.Untested, untested{s.Adapter.Address, s.Adapter.Name, s.Port, s.Err.Error(), Optional(term.Hint(s.Err))})
	}
	return &r
}

// AddAll adds all tests to the report, with the verdict.
func (r *RDMATest) AddAll(tests []ping.Tested) {
	for _, t := range tests {
		r.Tests = append(r.Tests, r.test(t))
	}
	verdict := ping.VerdictOf(tests)
	r.Verdict = &verdict
}

// AddMeasured adds all tests with measurements to the report, with the verdict.
func (r *RDMATest) AddMeasured(tests []perf.Tested) {
	var tested []ping.Tested
	for _, t := range tests {
		tested = append(tested, ping.Tested{Test: t.Test.Test, Result: t.Result.Result})
	}
	r.AddAll(tested)
	for i, t := range tests {
		r.Tests[i].measured(t, r.Sides)
	}
}

// test returns a test for the report, and adds its warnings.
func (r *RDMATest) test(t ping.Tested) portTest {
	a, p := t.Target.Adapter, t.Target.Port
	test := portTest{
		Address: a.Address, Name: a.Name, Port: p.Number, LinkLayer: p.LinkLayer, Netdev: t.Source.Netdev, IP: t.Source.IP,
		Verdict: &t.Verdict, Elapsed: t.Seconds, Iterations: t.Iterations, Bytes: t.Bytes, Counters: t.Counters, Carried: t.Carried, Causes: t.Causes,
		title: t.Target.Title(),
	}
	if t.Container != nil {
		test.Devices, test.container = t.Container.Devices, t.Container.String()
	}
	r.Warnings = append(r.Warnings, t.Warnings...)
	return test
}

// PrintPortTests prints the results of the tests, and the ports that were not tested.
func PrintPortTests(u *term.UI, r RDMATest) {
	for _, t := range r.Tests {
		colour, where := term.Green, fmt.Sprintf("%s, %s %s", t.LinkLayer, t.Netdev, t.IP)
		if *t.Verdict != ping.Pass {
			colour = term.Red
		}
		switch {
		case r.Peer != nil:
			where += " to " + r.Peer.String()
		case r.Sides == SidesListen:
			where += " for one peer"
		default:
			where += ", both sides here"
		}
		took := ""
		if t.Elapsed != nil {
			took = fmt.Sprintf(" in %.2f s", *t.Elapsed)
		}
		done := fmt.Sprintf("%d of %d iterations of %d bytes", t.Iterations, r.Iterations, r.Size)
		if r.Program == programPerftest {
			done = fmt.Sprintf("%s of %d iterations", host.Numbered(len(t.Figures), "measurement"), r.Iterations)
		}
		u.Printf("%s: %s (%s): %s%s\n", u.Paint(colour, string(*t.Verdict)), term.Printable(t.title), term.Printable(where), done, took)
		if t.container != "" {
			u.Printf("  in containers: %s\n", term.Printable(t.container))
		}
		printMeasurements(u, t)
		for _, c := range t.Causes {
			if c.Words != "" {
				u.Printf("  %s: %s\n", r.Program, term.Printable(c.Words))
			}
			u.Printf("  cause: %s\n  remedy: %s\n", term.Printable(c.Cause), term.Elsewhere(c.Remedy))
		}
		for _, c := range t.Counters {
			u.Printf("  %s +%d\n", term.Printable(c.Name), c.Delta)
		}
		if t.Carried == host.No && r.Sides == sidesLoopback && *t.Verdict == ping.Pass {
			u.Printf("  no counter of packets moved: the adapter loops back by itself; --listen and --peer test the way through the port\n")
		}
	}
	for _, s := range r.Untested {
		u.Printf("not tested: %s\n", term.Printable(s.Reason))
		if s.Hint != nil {
			u.Printf("  remedy: %s\n", term.Printable(*s.Hint))
		}
	}
}
