package explaintest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/conf"
	"gpustack/nova/explain"
	"gpustack/nova/pools"
)

// Names in all cases.
const (
	host   = "gpu1"
	node   = "gpu1.example"
	root   = "rp1"
	noZone = "nova" // the zone of hosts without one
	// imageID is the id of the image, as templates/nova/judge.py has it.
	imageID = "00000000-0000-0000-0000-000000000061"
)

// Facts returns what explain knows of a case.
//
// Errors: a text of the case that explain cannot read.
func (c Case) Facts(r nova.Release) (explain.Facts, error) {
	file, err := conf.Parse([]byte(c.conf()))
	if err != nil {
		return explain.Facts{}, err
	}
	stock, err := c.stock()
	if err != nil {
		return explain.Facts{}, err
	}
	f := explain.Facts{
		Release: r,
		Flavor: cloud.Flavor{ID: "1", Name: "f", VCPUs: c.VCPUs, RAM: c.RAM, Disk: c.Disk, Swap: c.Swap, Public: true,
			ExtraSpecs: c.Specs},
		Image: &cloud.Image{ID: imageID, Name: "i", DiskFormat: c.Format, Properties: c.Image}, Volume: c.Volume, Project: c.Project, Zone: c.Zone,
		Sides:     []nova.Side{{Role: nova.Controller, Files: []conf.Source{{Name: "ctl.conf", File: file}}}},
		Databases: true, Placement: &explain.Placement{}, Group: c.group(),
	}
	zone := noZone
	for i, a := range c.Aggregates {
		one := cloud.Aggregate{Name: fmt.Sprintf("a%d", i), Metadata: a.Metadata}
		if a.HasHost {
			one.Hosts = []string{host}
			if z := a.Metadata["availability_zone"]; z != "" {
				zone = z
			}
		}
		f.Aggregates = append(f.Aggregates, one)
	}
	f.Hosts = []explain.Host{{Name: host, Node: node, Provider: root, Stock: stock,
		Service: &cloud.ComputeService{Host: host, Zone: zone, Up: true, Enabled: true}}}
	return f, nil
}

// conf returns nova.conf of the controller.
func (c Case) conf() string {
	var text strings.Builder
	text.WriteString("[pci]\n")
	for _, a := range c.Aliases {
		fmt.Fprintf(&text, "alias = %s\n", a)
	}
	fmt.Fprintf(&text, "[filter_scheduler]\nenabled_filters = %s\n", strings.Join(c.Filters, ","))
	for _, option := range slices.Sorted(maps.Keys(c.Options)) {
		fmt.Fprintf(&text, "%s = %s\n", option, c.Options[option])
	}
	text.WriteString("[scheduler]\n")
	for _, option := range slices.Sorted(maps.Keys(c.Scheduler)) {
		fmt.Fprintf(&text, "%s = %t\n", option, c.Scheduler[option])
	}
	return text.String()
}

// stock returns the row of compute_nodes, with a free row of pci_devices for each device.
func (c Case) stock() (*explain.Stock, error) {
	list, err := pools.ParsePools(c.Pools)
	if err != nil {
		return nil, err
	}
	n := &explain.Node{PCIStats: c.Pools, Supported: c.Supported, CPURatio: c.CPURatio, RAMRatio: c.RAMRatio, Hypervisor: c.Hypervisor,
		HypervisorVersion: c.Version, CPUInfo: string(c.CPUInfo)}
	if string(c.Topology) != "null" {
		n.Topology = c.Topology
	}
	s := &explain.Stock{Pools: list, Node: n}
	for _, p := range list {
		for range p.Count {
			s.Rows = append(s.Rows, explain.Row{Vendor: p.Vendor, Product: p.Product, Type: p.Type, NUMA: p.NUMA, Status: "available"})
		}
	}
	return s, nil
}

func (c Case) group() *explain.ServerGroup {
	if c.Group == nil {
		return nil
	}
	g := &explain.ServerGroup{Name: "g", Policy: c.Group.Policy, Most: c.Group.Most, Members: map[string]int{}}
	if c.Group.OnHost > 0 {
		g.Members[host] = c.Group.OnHost
	}
	if c.Group.Beside > 0 {
		g.Members["gpu2"] = c.Group.Beside
	}
	return g
}

// Answer is what Nova says of a case: what rejects the guest, and what it requests from Placement.
type Answer struct {
	Rejects []string
	Queries []string // with shared CPUs second, where pinned ones are requested
}

// Of returns an answer of templates.NovaJudge in the words of records.
func Of(a *explain.Answer) (answer Answer) {
	words := map[string]string{"nova-api": "api", "nova-scheduler": "prefilter", "request filters of [scheduler]": "aggregates", "nova-compute": "claim"}
	rejections := a.Rejects
	for _, h := range a.Hosts {
		rejections = append(rejections, h.Rejects...)
	}
	for _, r := range rejections {
		answer.Rejects = append(answer.Rejects, cmp.Or(words[r.Filter], r.Filter))
	}
	for _, q := range a.Queries {
		var amounts, required, forbidden []string
		for _, class := range slices.Sorted(maps.Keys(q.Resources)) {
			amounts = append(amounts, fmt.Sprintf("%s:%d", class, q.Resources[class]))
		}
		for _, trait := range slices.Sorted(slices.Values(q.Traits)) {
			if strings.HasPrefix(trait, "!") {
				forbidden = append(forbidden, trait)
			} else {
				required = append(required, trait)
			}
		}
		answer.Queries = append(answer.Queries, strings.Join(amounts, ",")+" "+strings.Join(append(required, forbidden...), ","))
	}
	return answer
}

// With returns an answer of templates.NovaJudge with what links of explain judge in its place: that
// nova-api rejects a zone that no host has, and AvailabilityZoneFilter.
func (c Case) With(a Answer, r nova.Release) Answer {
	zone := noZone
	for _, g := range c.Aggregates {
		if z := g.Metadata["availability_zone"]; g.HasHost && z != "" {
			zone = z
		}
	}
	if slices.Contains(a.Rejects, "api") {
		return a // no filter sees the request
	}
	isOther := c.Zone != "" && c.Zone != zone
	if isOther {
		a.Rejects = append(a.Rejects, "api")
	}
	const filter = "AvailabilityZoneFilter"
	if slices.Contains(c.Filters, filter) && (isOther || !r.HasFilter(filter)) {
		a.Rejects = append(a.Rejects, filter)
	}
	return a
}

// letters are what rejects a guest, in records.
var letters = []struct{ letter, name string }{
	{"a", "api"}, {"f", "prefilter"}, {"g", "aggregates"}, {"P", "PciPassthroughFilter"}, {"N", "NUMATopologyFilter"}, {"c", "claim"}, {"I", "ImagePropertiesFilter"},
	{"C", "ComputeCapabilitiesFilter"}, {"E", "AggregateInstanceExtraSpecsFilter"}, {"T", "AggregateMultiTenancyIsolation"},
	{"S", "ServerGroupAffinityFilter"}, {"D", "ServerGroupAntiAffinityFilter"}, {"A", "AggregateImagePropertiesIsolation"}, {"Y", "AggregateTypeAffinityFilter"},
	{"H", "IsolatedHostsFilter"}, {"Z", "AvailabilityZoneFilter"},
}

// Record returns an answer as a word: a letter for each part of Nova that rejects the guest, and
// digests of the requests to Placement.
func (a Answer) Record() string {
	var word strings.Builder
	word.WriteString("-")
	for _, l := range letters {
		if slices.Contains(a.Rejects, l.name) {
			word.WriteString(l.letter)
		}
	}
	for _, query := range a.Queries {
		word.WriteString(" " + digest(query))
	}
	return word.String()
}

func digest(query string) string {
	const short = 4
	sum := sha256.Sum256([]byte(query))
	return hex.EncodeToString(sum[:short])
}

// ParseRecord reads what Record has returned. Queries of the answer are digests.
func ParseRecord(word string) (a Answer) {
	rejects, queries, _ := strings.Cut(word, " ")
	for _, l := range letters {
		if strings.Contains(rejects, l.letter) {
			a.Rejects = append(a.Rejects, l.name)
		}
	}
	a.Queries = strings.Fields(queries)
	return a
}

// Compare returns what explain says of a case against Nova's answer, "" for nothing: by its links
// alone a host is never "can" that Nova rejects, nor "cannot" that Nova accepts. With the answer of
// Nova's code, it is what that says.
func (c Case) Compare(r nova.Release, a Answer, code *explain.Answer) string {
	facts, err := c.Facts(r)
	if err != nil {
		return err.Error()
	}
	report := explain.Judge(facts)
	if accepts := len(a.Rejects) == 0; report.Verdict == explain.Can && !accepts || report.Verdict == explain.Cannot && accepts {
		return fmt.Sprintf("%s, but in Nova %q", report.Conclusion, a.Rejects)
	}
	if code == nil {
		return ""
	}
	facts.Answer = code
	want := explain.Can
	if len(a.Rejects) > 0 {
		want = explain.Cannot
	}
	if report = explain.Judge(facts); report.Verdict != want {
		return fmt.Sprintf("with the answer of Nova: %s, but in Nova %q", report.Conclusion, a.Rejects)
	}
	return ""
}
