package views

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/rdma/trial"
)

// measurement is what a program of perftest has measured.
type measurement struct {
	// "ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat" or "ib_send_lat"
	Program   string `json:"program"`
	Contained bool   `json:"in_container"` // the program ran in a container
	// as the program reported; null for a listener's ib_read_lat, which the other machine reports
	Bytes      *int `json:"message_bytes"`
	Iterations *int `json:"iterations"` // likewise
	// the result of a program for bandwidth, as the side that connects measured it; null for others
	Bandwidth *bandwidth `json:"bandwidth"`
	// the result of ib_write_lat and ib_send_lat (half of the way there and back) and ib_read_lat (a
	// complete RDMA READ); null for others
	Latency *trial.Latency `json:"latency"`
}

// bandwidth has units of 10^6 bytes.
type bandwidth struct {
	// 10^6 bytes per second (MB of perftest are 2^20 bytes)
	Average float64  `json:"average_mb_per_second"`
	Peak    *float64 `json:"peak_mb_per_second"` // likewise; null if perftest did not measure it
	// messages per second; null if perftest did not report it
	Rate *float64 `json:"messages_per_second"`
	// of the port's data_gbit_per_second; null if that is unknown, and if both sides are here
	OfPort *float64 `json:"percent_of_port"`
	// of the PCIe link's data_gbit_per_second; null if that is unknown
	OfLink *float64 `json:"percent_of_pcie_link"`
}

// measured adds to a test what was measured, and on what. Both sides on one machine say nothing of
// the port: adapters loop packets back.
func (t *portTest) measured(tested trial.Tested, sides string) {
	h := tested.Hardware
	t.Hardware = new(h)
	if sides == sidesLoopback {
		h.Port = nil
	}
	t.Figures = []measurement{}
	for _, m := range tested.Measurements {
		figures := measurement{Program: m.Program, Contained: m.Container != nil}
		if r := m.Report; r != nil {
			figures.Bytes, figures.Iterations = &r.Bytes, &r.Iterations
			figures.Bandwidth = newBandwidth(r.Bandwidth, h)
			figures.Latency = r.Latency
		}
		t.Figures = append(t.Figures, figures)
	}
}

func newBandwidth(b *trial.Bandwidth, h trial.Hardware) *bandwidth {
	if b == nil {
		return nil
	}
	const mb = 1e6
	found := bandwidth{Average: b.Average / mb, Rate: b.MessageRate, OfPort: h.Port.Percent(b.Average), OfLink: h.Link.Percent(b.Average)}
	if b.Peak != nil {
		peak := *b.Peak / mb
		found.Peak = &peak
	}
	return &found
}

// String returns a bandwidth for people: "12500.0 MB/s (100.0 Gb/s), 190735 messages/s, 50 % of the
// port".
func (b bandwidth) String() string {
	words := fmt.Sprintf("%.1f MB/s (%.2f Gb/s)", b.Average, b.Average*8/1000)
	if b.Rate != nil {
		words += fmt.Sprintf(", %.0f messages/s", *b.Rate)
	}
	for _, part := range []struct {
		percent *float64
		of      string
	}{{b.OfPort, "port"}, {b.OfLink, "PCIe link"}} {
		if part.percent != nil {
			words += fmt.Sprintf(", %.0f %% of the %s", *part.percent, part.of)
		}
	}
	return words
}

// result returns the figures of a measurement for people.
func (m measurement) result() string {
	switch {
	case m.Bandwidth != nil:
		return m.Bandwidth.String()
	case m.Latency != nil:
		return fmt.Sprintf("%.2f µs typical, %.2f µs in 99 %% of iterations", m.Latency.Typical, m.Latency.P99)
	}
	return "done: the other machine has the figures"
}

// capacityText returns a capacity for people: "x16 16.0 GT/s PCIe, 252.1 Gb/s after 128b/130b".
func capacityText(c *trial.Capacity) string {
	switch {
	case c == nil:
		return "of unknown rate"
	case c.Encoding == "":
		return c.Name
	}
	return fmt.Sprintf("%s, %.1f Gb/s after %s", c.Name, c.Gbps, c.Encoding)
}

// printMeasurements prints what was measured, and on what, with containers beside the machine.
func printMeasurements(u *term.UI, t portTest) {
	if h := t.Hardware; h != nil {
		u.Printf("  measured on: %s\n", term.Printable(hardwareText(*h)))
	}
	for _, m := range t.Figures {
		if m.Contained {
			continue
		}
		size := ""
		if m.Bytes != nil {
			size = fmt.Sprintf(" %d", *m.Bytes)
		}
		u.Printf("  %-18s  %s\n", m.Program+size, m.result())
		for _, beside := range t.Figures {
			if beside.Contained && beside.Program == m.Program {
				u.Printf("  %-18s  %s\n", "  in a container", beside.result())
			}
		}
	}
}

// hardwareText returns the hardware for people.
func hardwareText(h trial.Hardware) string {
	if h.Driver == "" && h.Port == nil && h.Link == nil {
		return "a software device, whose rate is not that of a link"
	}
	words := []string{h.Product, h.Driver, after("firmware ", h.Firmware)}
	words = slices.DeleteFunc(words, func(word string) bool { return word == "" })
	return strings.Join(words, ", ") + "; port " + capacityText(h.Port) + "; PCIe link " + capacityText(h.Link)
}
