package views

import (
	"fmt"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/rdma/trial"
)

// measuredOn is what figures were measured on.
type measuredOn struct {
	// the name of the PCI function; null for a software device, and if unknown
	Product *string `json:"product"`
	// the adapter's driver; "" for a software device, and if none is shown
	Driver string `json:"driver"`
	// the adapter's firmware; "" for a software device, and if none is shown
	Firmware string `json:"firmware"`
	// what the port can carry in each direction; null for a software device, and if unknown
	Port *capacity `json:"port_capacity"`
	Link *capacity `json:"pcie_capacity"` // what the PCIe link can carry at this moment, likewise
}

// capacity is how much data a port or a PCIe link can carry.
type capacity struct {
	// as the kernel shows it: "100 Gb/sec (4X EDR)", "x16 16.0 GT/s PCIe"
	Name string  `json:"capacity"`
	Gbps float64 `json:"data_gbit_per_second"` // 10^9 bits per second, without the encoding
	// the encoding that the capacity includes, such as "8b/10b"; null if it includes none
	Encoding *string `json:"encoding"`
}

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
	Latency *latency `json:"latency"`
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

// latency is in microseconds.
type latency struct {
	Min     float64 `json:"min_us"`                     // the shortest time
	Typical float64 `json:"typical_us"`                 // the median
	Average float64 `json:"average_us"`                 // the mean
	P99     float64 `json:"ninety_ninth_percentile_us"` // the time that one in a hundred exceeds
	Max     float64 `json:"max_us"`                     // the longest time
}

// measured adds to a test what was measured, and on what. Both sides on one machine say nothing of
// the port: adapters loop packets back.
func (t *portTest) measured(tested trial.Tested, sides string) {
	h := tested.Hardware
	t.Hardware = &measuredOn{Product: Optional(h.Product), Driver: h.Driver, Firmware: h.Firmware, Port: newCapacity(h.Port), Link: newCapacity(h.Link)}
	if sides == sidesLoopback {
		h.Port = nil
	}
	t.Figures = []measurement{}
	for _, m := range tested.Measurements {
		figures := measurement{Program: m.Program, Contained: m.Container != nil}
		if r := m.Report; r != nil {
			figures.Bytes, figures.Iterations = &r.Bytes, &r.Iterations
			figures.Bandwidth = newBandwidth(r.Bandwidth, h)
			if l := r.Latency; l != nil {
				figures.Latency = &latency{l.Min, l.Typical, l.Average, l.P99, l.Max}
			}
		}
		t.Figures = append(t.Figures, figures)
	}
}

func newCapacity(c *trial.Capacity) *capacity {
	if c == nil {
		return nil
	}
	return &capacity{c.Name, c.Gbps, Optional(c.Encoding)}
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

// String returns a capacity for people: "x16 16.0 GT/s PCIe, 252.1 Gb/s after 128b/130b".
func (c capacity) String() string {
	if c.Encoding == nil {
		return c.Name
	}
	return fmt.Sprintf("%s, %.1f Gb/s after %s", c.Name, c.Gbps, *c.Encoding)
}

// printMeasurements prints what was measured, and on what, with containers beside the machine.
func printMeasurements(u *term.UI, t portTest) {
	if h := t.Hardware; h != nil {
		u.Printf("  measured on: %s\n", term.Printable(h.String()))
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

// String returns the hardware for people.
func (h measuredOn) String() string {
	if h.Driver == "" && h.Port == nil && h.Link == nil {
		return "a software device, whose rate is not that of a link"
	}
	var words []string
	if h.Product != nil {
		words = append(words, *h.Product)
	}
	if h.Driver != "" {
		words = append(words, h.Driver)
	}
	if h.Firmware != "" {
		words = append(words, "firmware "+h.Firmware)
	}
	line := strings.Join(words, ", ")
	for _, part := range []struct {
		name string
		of   *capacity
	}{{"port", h.Port}, {"PCIe link", h.Link}} {
		known := "of unknown rate"
		if part.of != nil {
			known = part.of.String()
		}
		line += "; " + part.name + " " + known
	}
	return line
}
