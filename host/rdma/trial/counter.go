package trial

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Counter is a counter of a port that has moved.
type Counter struct {
	Name  string `json:"counter"`  // its name in sysfs
	Delta uint64 `json:"delta"`    // by how much it rose
	Error bool   `json:"is_error"` // whether it counts errors
}

// counters are the counters of a port by name.
type counters map[string]uint64

// counterDirs are the folders with counters below that of a port (Linux,
// Documentation/ABI/stable/sysfs-class-infiniband). Software devices have only the second.
var counterDirs = []string{"counters", "hw_counters"}

// readCounters reads the counters of a port. Adapters show files of counters that they do not
// have: their reads fail, or return a text.
func readCounters(root host.Root, device string, port int) (counters, error) {
	found := counters{}
	for _, folder := range counterDirs {
		dir := path.Join("/sys/class/infiniband", device, "ports", strconv.Itoa(port), folder)
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return nil, err
		}
		for _, name := range names {
			data, err := root.ReadFile(path.Join(dir, name))
			if err != nil || name == "lifespan" { // the time for which values are cached
				continue
			}
			if n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err == nil {
				found[name] = n
			}
		}
	}
	return found, nil
}

// packets are counters that each packet moves: of all adapters, then of rdma_rxe, bnxt_re and
// irdma (Linux, drivers/infiniband).
var packets = []string{
	"port_xmit_packets", "port_rcv_packets", "port_xmit_data", "port_rcv_data",
	"sent_pkts", "rcvd_pkts", "tx_pkts", "rx_pkts", "ip4OutPkts", "ip4InPkts", "ip6OutPkts", "ip6InPkts",
}

// moved returns the counters that are higher than before, by name, errors first. A counter that was
// reset meanwhile is lower.
func (before counters) moved(after counters) []Counter {
	list := []Counter{}
	for name, n := range after {
		if was, ok := before[name]; ok && n > was {
			list = append(list, Counter{name, n - was, isError(name)})
		}
	}
	slices.SortFunc(list, func(a, b Counter) int {
		rank := map[bool]int{false: 1}
		return cmp.Or(rank[a.Error]-rank[b.Error], strings.Compare(a.Name, b.Name))
	})
	return list
}

// carried reports whether counters of packets have moved, Unknown if the port has none.
func (before counters) carried(moved []Counter) host.Bool {
	if !slices.ContainsFunc(packets, func(name string) bool { _, ok := before[name]; return ok }) {
		return host.Unknown
	}
	return host.BoolOf(slices.ContainsFunc(moved, func(c Counter) bool { return slices.Contains(packets, c.Name) }))
}

// errorCounter matches the names of counters of errors, which a test on a sound fabric does not move.
// port_xmit_wait is load, and requests that are flushed are the end of each connection.
var errorCounter = host.LazyRegexp(`_err(?:or|ors)?$|^(?:link_downed|link_error_recovery|VL15_dropped|out_of_sequence|out_of_seq_request|` +
	`duplicate_request|out_of_buffer|port_xmit_discards|rx_icrc_encapsulated|roce_adp_retrans)$`)

func isError(name string) bool {
	return errorCounter().MatchString(name) && !strings.HasSuffix(name, "_cqe_flush_error")
}
