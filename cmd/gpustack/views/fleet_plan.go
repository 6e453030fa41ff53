package views

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"gpustack/cmd/gpustack/term"
	"gpustack/fleet"
	"gpustack/host"
	"gpustack/nova/explain"
)

// FleetPlan is the output of fleet plan (docs/json.md).
type FleetPlan struct {
	Schema  int    `json:"schema"`
	Version string `json:"-"` // for people: Head has it
	// when the plan was made; the age of the nodes' documents is counted to it
	Time time.Time `json:"time"`
	Goal string    `json:"goal"` // the value of --goal
	By   fleet.By  `json:"by"`   // what the waves keep GPUs in
	Keep string    `json:"keep"` // the value of --keep
	Map  string    `json:"map"`  // the file of --map
	fleet.Plan
	// hosts with several documents of one kind; documents of other commands
	Warnings []string `json:"warnings"`
}

// NewFleetPlan returns the report of a plan.
func NewFleetPlan(p fleet.Plan, o fleet.PlanOptions, version string, warnings []string) FleetPlan {
	return FleetPlan{
		Schema: 1, Version: version, Time: o.Now, Goal: o.Goal.String(), By: o.Zones.By, Keep: o.Keep.String(), Map: o.Map, Plan: p, Warnings: warnings,
	}
}

// Print prints the waves, and the nodes and hosts that are in none.
func (r FleetPlan) Print(u *term.UI) {
	var rows [][]string
	nodes := 0
	for _, w := range r.Waves {
		nodes += len(w.Nodes)
		var out, left []string
		for _, c := range w.GPUs {
			out = append(out, fmt.Sprintf("%d × %s", c.GPUs, c.Title()))
		}
		for _, k := range w.Left {
			left = append(left, fmt.Sprintf("%s: %d of %s (keep: %d)", k.Zone, k.Schedulable, k.Title(), k.Keep))
		}
		rows = append(rows, []string{fmt.Sprintf("%02d", w.Number), string(w.Kind), fmt.Sprint(len(w.Nodes)), orDash(strings.Join(out, ", ")),
			orDash(strings.Join(left, "; ")), foldNodes(w.Nodes)})
	}
	if rows != nil {
		u.Table([]string{"WAVE", "KIND", "COUNT", "GPUS OUT", "GPUS LEFT", "NODES"}, rows)
		u.Printf("\n")
	}
	u.Printf("%s with %s; done: %d, later: %d, blocked: %d\n", host.Numbered(len(r.Waves), "wave"), host.Numbered(nodes, "node"), r.Done,
		r.Later, len(r.Blocked))
	tableBelow(u, []string{"BLOCKED NODE", "WHY", "INSTANCES"}, rowsOf(r.Blocked, func(b fleet.Blocked) []string {
		return []string{b.Node, strings.Join(b.Reasons, "; "), orDash(strings.Join(texts(b.Instances), " "))}
	}))
	if len(r.Without) > 0 {
		u.Printf("\n%s\n", term.Printable("hosts without documents, of which no GPU counts: "+explain.Names(r.Without, 0)))
	}
}

// PrintAnsible prints the waves as groups of a static inventory of Ansible in YAML, which has the
// names of nodes. Where nothing is left to do, wave_00 is empty. Blocked nodes that are in no wave are
// in no group, but in comments. No line is broken: the rest of a comment would not be one.
func (r FleetPlan) PrintAnsible(u *term.UI, names map[*fleet.Node]string) error {
	inWave := map[string]bool{}
	var groups strings.Builder
	for _, w := range r.Waves {
		fmt.Fprintf(&groups, "        %s:\n            hosts:\n", w.Group())
		for _, n := range w.Nodes {
			inWave[n.Name] = true
			name, err := yaml.Marshal(names[n]) // in quotes unless it is a string for every parser of YAML
			if err != nil {
				return err
			}
			fmt.Fprintf(&groups, "                %s: {}\n", bytes.TrimSpace(name))
		}
	}
	if len(r.Waves) == 0 {
		fmt.Fprintf(&groups, "        %s: {}\n", fleet.Wave{}.Group())
	}
	comments := []string{fmt.Sprintf("gpustack %s, %s: waves that keep %s of each product in each %s of %s, to the goal %s; done: %d, later: %d",
		r.Version, r.Time.Format(time.RFC3339), r.Keep, r.By, r.Map, r.Goal, r.Done, r.Later)}
	for _, b := range r.Blocked {
		if !inWave[b.Node] {
			comments = append(comments, fmt.Sprintf("blocked: %s: %s", b.Node, strings.Join(append(b.Reasons, texts(b.Instances)...), "; ")))
		}
	}
	lines := strings.Split(term.Printable(strings.Join(comments, "\n")), "\n") // a line break of a node's text begins another comment
	u.Raw("# " + strings.Join(lines, "\n# ") + "\nall:\n    children:\n" + groups.String())
	return nil
}

func texts(instances []fleet.Instance) (all []string) {
	for _, i := range instances {
		all = append(all, i.String())
	}
	return all
}
