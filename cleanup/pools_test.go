package cleanup

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// stats is a PciDevicePoolList with these pools: "vendor:product type numa count", numa - for none.
func stats(pools ...string) []byte {
	var objects []string
	for _, p := range pools {
		var vendor, kind, numa string
		var count int
		if _, err := fmt.Sscan(p, &vendor, &kind, &numa, &count); err != nil {
			panic(err)
		}
		id, product, _ := strings.Cut(vendor, ":")
		if numa == "-" {
			numa = "null"
		}
		objects = append(objects, fmt.Sprintf(`{"nova_object.name": "PciDevicePool", "nova_object.data": {"vendor_id": %q, "product_id": %q, "numa_node": %s, "count": %d, "tags": {"dev_type": %q, "name": "x"}}}`,
			id, product, numa, count, kind))
	}
	return []byte(`{"nova_object.name": "PciDevicePoolList", "nova_object.namespace": "nova", "nova_object.data": {"objects": [` + strings.Join(objects, ", ") + `]}}`)
}

func TestClassifyPools(t *testing.T) {
	gpu := Pool{"10de", "11b4", TypePCI, "0"}
	elsewhere := Pool{"10de", "11b4", TypePCI, "1"}
	vf := Pool{"8086", "56c0", TypeVF, ""}
	two := map[Pool]Free{gpu: {Count: 2}}
	for name, test := range map[string]struct {
		stats   []byte
		rows    map[Pool]Free
		down    bool
		changed time.Duration // how long ago; 0 for no time
		want    string        // of a finding; "" for none
		not     string        // why it was not judged
	}{
		"they match":                           {stats: stats("10de:11b4 type-PCI 0 2"), rows: two},
		"several pools of one kind":            {stats: stats("10de:11b4 type-PCI 0 1", "10de:11b4 type-PCI 0 1"), rows: two},
		"without devices":                      {stats: stats()},
		"without devices and pci_stats":        {},
		"a pool is missing":                    {stats: stats(), rows: two, want: "pci_stats has 0 free 10de:11b4 type-PCI of NUMA node 0, the rows have 2: nova-scheduler does not use free devices of the node"},
		"a pool has too many":                  {stats: stats("10de:11b4 type-PCI 0 3"), rows: two, want: "pci_stats has 3 free 10de:11b4 type-PCI of NUMA node 0, the rows have 2: nova-scheduler sends guests to the node for devices that it does not have free"},
		"a pool that no row is in":             {stats: stats("8086:56c0 type-VF - 4"), want: "pci_stats has 4 free 8086:56c0 type-VF, the rows have 0: nova-scheduler sends guests to the node for devices that it does not have free"},
		"on another NUMA node":                 {stats: stats("10de:11b4 type-PCI 0 2"), rows: map[Pool]Free{elsewhere: {Count: 2}}, want: "pci_stats has 2 free 10de:11b4 type-PCI of NUMA node 0, the rows have 0; pci_stats has 0 free 10de:11b4 type-PCI of NUMA node 1, the rows have 2: nova-scheduler does not use free devices of the node; nova-scheduler sends guests to the node for devices that it does not have free"},
		"the last change has no time":          {stats: stats(), rows: map[Pool]Free{vf: {Count: 1}}, want: "pci_stats has 0 free 8086:56c0 type-VF, the rows have 1: nova-scheduler does not use free devices of the node"},
		"a row with an owner counts, or not":   {stats: stats("10de:11b4 type-PCI 0 2"), rows: map[Pool]Free{gpu: {Count: 1, Owned: 1}}},
		"a row with an owner does not, or may": {stats: stats("10de:11b4 type-PCI 0 1"), rows: map[Pool]Free{gpu: {Count: 1, Owned: 1}}},
		"more than rows with an owner explain": {stats: stats("10de:11b4 type-PCI 0 3"), rows: map[Pool]Free{gpu: {Count: 1, Owned: 1}}, want: "pci_stats has 3 free 10de:11b4 type-PCI of NUMA node 0, the rows have 2: nova-scheduler sends guests to the node for devices that it does not have free"},
		"nova-compute is down":                 {stats: stats(), rows: two, down: true, not: "pci_stats has 0 free 10de:11b4 type-PCI of NUMA node 0, the rows have 2, but nova-compute on gpu1 last seen 2 h ago: nova-scheduler does not use the node, and nova-compute corrects them when it starts"},
		"a row changed just now":               {stats: stats(), rows: two, changed: 4*time.Minute + 59*time.Second, not: "pci_stats has 0 free 10de:11b4 type-PCI of NUMA node 0, the rows have 2, but a row of the node changed 4 min ago: run gpustack repair-migration again in 5m0s"},
		"a row changed in the future":          {stats: stats(), rows: two, changed: -time.Hour, not: "pci_stats has 0 free 10de:11b4 type-PCI of NUMA node 0, the rows have 2, but a row of the node changed 0 s ago: run gpustack repair-migration again in 5m0s"},
		"a row changed five minutes ago":       {stats: stats(), rows: two, changed: 5 * time.Minute, want: "pci_stats has 0 free 10de:11b4 type-PCI of NUMA node 0, the rows have 2: nova-scheduler does not use free devices of the node"},
		"NULL":                                 {rows: two, not: "pci_stats is NULL, although the node has free devices"},
		"malformed":                            {stats: []byte("{"), rows: two, not: "pci_stats: unexpected end of JSON input"},
		"malformed, without rows":              {stats: []byte(""), not: "pci_stats: unexpected end of JSON input"},
		// Before the objects (nova/objects/pci_device_pool.py, from_pci_stats).
		"a list": {stats: []byte(`[{"vendor_id": "10de", "product_id": "11b4", "numa_node": 0, "dev_type": "type-PCI", "count": 2}]`), rows: two},
		"without types": {stats: []byte(`[{"vendor_id": "10de", "product_id": "11b4", "numa_node": null, "count": 5}]`),
			rows: map[Pool]Free{vf: {Count: 1}}, not: "pci_stats: a pool lacks vendor_id, product_id or dev_type"},
	} {
		t.Run(name, func(t *testing.T) {
			n := NodeStats{Cell: "cell1", Now: now, Down: time.Minute, Node: gpu1, Service: service(gpu1, 10*time.Second)}
			n.Differences, n.Err = ComparePools(test.stats, test.rows)
			if test.down {
				n.Service = service(gpu1, 2*time.Hour)
			}
			if test.changed != 0 {
				n.Changed = now.Add(-test.changed)
			}
			var got, not string
			switch f := classifyPools(n); {
			case n.Err == nil && len(n.Differences) == 0: // as the nodes that are not added to a report
			case f.Verdict == Suspicious:
				got = f.Reason + ": " + f.Consequence
				if f.Case != "O" || !strings.HasPrefix(f.Steps.String(), "restart nova-compute on gpu1") || len(f.Pools) == 0 {
					t.Errorf("%+v", f)
				}
			case f.Verdict != Unknown || f.Pools == nil || f.Consequence != "":
				t.Errorf("%+v", f)
			case len(f.Steps) > 0:
				not = f.Reason + ": " + f.Steps.String()
			default:
				not = f.Reason
			}
			if got != test.want || not != test.not {
				t.Errorf("found %q, want %q\nnot judged %q, want %q", got, test.want, not, test.not)
			}
		})
	}
}

// TestPoolReport: a report lists a bounded number of nodes and counts all.
func TestPoolReport(t *testing.T) {
	var r PoolReport
	for i := range 3 * mostPools {
		host := fmt.Sprintf("gpu%06d", i)
		n := NodeStats{Cell: "cell1", Now: now, Down: time.Minute, Node: Node{ID: int64(i), Host: host, Name: host}, Changed: now.Add(-time.Hour)}
		n.Service = service(n.Node, time.Duration(i%3)*time.Hour)
		n.Differences, n.Err = ComparePools(stats(), map[Pool]Free{{"10de", "11b4", TypePCI, "0"}: {Count: 2}})
		r.Add(n)
	}
	r.Sort()
	if got := fmt.Sprint(r.Nodes, len(r.Findings), r.Suspicious, r.Unknown); got != "300 200 100 200" || r.Findings[mostPools].Verdict != Unknown {
		t.Error(got)
	}
}
