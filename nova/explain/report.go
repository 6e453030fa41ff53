package explain

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova"
)

// Report is why hosts can or cannot build a guest.
type Report struct {
	// the requested devices; empty for a flavor without devices
	Request    nova.Request `json:"request"`
	Verdict    Verdict      `json:"verdict"`    // whether the guest can be built
	Conclusion string       `json:"conclusion"` // the same in one line, for people
	Able       int          `json:"able"`       // how many hosts can build it
	// the hosts, by name; empty for a server that has a host
	Judgements []Judgement `json:"judgements"`
	// hosts with the same first failing link and reason, the largest group first
	Groups     []Group    `json:"groups"`
	Concerns   []Group    `json:"concerns"`    // hosts with the same warning
	NotChecked []Omission `json:"not_checked"` // which links were not judged, and why
}

// Group is hosts with the same failing link or warning, and the same reason.
type Group struct {
	Verdict Verdict  `json:"verdict"` // the verdict on the first host
	Members []string `json:"members"` // the hosts
	Example *Judged  `json:"example"` // the link of the first host; nil if none fails
}

// Omission is a link that was not judged, for some or all hosts.
type Omission struct {
	Link   Link      `json:"link"`   // the link that was not judged
	Count  int       `json:"count"`  // on how many hosts
	Reason string    `json:"reason"` // why it was not judged
	Remedy host.Text `json:"remedy"` // what judges it
}

// newReport returns a report without judgements.
func newReport(request nova.Request) Report {
	return Report{Request: append(nova.Request{}, request...), Judgements: []Judgement{}, Groups: []Group{}, Concerns: []Group{}, NotChecked: []Omission{}}
}

// Judge judges all hosts.
func Judge(f Facts) Report {
	j := newJudge(f)
	r := newReport(j.request)
	hosts := slices.Clone(f.Hosts)
	slices.SortStableFunc(hosts, func(a, b Host) int { return cmp.Or(compareNames(a.Name, b.Name), cmp.Compare(a.Node, b.Node)) })
	for _, h := range hosts {
		one := j.host(h)
		r.Judgements = append(r.Judgements, one)
		for _, l := range one.Links {
			if l.Status == NotChecked {
				r.omit(Omission{l.Link, 1, l.Seen, l.Remedy})
			}
		}
		first := one.first()
		r.Groups = group(r.Groups, one, first)
		for k := range one.Links {
			if l := &one.Links[k]; l.Status == Warn {
				r.Concerns = group(r.Concerns, one, l)
			}
		}
	}
	if len(hosts) == 0 {
		none := Judgement{Links: j.common}
		if first := none.first(); first != nil {
			r.Groups = append(r.Groups, Group{Cannot, []string{}, first})
		}
	}
	r.NotChecked = slices.Concat(r.NotChecked, j.ofLoad(), f.Omitted)
	slices.SortStableFunc(r.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(order(a.Verdict), order(b.Verdict)), cmp.Compare(len(b.Members), len(a.Members)))
	})
	r.conclude(f.Flavor.Name)
	return r
}

func order(v Verdict) int {
	return slices.Index([]Verdict{Can, Unknown, Cannot}, v)
}

// omit counts a link that was not judged for a host.
func (r *Report) omit(o Omission) {
	i := slices.IndexFunc(r.NotChecked, func(known Omission) bool {
		return known.Link == o.Link && known.Reason == o.Reason && known.Remedy.String() == o.Remedy.String()
	})
	if i < 0 {
		r.NotChecked = append(r.NotChecked, o)
		return
	}
	r.NotChecked[i].Count++
}

// group adds a host to the group with the reason of a link; nil stands for no failing link.
func group(groups []Group, h Judgement, l *Judged) []Group {
	i := slices.IndexFunc(groups, func(g Group) bool {
		if l == nil || g.Example == nil {
			return l == nil && g.Example == nil && g.Verdict == h.Verdict
		}
		return g.Example.Link == l.Link && g.Example.Reason == l.Reason
	})
	if i < 0 {
		return append(groups, Group{h.Verdict, []string{h.Host}, l})
	}
	groups[i].Members = append(groups[i].Members, h.Host)
	return groups
}

// ofLoad returns the enabled filters that judge the load of a host, or hints.
func (j *judge) ofLoad() (list []Omission) {
	for _, e := range j.filters {
		for _, name := range e.names {
			if slices.Contains(ofLoad, name) && j.facts.Release.HasFilter(name) {
				list = append(list, Omission{Filters, len(j.facts.Hosts), name + " (" + e.from + ") is not judged",
					host.Plain("see the log of nova-scheduler with debug = true")})
			}
		}
	}
	slices.SortFunc(list, func(a, b Omission) int { return cmp.Compare(a.Reason, b.Reason) })
	return slices.CompactFunc(list, func(a, b Omission) bool { return reflect.DeepEqual(a, b) })
}

// conclude sets the verdict on all hosts, and the line for people.
func (r *Report) conclude(flavor string) {
	total := len(r.Judgements)
	unknown := 0
	able := ""
	var words []string
	for _, g := range r.Groups {
		n := len(g.Members)
		switch g.Verdict {
		case Can:
			r.Able += n
			able = Names(g.Members, namesInLine)
		case Unknown:
			unknown += n
		case Cannot:
			words = append(words, fmt.Sprintf("%d %s", n, plural(g.Example.Reason, n)))
		}
	}
	r.Verdict = Cannot
	switch {
	case r.Able > 0:
		r.Verdict = Can
	case unknown > 0:
		r.Verdict = Unknown
	}
	common := total == 0 && len(r.Groups) > 0
	same := len(r.Groups) == 1 && r.Groups[0].Example != nil && strings.HasPrefix(r.Groups[0].Example.Reason, "is not reached")
	switch {
	case common || same || len(r.Groups) == 1 && r.Groups[0].Example != nil && r.Groups[0].Example.Link == Alias:
		words = []string{r.Groups[0].Example.Seen}
	case unknown > 0:
		words = slices.Insert(words, 0, fmt.Sprintf("no link that was checked fails on %d", unknown))
	}
	r.Conclusion = fmt.Sprintf("%d of %d %s can build %s", r.Able, total, plural("host", total), flavor)
	parts := slices.DeleteFunc([]string{able, strings.Join(words, ", ")}, func(part string) bool { return part == "" })
	if len(parts) > 0 {
		r.Conclusion += ": " + strings.Join(parts, "; ")
	}
}

// plural returns a reason, or the noun host, for a number of hosts.
func plural(text string, n int) string {
	if n == 1 {
		return text
	}
	if text == "host" {
		return "hosts"
	}
	for _, verb := range [][2]string{{"has ", "have "}, {"is ", "are "}, {"does ", "do "}, {"offers ", "offer "}, {"reports ", "report "}} {
		if rest, ok := strings.CutPrefix(text, verb[0]); ok {
			return verb[1] + rest
		}
	}
	return text
}
