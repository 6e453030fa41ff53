package views

import (
	"fmt"

	"gpustack/cleanup"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// printPools prints the compute nodes whose pools do not match their rows, and a summary.
func printPools(u *term.UI, r cleanup.PoolReport) {
	for _, f := range r.Findings {
		if f.Verdict == cleanup.Unknown {
			continue
		}
		u.Printf("\n")
		printFound(u, nodeName(f.Host, f.Node)+" pci_stats", f.Verdict, f.Case, [][2]string{
			{"why", f.Reason}, {"seen", f.Evidence}, {"so", f.Consequence}, {"repair", f.Steps.String()},
		})
	}
	if r.Suspicious > 0 {
		u.Printf("\n")
	}
	if !r.Judged {
		u.Printf("pools not judged: %s\n", term.Printable(r.Why))
		return
	}
	u.Printf("pools of %d compute nodes: %d suspicious, %d not judged\n", r.Nodes, r.Suspicious, r.Unknown)
	why := func(f cleanup.PoolFinding) string { return f.Reason + after(": ", f.Steps.String()) }
	unknown := host.Filter(r.Findings, func(f cleanup.PoolFinding) bool { return f.Verdict == cleanup.Unknown })
	for _, same := range grouped(unknown, why) {
		names := host.Map(same, func(f cleanup.PoolFinding) string { return nodeName(f.Host, f.Node) })
		u.Printf("  not judged: %s: %s\n", term.Printable(host.Shortened(names, 3)), term.Printable(why(same[0])))
	}
	if more := r.Suspicious + r.Unknown - len(r.Findings); more > 0 {
		u.Printf("  %d of them are not listed\n", more)
	}
}

// nodeName returns the name of a compute node: that of its host, if the host has only this one.
func nodeName(host, node string) string {
	return either(node == host, host, host+" (node "+node+")")
}

// printAllocations prints the allocations that are not legitimate, and a summary.
func printAllocations(u *term.UI, r cleanup.AllocationReport) {
	unknown := len(host.Filter(r.Findings, func(f cleanup.AllocationFinding) bool { return f.Verdict == cleanup.Unknown }))
	for _, f := range r.Findings {
		u.Printf("\n")
		printFound(u, f.Name+" allocated to "+f.Consumer, f.Verdict, f.Case, [][2]string{
			{"why", f.Reason}, {"seen", f.Evidence}, {"so", f.Consequence}, {"repair", f.Steps.String()},
		})
	}
	if len(r.Findings) > 0 {
		u.Printf("\n")
	}
	if r.Providers > 0 || r.Judged {
		line := fmt.Sprintf("allocations on %d PCI providers: %d suspicious, %d unknown", r.Providers, len(r.Findings)-unknown, unknown)
		line += either(r.Recent > 0, fmt.Sprintf(", %d changed just now and not judged", r.Recent), "")
		u.Printf("%s\n", line)
	}
	if !r.Judged {
		u.Printf("allocations not judged: %s\n", term.Printable(r.Why))
	}
}
