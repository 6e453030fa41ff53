package views

import (
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
		out := host.Map(w.GPUs, func(c fleet.Count) string { return fmt.Sprintf("%d × %s", c.GPUs, c.Title()) })
		left := host.Map(w.Left, func(k fleet.Kept) string {
			return fmt.Sprintf("%s: %d of %s (keep: %d)", k.Zone, k.Schedulable, k.Title(), k.Keep)
		})
		rows = append(rows, []string{fmt.Sprintf("%02d", w.Number), string(w.Kind), fmt.Sprint(len(w.Nodes)), orDash(strings.Join(out, ", ")),
			orDash(strings.Join(left, "; ")), foldNodes(w.Nodes)})
	}
	if rows != nil {
		u.Table([]string{"WAVE", "KIND", "COUNT", "GPUS OUT", "GPUS LEFT", "NODES"}, rows)
		u.Printf("\n")
	}
	u.Printf("%s with %s; done: %d, later: %d, blocked: %d\n", host.Numbered(len(r.Waves), "wave"), host.Numbered(nodes, "node"), r.Done,
		r.Later, len(r.Blocked))
	tableBelow(u, []string{"BLOCKED NODE", "WHY", "INSTANCES"}, host.Map(r.Blocked, func(b fleet.Blocked) []string {
		return []string{b.Node, strings.Join(b.Reasons, "; "), orDash(strings.Join(host.Map(b.Instances, fleet.Instance.String), " "))}
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
	groups := &yaml.Node{Kind: yaml.MappingNode}
	for _, w := range r.Waves {
		hosts := &yaml.Node{Kind: yaml.MappingNode}
		for _, n := range w.Nodes {
			inWave[n.Name] = true
			hosts.Content = append(hosts.Content, yamlText(names[n]), &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle})
		}
		group := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{yamlText("hosts"), hosts}}
		groups.Content = append(groups.Content, yamlText(w.Group()), group)
	}
	if len(r.Waves) == 0 {
		groups.Content = append(groups.Content, yamlText(fleet.Wave{}.Group()), &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle})
	}
	comments := []string{fmt.Sprintf("gpustack %s, %s: waves that keep %s of each product in each %s of %s, to the goal %s; done: %d, later: %d",
		r.Version, r.Time.Format(time.RFC3339), r.Keep, r.By, r.Map, r.Goal, r.Done, r.Later)}
	for _, b := range r.Blocked {
		if !inWave[b.Node] {
			comments = append(comments, fmt.Sprintf("blocked: %s: %s", b.Node, strings.Join(append(b.Reasons, host.Map(b.Instances, fleet.Instance.String)...), "; ")))
		}
	}
	all := yamlText("all")
	all.HeadComment = term.Printable(strings.Join(comments, "\n")) // a line break of a node's text begins another comment
	text, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
		all, {Kind: yaml.MappingNode, Content: []*yaml.Node{yamlText("children"), groups}},
	}})
	if err != nil {
		return err
	}
	u.Raw(string(text))
	return nil
}

// yamlText returns a string, in quotes unless it is one for every parser of YAML.
func yamlText(text string) *yaml.Node {
	var n yaml.Node
	n.SetString(text)
	if err := n.Encode(text); err != nil {
		n.Style = yaml.DoubleQuotedStyle
	}
	return &n
}
