package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/pools"
)

// statusAvailable is the status of a free device (nova/objects/fields.py, PciDeviceStatus).
const statusAvailable = "available"

// verdictStale is repair-migration's verdict on rows that are proved not to describe the device.
const verdictStale = "stale"

// rows judges the free devices of a host by Nova's database: nova-scheduler reads
// compute_nodes.pci_stats, and the rows of pci_devices show what became of the others. It returns
// the free devices, nil if they are unknown.
func (j *judge) rows(h Host) (result Judged, free []pools.Pool) {
	result = Judged{Link: Rows, From: "pci_devices and compute_nodes.pci_stats"}
	if !j.canJudgeRows(h, &result) {
		return result, nil
	}
	mine, available := j.requested(h.Stock.Rows)
	free = h.Stock.Pools
	var lack *short
	if free != nil {
		lack = j.lacks(free)
	} else {
		free = available
		lack = j.lacksKind(free)
	}
	if lack == nil {
		result.Status, result.Seen = Pass, fmt.Sprintf("%d requested, %d free: %s", j.request.Devices(), j.count(free), statuses(mine))
		return result, free
	}
	j.shortage(&result, shortage{h, lack, mine, available, free})
	return result, free
}

// canJudgeRows reports whether the database can answer. If not, the result says why.
func (j *judge) canJudgeRows(h Host, result *Judged) bool {
	switch {
	case !j.facts.Databases:
		why, known := j.facts.Unread[Database]
		if !known {
			why = "no database is given"
		}
		result.From = ""
		result.notChecked(why, host.Plain("give --database URL, or --conf controller=FILE on a machine that reaches Nova's databases"))
	case h.Stock == nil:
		result.notChecked("no database that was read has the host", host.Plain("give the databases of all cells: --conf controller=FILE with [api_database]"))
	case j.aliases.unresolved(j.request) != "":
		result.notChecked("the devices of alias "+j.aliases.unresolved(j.request)+" are unknown", host.Plain(giveConf))
	case j.aliases.byClassOnly(j.request) != "":
		result.notChecked("alias "+j.aliases.byClassOnly(j.request)+" has a resource class only, which rows do not have", host.Plain("Placement decides"))
	default:
		return true
	}
	return false
}

// requested returns the rows of the products that the request names, and the free devices among
// them.
func (j *judge) requested(rows []Row) (mine []Row, available []pools.Pool) {
	available = []pools.Pool{}
	for _, r := range rows {
		if !slices.ContainsFunc(j.request, func(w nova.Wanted) bool { return j.aliases.why(w.Alias, r.pool()) != pools.Absent }) {
			continue
		}
		mine = append(mine, r)
		if r.Status == statusAvailable {
			available = append(available, r.pool())
		}
	}
	return mine, available
}

// pool returns the pool of the device of a row alone.
func (r Row) pool() pools.Pool {
	return pools.Pool{Vendor: r.Vendor, Product: r.Product, Type: r.Type, NUMA: r.NUMA, Count: 1}
}

// shortage is what a host has too few free devices of.
type shortage struct {
	h         Host
	lack      *short
	mine      []Row        // of the products that the request names
	available []pools.Pool // free by these rows
	free      []pools.Pool // free for nova-scheduler
}

// shortage fails with the reason for a shortage, and what helps.
func (j *judge) shortage(result *Judged, s shortage) {
	lack := s.lack
	mine := host.Map(s.mine, Row.pool)
	share := j.aliases.share(lack.alias, mine, nil, false)
	doubtful := slices.DeleteFunc(slices.Clone(s.mine), func(r Row) bool {
		return r.Verdict == "" || j.aliases.why(lack.alias, r.pool()) != pools.Gets
	})
	stale := slices.DeleteFunc(slices.Clone(doubtful), func(r Row) bool { return r.Verdict != verdictStale })
	inDoubt := func(reason string, rows []Row) {
		result.fail(reason, fmt.Sprintf("%s; %s is %s: %s", statuses(s.mine), rows[0].Address, rows[0].Verdict, rows[0].Reason), host.Textf("%s", repair(s.h, rows)))
	}
	switch {
	case len(s.mine) == 0:
		result.fail("has no "+lack.alias+" in Nova", fmt.Sprintf("pci_devices has no row of %s (%s) for the host", lack.alias, j.aliases.products(lack.alias)),
			host.Textf("if the host has the device: %s there, and restart nova-compute",
				host.NewCommand("nova configure").Flag("role", "compute").Elsewhere()))
	case share.Why == pools.OtherType && lack.have == 0:
		result.fail("has no "+lack.alias+" of the alias's device_type", fmt.Sprintf("alias %s selects %s, but the rows are %s", lack.alias,
			nova.SelectedTypes(j.aliases.defined[lack.alias][0]), strings.Join(share.Types, " and ")),
			j.aliases.remedy(lack.alias, share, nova.Controller))
	case j.lacksKind(s.free) == nil:
		result.fail("has no "+lack.alias+" with the tags of the alias", fmt.Sprintf("%s, but alias %s requires devices with %s, which the free ones do not have",
			statuses(s.mine), lack.alias, j.aliases.tagsOf(lack.alias)), j.aliases.remedy(lack.alias, pools.Share{Why: pools.OtherTags}, nova.Compute))
	case j.lacksKind(s.available) == nil:
		result.fail("has free "+lack.alias+" that nova-compute does not report",
			fmt.Sprintf("%s, but nova-compute reports %d free to nova-scheduler", statuses(s.mine), j.count(s.free)), host.Textf("restart nova-compute on %s", s.h.Name))
	case len(stale) > 0 && lack.have+len(stale) >= lack.want:
		inDoubt("has stale rows of "+lack.alias, stale)
	case len(doubtful) > 0 && lack.have+len(doubtful) >= lack.want:
		inDoubt("has suspicious rows of "+lack.alias, doubtful)
	default:
		remedy := host.Textf("delete, shelve or move a guest: openstack server list --all-projects --host %s; or use another host", s.h.Name)
		if len(doubtful) > 0 { // too few to help alone
			remedy = host.Textf("%s; %s judges the rows that are not in use", remedy, repair(s.h, doubtful))
		}
		result.fail(lack.reason(), statuses(s.mine), remedy)
	}
}

// repair returns the command that repairs stale rows, of one instance if they have one only.
func repair(h Host, stale []Row) host.Command {
	of := host.Map(stale, func(r Row) string { return r.Instance })
	slices.Sort(of)
	if of = slices.Compact(of); len(of) == 1 && of[0] != "" {
		return host.NewCommand("repair-migration").Flag("instance", of[0])
	}
	return host.NewCommand("repair-migration").Flag("host", h.Name)
}

// statuses counts rows by status: "1 available, 7 allocated".
func statuses(rows []Row) string {
	counts := map[string]int{}
	for _, r := range rows {
		counts[r.Status]++
	}
	words := host.Map(slices.Sorted(maps.Keys(counts)), func(status string) string { return fmt.Sprintf("%d %s", counts[status], status) })
	if len(words) == 0 {
		return "no row"
	}
	return strings.Join(words, ", ")
}
