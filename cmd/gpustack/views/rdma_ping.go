package views

import (
	"fmt"
	"net/netip"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/engine"
	"gpustack/host/pci"
	"gpustack/host/rdma/trial"
)

// RDMATest is the output of rdma test (docs/json.md).
type RDMATest struct {
	Schema  int       `json:"schema"`
	Time    time.Time `json:"time"`    // when the test began
	Program string    `json:"program"` // "rping", or "perftest" with --perf
	// "loopback" (both sides here), "listen" (the listener is here) or "peer" (the listener is on
	// another machine)
	Sides string `json:"sides"`
	// the IP address of the listener on another machine; null for none
	Peer *netip.Addr `json:"peer"`
	// what to run on the other machine for a listener here; null for other tests
	PeerCommand string `json:"peer_command" null:"zero"`
	ServicePort int    `json:"service_port"` // the port of the connection manager
	// the value of --iterations, with --perf that of each program
	Iterations int `json:"requested_iterations"`
	// the value of --size, with --perf of a message of its measurements of bandwidth
	Size    int     `json:"iteration_bytes"`
	Timeout float64 `json:"timeout_seconds"` // the limit of each test
	// Containers is what the programs ran in (with --perf, after they ran on the machine); null: on
	// the machine.
	Containers *engine.Container `json:"containers"`
	Verdict    trial.Verdict     `json:"verdict" null:"zero"` // "fail" if one of the tests failed
	Tests      []portTest        `json:"tests"`               // the results, one for each tested port
	Untested   []untested        `json:"untested"`            // ports that could not be tested
	// Warnings are counters of errors that rose, packets that went through another port, a route
	// that leaves by another one, and what could not be read.
	Warnings []string `json:"warnings"`
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
	// the adapter's PCI function; null for a software device
	Address   *pci.Address `json:"address"`
	Name      string       `json:"name"`       // the RDMA device
	Port      int          `json:"port"`       // the port of the RDMA device
	LinkLayer string       `json:"link_layer"` // "InfiniBand" or "Ethernet"
	// the network interface by which the port was tested
	Netdev string     `json:"netdev"`
	IP     netip.Addr `json:"ip"` // the address by which the port was tested
	trial.Result
	// the values of --device with which its containers were started; null without containers
	Devices []string `json:"container_devices"`
	// what the measurements depend on; null without --perf
	Hardware *trial.Hardware `json:"measured_on"`

	title     string
	container string // how rping was started; "" on the machine
}

// untested is a port that could not be tested, or an adapter without one.
type untested struct {
	Address *pci.Address `json:"address"`          // the adapter's PCI function; null for a software device
	Name    string       `json:"name"`             // the RDMA device
	Port    *int         `json:"port"`             // null for an adapter without an RDMA device
	Reason  string       `json:"reason"`           // why it could not be tested, for people
	Hint    host.Text    `json:"hint" null:"zero"` // what to do; null for nothing
}

// NewRDMATest returns the report of rdma test on a machine, without results.
func NewRDMATest(m trial.Machine) *RDMATest {
	r := RDMATest{
		Schema: 1, Time: time.Now().UTC().Truncate(time.Second), Program: programRping, Sides: sidesLoopback,
		ServicePort: m.Port, Iterations: m.Count, Size: m.Size, Timeout: m.Timeout.Seconds(),
		Warnings: m.Warnings, Containers: m.Container,
	}
	if m.Perf {
		r.Program = programPerftest
	}
	r.Untested = host.Map(m.Skipped, func(s trial.Skipped) untested {
		return untested{s.Adapter.Address, s.Adapter.Name, s.Port, s.Err.Error(), term.Hint(s.Err)}
	})
	return &r
}

// AddAll adds all tests to the report, with the verdict.
func (r *RDMATest) AddAll(tests []trial.Tested) {
	r.Tests, r.Verdict = host.Map(tests, r.test), trial.VerdictOf(tests)
}

// test returns a test for the report, and adds its warnings.
func (r *RDMATest) test(t trial.Tested) portTest {
	a, p := t.Target.Adapter, t.Target.Port
	test := portTest{
		Address: a.Address, Name: a.Name, Port: p.Number, LinkLayer: p.LinkLayer, Netdev: t.Source.Netdev, IP: t.Source.IP,
		Result: t.Result, title: t.Target.Title(),
	}
	if t.Container != nil {
		test.Devices, test.container = t.Container.Devices, t.Container.String()
	}
	r.Warnings = append(r.Warnings, t.Warnings...)
	if t.Perf {
		test.Hardware = &t.Hardware
	}
	return test
}

// PrintPortTests prints the results of the tests, and the ports that were not tested.
func PrintPortTests(u *term.UI, r RDMATest) {
	for _, t := range r.Tests {
		where := fmt.Sprintf("%s, %s %s", t.LinkLayer, t.Netdev, t.IP)
		switch {
		case r.Peer != nil:
			where += " to " + r.Peer.String()
		case r.Sides == SidesListen:
			where += " for one peer"
		default:
			where += ", both sides here"
		}
		colour := either(t.Verdict == trial.Pass, term.Green, term.Red)
		took := either(t.Seconds != nil, fmt.Sprintf(" in %.2f s", host.Value(t.Seconds)), "")
		done := fmt.Sprintf("%d of %d iterations of %d bytes", t.Iterations, r.Iterations, r.Size)
		if r.Program == programPerftest {
			done = fmt.Sprintf("%s of %d iterations", host.Numbered(len(t.Measurements), "measurement"), r.Iterations)
		}
		u.Printf("%s: %s (%s): %s%s\n", u.Paint(colour, string(t.Verdict)), term.Printable(t.title), term.Printable(where), done, took)
		if t.container != "" {
			u.Printf("  in containers: %s\n", term.Printable(t.container))
		}
		printMeasurements(u, t, r.Sides)
		for _, c := range t.Causes {
			if c.Words != "" {
				u.Printf("  %s: %s\n", r.Program, term.Printable(c.Words))
			}
			u.Printf("  cause: %s\n  remedy: %s\n", term.Printable(c.Cause), term.Elsewhere(c.Remedy))
		}
		for _, c := range t.Counters {
			u.Printf("  %s +%d\n", term.Printable(c.Name), c.Delta)
		}
		if t.Carried == host.No && r.Sides == sidesLoopback && t.Verdict == trial.Pass {
			u.Printf("  no counter of packets moved: the adapter loops back by itself; --listen and --peer test the way through the port\n")
		}
	}
	for _, s := range r.Untested {
		u.Printf("not tested: %s\n", term.Printable(s.Reason))
		if s.Hint != nil {
			u.Printf("  remedy: %s\n", u.Text(s.Hint))
		}
	}
}
