package views

import (
	"fmt"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/rdma/trial"
)

// bandwidthText returns a bandwidth on hardware: "12500.0 MB/s (100.0 Gb/s), 190735 messages/s, 50 %
// of the port".
func bandwidthText(b trial.Bandwidth, h trial.Hardware) string {
	some := func(format string, n *float64) string {
		return either(n != nil, fmt.Sprintf(format, host.Value(n)), "")
	}
	return fmt.Sprintf("%.1f MB/s (%.2f Gb/s)", b.Average/1e6, b.Average*8/1e9) + some(", %.0f messages/s", b.MessageRate) +
		some(", %.0f %% of the port", h.Port.Percent(b.Average)) + some(", %.0f %% of the PCIe link", h.Link.Percent(b.Average))
}

// reportText returns the figures of a measurement on hardware for people.
func reportText(r *trial.Report, h trial.Hardware) string {
	switch {
	case r == nil:
		return "done: the other machine has the figures"
	case r.Bandwidth != nil:
		return bandwidthText(*r.Bandwidth, h)
	}
	return fmt.Sprintf("%.2f µs typical, %.2f µs in 99 %% of iterations", r.Latency.Typical, r.Latency.P99)
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

// printMeasurements prints what was measured, and on what, with containers beside the machine. Both
// sides on one machine say nothing of the port: adapters loop packets back.
func printMeasurements(u *term.UI, t portTest, sides string) {
	if t.Hardware == nil {
		return
	}
	h := *t.Hardware
	u.Printf("  measured on: %s\n", term.Printable(hardwareText(h)))
	if sides == sidesLoopback {
		h.Port = nil
	}
	for _, m := range t.Measurements {
		if m.Contained {
			continue
		}
		size := either(m.Report != nil, fmt.Sprintf(" %d", host.Value(m.Report).Bytes), "")
		u.Printf("  %-18s  %s\n", m.Program+size, reportText(m.Report, h))
		for _, beside := range t.Measurements {
			if beside.Contained && beside.Program == m.Program {
				u.Printf("  %-18s  %s\n", "  in a container", reportText(beside.Report, h))
			}
		}
	}
}

// hardwareText returns the hardware for people.
func hardwareText(h trial.Hardware) string {
	if h.Driver == "" && h.Port == nil && h.Link == nil {
		return "a software device, whose rate is not that of a link"
	}
	return term.Join(", ", h.Product, h.Driver, after("firmware ", h.Firmware)) + "; port " + capacityText(h.Port) + "; PCIe link " + capacityText(h.Link)
}
