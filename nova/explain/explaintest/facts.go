package explaintest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/conf"
	"gpustack/nova/explain"
	"gpustack/nova/fit"
)

// Names in all cases.
const (
	host   = "gpu1"
	node   = "gpu1.example"
	root   = "rp1"
	noZone = "nova" // the zone of hosts without one
	// imageID is the id of the image, as integration/ask_host.py has it.
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
	pools, err := fit.ParsePools(c.Pools)
	if err != nil {
		return nil, err
	}
	n := &explain.Node{Limits: fit.Limits{CPU: c.CPURatio, RAM: c.RAMRatio}, Hypervisor: c.Hypervisor, HypervisorVersion: c.Version, CPUInfo: string(c.CPUInfo)}
	if err := json.Unmarshal(c.Supported, &n.Supported); err != nil {
		return nil, err
	}
	if string(c.Topology) != "null" {
		if n.Topology, err = fit.ParseTopology(c.Topology); err != nil {
			return nil, err
		}
	}
	s := &explain.Stock{Pools: pools, Node: n}
	for _, p := range pools {
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
	Rejects []string `json:"rejects"`
	Why     string   `json:"why"`
	Queries []string `json:"queries"` // with shared CPUs second, where pinned ones are requested
}

// Remedied returns the case with the extra spec that explain advises to set, and false if it
// advises none.
func (c Case) Remedied(r nova.Release) (Case, bool) {
	facts, err := c.Facts(r)
	if err != nil {
		return c, false
	}
	judged := explain.Judge(facts).Judgements[0]
	for _, l := range judged.Links {
		property, found := strings.CutPrefix(l.Remedy.String(), "openstack flavor set --property ")
		key, rest, _ := strings.Cut(property, "=")
		value, _, _ := strings.Cut(rest, " ")
		if judged.Failing == nil || *judged.Failing != explain.NUMA || l.Link != explain.NUMA || !found {
			continue
		}
		c.Specs = maps.Clone(c.Specs)
		c.Specs[key] = value
		return c, true
	}
	return c, false
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

// links are the links that judge what rejects a guest in Nova.
var links = map[string][]explain.Link{
	"api":                  {explain.Flavor, explain.ImageLink, explain.Alias, explain.Zone},
	"prefilter":            {explain.Filters, explain.Flavor},
	"aggregates":           {explain.Filters, explain.Zone},
	"PciPassthroughFilter": {explain.Rows},
	"NUMATopologyFilter":   {explain.NUMA},
	"claim":                {explain.NUMA},
}

// Compare returns what explain says of a case other than Nova's answer, "" for nothing.
func (c Case) Compare(r nova.Release, a Answer) string {
	facts, err := c.Facts(r)
	if err != nil {
		return err.Error()
	}
	report := explain.Judge(facts)
	judged := report.Judgements[0]
	want := explain.Can
	if len(a.Rejects) > 0 {
		want = explain.Cannot
	}
	if judged.Verdict != want {
		return fmt.Sprintf("%s, but Nova: %s %q %s", report.Conclusion, want, a.Rejects, a.Why)
	}
	if judged.Failing != nil && !slices.ContainsFunc(a.Rejects, func(name string) bool {
		of, there := links[name]
		return !there && *judged.Failing == explain.Filters || slices.Contains(of, *judged.Failing)
	}) {
		return fmt.Sprintf("%s fails: %s, but in Nova %q %s", *judged.Failing, report.Conclusion, a.Rejects, a.Why)
	}
	for i, query := range a.Queries {
		if mine := facts.Query(i > 0); mine != query && digest(mine) != query {
			return fmt.Sprintf("requests %s, but Nova %s", mine, query)
		}
	}
	return ""
}
