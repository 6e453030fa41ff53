package views

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// RDMAPrepare is the output of rdma prepare (docs/json.md).
type RDMAPrepare struct {
	Report
	Changes []FileChange `json:"changes"` // the files that change, in order
	// "exclusive" if each RDMA device belongs to one network namespace from the next boot on; null:
	// as the kernel does by default
	Netns string `json:"netns" null:"zero"`
	// the adapters that are recorded when the plan is applied, by address
	Adapters []preparedAdapter `json:"adapters"`
	Programs []string          `json:"programs"` // programs that run after the files are written
	Left     []string          `json:"left"`     // programs to run on the target machine
	Notes    []string          `json:"notes"`    // what the operator has to know or to do besides
}

// preparedAdapter is an adapter of the record, with what only the plan shows.
type preparedAdapter struct {
	rdma.Prepared
	// an example of a line for OpenSM's partitions.conf with the port GUIDs; null on Ethernet
	Partitions string `json:"partitions" null:"zero"`
}

// NewRDMAPrepare returns the report of a plan of rdma prepare. head is its common part.
func NewRDMAPrepare(head Report, m rdmaprepare.Observed, plan rdmaprepare.Plan, work change.Work) RDMAPrepare {
	r := RDMAPrepare{
		Report:  head,
		Changes: FileChanges(plan.Files), Netns: string(plan.Record.Netns),
		Programs: commandLines(work.Programs), Left: commandLines(work.Left), Notes: plan.Notes,
	}
	r.Adapters = host.Map(plan.Record.Adapters, func(a rdma.Prepared) preparedAdapter { return preparedAdapter{a, rdmaprepare.Partitions(a)} })
	r.Changed = len(r.Changes) > 0
	pending := m.Pending(&plan.Record)
	r.NextBoot = len(r.Changes) > 0 && pending
	r.RebootFor(pending)
	r.then(host.NewCommand("rdma check"))
	return r
}

// PrintRDMAPrepare prints the plan as text.
func PrintRDMAPrepare(u *term.UI, r RDMAPrepare) {
	var rows [][]string
	for _, a := range r.Adapters {
		what := string(a.Use)
		if a.Whole {
			rows = append(rows, []string{a.Address.String(), "whole", a.ProductID.String(), "-", "for " + what})
			continue
		}
		for _, vf := range a.VFs {
			guids := host.Value(vf.NodeGUID).String() + ", " + host.Value(vf.PortGUID).String()
			identity := either(vf.NodeGUID != nil && vf.PortGUID != nil, guids, orDash(vf.MAC))
			rows = append(rows, []string{vf.Address.String(), fmt.Sprintf("VF %d of %s", vf.Index, a.Address), vf.ProductID.String(), identity, vf.Driver +
				" for " + what})
		}
	}
	if !printSelection(u, r.Changed, []string{"FUNCTION", "WHAT", "ID", "NODE AND PORT GUID, OR MAC", "AT BOOT"}, rows, "",
		"no adapter is prepared", "no adapter is prepared from the next boot on") {
		return
	}
	printDiffs(u, r.Changes)
	for _, line := range r.Programs {
		if line == (host.Program{Kind: host.RevertBoot}).String() {
			line += ", which reverts what was made at this boot and is not recorded any more, and remakes what is recorded otherwise"
		}
		u.Printf("then runs %s\n", line)
	}
	printPrograms(u, nil, r.Left)
	for _, a := range r.Adapters {
		if a.Partitions != "" {
			u.Printf("\npartitions.conf of OpenSM, for %s, with a name and a P_Key of yours:\n%s\n", a.Address, a.Partitions)
		}
	}
	next := either(r.NextBoot, "takes effect at the next boot, or with 'systemctl restart gpustack-boot.service'", "")
	printNotes(u, append(slices.Clone(r.Notes), next)...)
}

// RDMAPrepareSummary returns the summary of rdma prepare.
func RDMAPrepareSummary(r RDMAPrepare, recorded *rdma.Record) string {
	var parts []string
	for _, a := range r.Adapters {
		before := recorded.At(a.Address)
		switch {
		case before != nil && len(before.VFs) == len(a.VFs) && before.Whole == a.Whole && before.Use == a.Use:
		case a.Whole:
			parts = append(parts, fmt.Sprintf("%s as a whole for %s", a.Address, a.Use))
		default:
			parts = append(parts, fmt.Sprintf("%s of %s for %s", host.Numbered(len(a.VFs), "VF"), a.Address, a.Use))
		}
	}
	for _, before := range host.Value(recorded).Adapters {
		if !slices.ContainsFunc(r.Adapters, func(a preparedAdapter) bool { return a.Address == before.Address }) {
			parts = append(parts, before.Address.String()+" returned")
		}
	}
	adapters := strings.Join(parts, ", ")
	if adapters == "" && len(r.Adapters) > 0 {
		adapters = "the adapters stay as they are"
	}
	return term.Sentence(adapters, filesText(r.Changes, "changed", "new"), r.rebootText())
}
