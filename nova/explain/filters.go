package explain

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova"
)

// enabledFilters are the filters of nova-scheduler on one machine, and where they are set.
type enabledFilters struct {
	names  []string
	from   string
	faults []nova.Fault // with which nova-scheduler does not start
}

// readFilters returns the filters of each controller.
func (f Facts) readFilters() (all []enabledFilters) {
	for _, side := range f.Sides {
		s := side.Scheduler()
		if !side.Role.Controls() || len(s.Files) == 0 {
			continue
		}
		filters := s.Filters(f.Release)
		e := enabledFilters{filters.Enabled, s.Name() + " (default)", filters.Faults(f.Release)}
		if filters.Line > 0 {
			e.from = fmt.Sprintf("%s:%d", filters.File, filters.Line)
		}
		all = append(all, e)
	}
	return all
}

// askNova is the remedy for what only Nova's own code judges.
const askNova = "give --nova-python python3 where nova-scheduler is installed, or --nova-python 'docker exec -i nova_scheduler python3'"

// filter judges whether nova-scheduler starts with its filters. What the filters decide is Nova's
// answer, if it was asked.
func (j *judge) filter(h Host) Judged {
	result := Judged{Link: Filters}
	var from []string
	var isWithout bool
	for _, e := range j.filters {
		from = append(from, e.from)
		if len(e.faults) > 0 {
			fault := e.faults[0]
			result.From = e.from
			result.fail("is not reached: nova-scheduler does not start", fault.Seen+": nova-scheduler does not start",
				host.Textf("%s: %s", fault.Remedy, host.NewCommand("nova configure").Flag("role", "controller").Elsewhere()))
			return result
		}
		isWithout = isWithout || len(j.request) > 0 && !slices.Contains(e.names, filterPCI)
	}
	result.From = strings.Join(from, ", ")
	answer := j.facts.Answer
	open, remedy := j.unjudged(h), host.Plain(askNova)
	if answer != nil {
		result.From += ", Nova " + answer.Version
		if first := answer.rejects(h); first != nil {
			result.fail("is rejected by "+first.Filter, first.Filter+": "+first.Message, host.Plain("correct what it names, or use another host"))
			return result
		}
		open, remedy = answer.unjudged(h), host.Plain("see the log of nova-scheduler with debug = true")
	}
	switch why, isUnread := j.facts.Unread[Scheduler]; {
	case len(j.filters) == 0:
		result.notChecked("nova.conf of no controller is given", host.Plain(giveConf))
	case len(open) > 0 && isUnread:
		result.notChecked("not judged: "+strings.Join(open, "; ")+"; Nova did not judge it: "+why, host.Plain("correct --nova-python"))
	case len(open) > 0:
		result.notChecked("not judged: "+strings.Join(open, "; "), remedy)
	case isWithout:
		result.Status, result.Reason = Warn, "is chosen without "+filterPCI
		result.Seen = filterPCI + " is not enabled: nova-scheduler also selects hosts without a free device, on which the guest fails"
		result.Remedy = host.Textf("%s, and restart nova-scheduler", host.NewCommand("nova configure").Flag("role", "controller").Elsewhere())
	case answer != nil:
		result.Status, result.Seen = Pass, "no filter rejects the host"
	default:
		result.Status, result.Seen = Pass, "the request has nothing that a filter besides the links compares"
	}
	return result
}
