package views

import (
	"fmt"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/hardware"
)

// printMachine prints the facts of a machine as a short paragraph. What is unknown is left out: a
// warning has said so.
func printMachine(u *term.UI, m hardware.Facts) {
	u.Printf("\n")
	line := func(label string, parts ...string) {
		if text := term.Join(", ", parts...); text != "" {
			u.Printf("%-9s %s\n", label, term.Printable(text))
		}
	}
	words := func(values ...*string) string { return term.Join(" ", host.Map(values, host.Value[string])...) }
	line("machine", words(m.Vendor, m.Product), after("board ", words(m.Board.Vendor, m.Board.Product, m.Board.Version)),
		after("BIOS ", words(m.BIOS.Vendor, m.BIOS.Version, m.BIOS.Date)))
	line("CPU", words(m.CPU.Model), countOf(m.CPU.Sockets, "sockets"), countOf(m.CPU.Cores, "cores"), countOf(m.CPU.Threads, "threads"))
	line("memory", bytesOf(m.Memory.Total, "installed"), bytesOf(m.Memory.Usable, "usable"), pages(m.Memory.HugePages))
	for _, n := range m.Nodes {
		line(fmt.Sprintf("NUMA %d", n.ID), countOf(n.Cores, "cores"), countOf(n.Threads, "threads"), bytesOf(n.Memory.Usable, "usable"), pages(n.Memory.HugePages))
	}
	for _, d := range m.Disks {
		kind := map[host.Bool]string{host.Yes: "rotational"}[d.Rotational]
		line("disk", d.Name, bytesOf(d.Size, ""), words(d.Model), words(d.Controller), kind)
	}
	for _, n := range m.NICs {
		speed := either(n.Speed != nil, fmt.Sprintf("%d Mbit/s", host.Value(n.Speed)), "")
		line("network", n.Name, words(n.Address), words(n.Driver), speed)
	}
}

// countOf returns a number with its unit, "" if it is unknown.
func countOf(n *int, unit string) string {
	return either(n != nil, unit+": "+Text(n), "")
}

// bytesOf returns a number of bytes as a size, "" if it is unknown.
func bytesOf(n *int64, what string) string {
	return either(n != nil, strings.TrimSpace(sizeText(host.Value(n))+" "+what), "")
}

// sizeText returns a number of bytes in the largest unit of which it has at least one, with one
// digit after the point.
func sizeText(n int64) string {
	const units = "KMGTP"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < len(units)-1 {
		value, unit = value/(1<<10), unit+1
	}
	return strings.Replace(fmt.Sprintf("%.1f %ciB", value, units[unit]), ".0 ", " ", 1)
}

// pages returns the pools of huge pages that have pages.
func pages(pools []hardware.HugePages) string {
	var known []string
	for _, p := range pools {
		if p.Total > 0 {
			known = append(known, fmt.Sprintf("huge pages of %s: %d (free: %d)", sizeText(p.Size), p.Total, p.Free))
		}
	}
	return strings.Join(known, ", ")
}
