package cleanup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/nova/pools"
)

// CasePools is the case of a compute node, not of a row.
const CasePools Case = "O" // compute_nodes.pci_stats does not match the node's rows

// poolsQuiet is for how long no row of a node must have changed before its pools are judged:
// nova-compute writes pci_stats and the rows in different transactions, with requests to Placement
// between them (nova/compute/resource_tracker.py, _update).
const poolsQuiet = 5 * time.Minute

// Pool identifies devices that nova-compute counts together, by the keys that every release since
// Mitaka has (nova/pci/stats.py, PciDeviceStats.pool_keys). Tags split these pools further, by the
// device_spec of nova.conf on that host, which the database does not have.
type Pool struct {
	Vendor, Product, Type string

	NUMA string // "" for a device without a NUMA node
}

// String returns the devices of the pool as text.
func (p Pool) String() string {
	text := p.Vendor + ":" + p.Product + " " + p.Type
	if p.NUMA != "" {
		text += " of NUMA node " + p.NUMA
	}
	return text
}

// Free counts rows with status available.
type Free struct {
	Count int // without an owner
	// Owned rows have an instance_uuid left (case H). nova-compute counts them as long as a
	// device_spec matches the device; it cannot delete the row when none does any more
	// (nova/objects/pci_device.py, remove).
	Owned int
}

// NodeStats are the facts about the pools of one compute node.
type NodeStats struct {
	Cell        string
	Now         time.Time // of the database's clock
	Down        time.Duration
	Node        Node
	Service     *Service         // nil: there is none, or it is deleted
	Differences []PoolDifference // of ComparePools
	Err         error            // of ComparePools
	Changed     time.Time        // of the row that changed last, deleted rows among them; zero if no row has a time
}

// PoolDifference is a pool that does not match the node's rows.
type PoolDifference struct {
	Vendor   string `json:"vendor_id"`  // the vendor of the pool's devices
	Product  string `json:"product_id"` // the product of the pool's devices
	Type     string `json:"dev_type"`   // the type of the pool's devices
	NUMA     *int   `json:"numa_node"`  // nil for none
	Recorded int    `json:"recorded"`   // free devices by pci_stats
	Free     int    `json:"free"`       // rows with status "available"

	pool Pool
}

func newDifference(p Pool, recorded, free int) PoolDifference {
	d := PoolDifference{Vendor: p.Vendor, Product: p.Product, Type: p.Type, Recorded: recorded, Free: free, pool: p}
	if numa, err := strconv.Atoi(p.NUMA); err == nil {
		d.NUMA = &numa
	}
	return d
}

// PoolFinding is the judgement of a compute node whose pools do not match its rows.
type PoolFinding struct {
	Cell string `json:"cell"` // the name of the cell
	Host string `json:"host"` // the host of the compute node
	Node string `json:"node"` // the compute node
	Case Case   `json:"case"` // always "O"
	// "suspicious", or "unknown": pci_stats is NULL or malformed; or it does not match, but
	// nova-compute is down or a row has changed within five minutes
	Verdict     Verdict          `json:"verdict"`
	Pools       []PoolDifference `json:"differences"` // the pools that do not match
	Evidence    string           `json:"evidence"`    // the records it is based on
	Reason      string           `json:"reason"`      // why the verdict follows
	Consequence string           `json:"consequence"` // the effect of leaving it; "" for unknown ones
	Steps       host.Text        `json:"steps"`       // what the operator should do
}

// ComparePools returns the pools of a node that do not match its rows, sorted. stats is pci_stats,
// nil for NULL. A node without rows and without pci_stats has none.
//
// Errors: pci_stats is NULL although the node has free rows, or cannot be read.
func ComparePools(stats []byte, rows map[Pool]Free) ([]PoolDifference, error) {
	if stats == nil {
		if len(rows) > 0 {
			return nil, errors.New("pci_stats is NULL, although the node has free devices")
		}
		return nil, nil
	}
	recorded, err := pools.ParsePools(stats)
	if err != nil {
		return nil, err
	}
	counts, all := map[Pool]int{}, maps.Clone(rows)
	if all == nil {
		all = map[Pool]Free{}
	}
	for _, p := range recorded {
		key := Pool{Vendor: p.Vendor, Product: p.Product, Type: p.Type}
		if p.NUMA != nil {
			key.NUMA = strconv.Itoa(*p.NUMA)
		}
		counts[key] += p.Count
		all[key] = rows[key] // also of a pool that no row is in
	}
	var differences []PoolDifference
	for p, free := range all {
		if counted := counts[p]; counted < free.Count || counted > free.Count+free.Owned {
			differences = append(differences, newDifference(p, counted, free.Count+free.Owned))
		}
	}
	slices.SortFunc(differences, func(a, b PoolDifference) int { return strings.Compare(a.pool.String(), b.pool.String()) })
	return differences, nil
}

// classifyPools judges the pools of a node that do not match its rows. Only differences of a node whose
// nova-compute is up and none of whose rows has changed for poolsQuiet are suspicious: all others may be
// corrected by the next audit, or when nova-compute starts.
func classifyPools(n NodeStats) PoolFinding {
	c := &classifier{f: Facts{Now: n.Now, Down: n.Down, Service: n.Service, Node: &n.Node}}
	quiet := n.Now.Sub(n.Changed)
	evidence := c.compute() + "; no row of the node has a time of change"
	if !n.Changed.IsZero() {
		evidence = c.compute() + "; no row of the node changed for " + age(quiet)
	}
	found := PoolFinding{Cell: n.Cell, Host: n.Node.Host, Node: n.Node.Name, Case: CasePools, Verdict: Unknown, Pools: n.Differences,
		Evidence: evidence, Reason: textOf(n.Differences)}
	switch {
	case n.Err != nil:
		found.Pools, found.Reason = []PoolDifference{}, n.Err.Error()
	case !c.f.up():
		found.Reason += ", but " + c.compute()
		found.Steps = host.Plain("nova-scheduler does not use the node, and nova-compute corrects them when it starts")
	case quiet < poolsQuiet && !n.Changed.IsZero():
		found.Reason += fmt.Sprintf(", but a row of the node changed %s ago", age(max(0, quiet)))
		found.Steps = host.Textf("run %s again in %s", again, poolsQuiet)
	default:
		found.Verdict, found.Consequence = Suspicious, consequenceOf(n.Differences)
		found.Steps = host.Textf("restart nova-compute on %s: it reads its rows when it starts, and then reports its free devices again", n.Node.Host)
	}
	return found
}

// textOf returns differences as text.
func textOf(differences []PoolDifference) string {
	all := host.Map(differences, func(d PoolDifference) string {
		return fmt.Sprintf("pci_stats has %d free %s, the rows have %d", d.Recorded, d.pool, d.Free)
	})
	return strings.Join(all, "; ")
}

// consequenceOf returns the impact of the differences.
func consequenceOf(differences []PoolDifference) string {
	var more, less bool
	for _, d := range differences {
		more, less = more || d.Recorded > d.Free, less || d.Recorded < d.Free
	}
	var all []string
	if less {
		all = append(all, "nova-scheduler does not use free devices of the node")
	}
	if more {
		all = append(all, "nova-scheduler sends guests to the node for devices that it does not have free")
	}
	return strings.Join(all, "; ")
}

// mostPools limits the lists of a PoolReport, so that the report on a cloud in which all nodes differ
// can be read.
const mostPools = 100

// PoolReport is what was found about the pools of all compute nodes.
type PoolReport struct {
	Judged bool   `json:"judged"` // whether the pools of the selected compute nodes were compared
	Why    string `json:"why"`    // why no node was judged; "" if nodes were
	Nodes  int    `json:"nodes"`  // how many nodes' pools were compared
	// compute nodes whose pools do not match their rows, the suspicious ones first, by cell, host and
	// node: 100 at most of each verdict
	Findings   []PoolFinding `json:"findings"`
	Suspicious int           `json:"suspicious"` // compute nodes whose pools do not match their rows, listed or not
	Unknown    int           `json:"unknown"`    // compute nodes of which nothing can be concluded, listed or not
}

// Add judges a node whose pools do not match, and adds it to the report.
func (r *PoolReport) Add(n NodeStats) {
	r.Nodes++
	found := classifyPools(n)
	number := &r.Suspicious
	if found.Verdict == Unknown {
		number = &r.Unknown
	}
	if *number++; *number <= mostPools {
		r.Findings = append(r.Findings, found)
	}
}

// Sort sorts the findings.
func (r *PoolReport) Sort() {
	slices.SortFunc(r.Findings, func(a, b PoolFinding) int {
		return cmp.Or(strings.Compare(string(a.Verdict), string(b.Verdict)), strings.Compare(a.Cell, b.Cell), strings.Compare(a.Host, b.Host),
			strings.Compare(a.Node, b.Node))
	})
}
