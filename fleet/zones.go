package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/document"
	"gpustack/nova"
)

// By is what GPUs are kept in.
type By string

// What GPUs are kept in: availability zones or host aggregates.
const (
	ByZone      By = "zone"
	ByAggregate By = "aggregate"
)

var (
	// ErrMap means that a file does not show where hosts are and whether Nova schedules guests to them.
	ErrMap = host.WithHint(errors.New("does not show the compute services"),
		"give the output of: openstack compute service list --service nova-compute --long -f json, "+
			"or with --by aggregate {\"services\": that, \"aggregates\": {\"AGGREGATE\": [\"HOST\"]}}")
	// ErrOldMap means that a file shows the compute services of another time.
	ErrOldMap = host.WithHint(errors.New("does not show the compute services of now"),
		"list the services again, as FILE was made: openstack compute service list --service nova-compute --long -f json")
	// ErrAmbiguous means that a host of the map can be more than one node.
	ErrAmbiguous = host.WithHint(errors.New("can be more than one node"), "make the documents again as root, so that they have the host's name in Nova")
)

// Zones shows in which zones or aggregates hosts are, and which of them Nova schedules guests to.
type Zones struct {
	By    By
	Hosts []ZoneHost // by name
	Made  time.Time  // the newest time at which a service that is up has reported to Nova; zero if none is up
}

// ZoneHost is a host of Zones.
type ZoneHost struct {
	Name     string
	Zones    []string // or aggregates, by name
	Down     bool     // nova-compute does not report to Nova
	Disabled bool
	Reason   string // why it is disabled, "" for none
}

// schedulable reports whether Nova schedules guests to the host.
func (h ZoneHost) schedulable() bool { return !h.Down && !h.Disabled }

// service is a row of the output of openstack compute service list. Its keys are capitalized;
// encoding/json accepts them in any case.
type service struct {
	Binary *string `json:"binary"`
	Host   *string `json:"host"`
	Zone   *string `json:"zone"`
	Status *string `json:"status"`
	State  *string `json:"state"`
	Reason *string `json:"disabled reason"` // with --long

	Updated reported `json:"updated at"` // null for a service that has not reported yet
}

// reported is when a service has reported to Nova.
type reported time.Time

// UnmarshalText parses a time as openstackclient prints it, or one with its zone.
func (r *reported) UnmarshalText(text []byte) error {
	for _, format := range []string{"2006-01-02T15:04:05", time.RFC3339} { // fractions are accepted
		if at, err := time.Parse(format, string(text)); err == nil {
			*r = reported(at)
			return nil
		}
	}
	return fmt.Errorf("%.60q in Updated At is not a time such as 2026-11-20T12:00:00.000000", text)
}

// ParseZones parses the file with this name: the list of services, or an object of that list and of
// aggregates. The error joins everything that is wrong with it.
//
// Errors: ErrMap.
func ParseZones(name string, text []byte, by By) (Zones, error) {
	text = []byte(strings.TrimPrefix(string(text), "\xef\xbb\xbf"))
	switch is := document.Recognize(text).Kind; {
	case is != document.Unknown:
		return Zones{}, fmt.Errorf("%s: is %s: %w", name, is, ErrMap)
	case !json.Valid(text):
		return Zones{}, fmt.Errorf("%s: not JSON: %w", name, ErrMap)
	}
	if key, is := document.RepeatedKey(text); is {
		return Zones{}, fmt.Errorf("%s: an object has the key %.60q twice: %w", name, key, ErrMap)
	}
	var of struct {
		Services   []service            `json:"services"`
		Aggregates map[string][]*string `json:"aggregates"`
	}
	into := any(&of)
	if strings.HasPrefix(strings.TrimSpace(string(text)), "[") {
		into = &of.Services
	}
	if err := json.Unmarshal(text, into); err != nil {
		return Zones{}, fmt.Errorf("%s: %s: %w", name, err.Error(), ErrMap)
	}
	hosts, err := parseServices(name, of.Services)
	made, errMade := newestReport(name, of.Services)
	err = errors.Join(err, errMade)
	if by == ByAggregate {
		var errAggregates error
		hosts, errAggregates = aggregate(name, hosts, of.Aggregates)
		err = errors.Join(err, errAggregates)
	}
	slices.SortFunc(hosts, func(a, b ZoneHost) int { return strings.Compare(a.Name, b.Name) })
	return Zones{by, hosts, made}, err
}

// newestReport returns when the list of services was made, within seconds: services report to Nova
// every 10 s (nova/conf/service.py, report_interval).
func newestReport(name string, rows []service) (newest time.Time, err error) {
	up := slices.DeleteFunc(slices.Clone(rows), func(s service) bool { return host.Value(s.State) != "up" })
	for _, row := range up {
		if at := time.Time(row.Updated); at.After(newest) {
			newest = at
		}
	}
	if len(up) > 0 && newest.IsZero() {
		err = fmt.Errorf("%s: has no time in Updated At of a service that is up: %w", name, ErrMap)
	}
	return newest, err
}

// parseServices returns the hosts of services.
func parseServices(name string, rows []service) (hosts []ZoneHost, err error) {
	var errs []error
	seen := map[string]bool{}
	for i, row := range rows {
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: row %d: %s: %w", name, i+1, fmt.Sprintf(format, args...), ErrMap))
		}
		if row.Binary != nil && *row.Binary != "nova-compute" {
			continue // without --service
		}
		h := ZoneHost{}
		switch {
		case row.Host == nil || *row.Host == "":
			fail("host is missing")
			continue
		case seen[*row.Host]:
			fail("%s is listed twice", *row.Host)
			continue
		case row.Zone == nil || *row.Zone == "":
			fail("%s: zone is missing", *row.Host)
		default:
			h.Zones = []string{*row.Zone}
		}
		h.Name = *row.Host
		seen[h.Name] = true
		for _, field := range []struct {
			name, good, bad string
			value           *string
			is              *bool
		}{{"status", "enabled", "disabled", row.Status, &h.Disabled}, {"state", "up", "down", row.State, &h.Down}} {
			switch {
			case field.value == nil:
				fail("%s: %s is missing", h.Name, field.name)
			case *field.value == field.bad:
				*field.is = true
			case *field.value != field.good:
				fail("%s: %s: %.40q is neither %s nor %s", h.Name, field.name, *field.value, field.good, field.bad)
			}
		}
		if h.Disabled && row.Reason != nil {
			h.Reason = *row.Reason
		}
		hosts = append(hosts, h)
	}
	if len(hosts) == 0 && errs == nil {
		errs = append(errs, fmt.Errorf("%s: has no nova-compute: %w", name, ErrMap))
	}
	return hosts, errors.Join(errs...)
}

// aggregate returns hosts with their aggregates instead of their zones, and the other hosts of
// aggregates, which have no compute service.
func aggregate(name string, hosts []ZoneHost, aggregates map[string][]*string) ([]ZoneHost, error) {
	var errs []error
	if len(aggregates) == 0 {
		errs = append(errs, fmt.Errorf("%s: has no aggregates: %w", name, ErrMap))
	}
	in := map[string][]string{}
	for _, aggregate := range slices.Sorted(maps.Keys(aggregates)) {
		if aggregate == "" {
			errs = append(errs, fmt.Errorf("%s: an aggregate has no name: %w", name, ErrMap))
		}
		for _, h := range aggregates[aggregate] {
			switch {
			case h == nil || *h == "":
				errs = append(errs, fmt.Errorf("%s: %s: a host has no name: %w", name, aggregate, ErrMap))
			case slices.Contains(in[*h], aggregate):
				errs = append(errs, fmt.Errorf("%s: %s: %s is listed twice: %w", name, aggregate, *h, ErrMap))
			default:
				in[*h] = append(in[*h], aggregate)
			}
		}
	}
	for i, h := range hosts {
		hosts[i].Zones = in[h.Name]
		delete(in, h.Name)
	}
	for h, all := range in {
		hosts = append(hosts, ZoneHost{Name: h, Zones: all, Down: true})
	}
	return hosts, errors.Join(errs...)
}

// place returns the host of the map that each node is, and the hosts that have no documents. A host
// is the node of that name in Nova, else the one with that hostname, also without the domain.
//
// Errors: ErrAmbiguous.
func (z Zones) place(nodes []*Node) (of map[*Node]ZoneHost, without []string, err error) {
	inNova, named := map[string][]*Node{}, map[string][]*Node{}
	for _, n := range nodes {
		inNova[n.InNova()] = append(inNova[n.InNova()], n)
		h := nova.Host{Name: n.Name, NovaHost: n.NovaHost}
		short, _, _ := strings.Cut(n.Name, ".")
		for _, name := range slices.Compact([]string{n.Name, short}) {
			if h.Named(name) {
				named[name] = append(named[name], n)
			}
		}
	}
	of = map[*Node]ZoneHost{}
	var errs []error
	var rest []ZoneHost
	for _, h := range z.Hosts {
		if found := inNova[h.Name]; found != nil {
			of[found[0]] = h
		} else {
			rest = append(rest, h)
		}
	}
	for _, h := range rest {
		found := slices.DeleteFunc(slices.Clone(named[h.Name]), func(n *Node) bool { _, placed := of[n]; return placed })
		switch len(found) {
		case 0:
			without = append(without, h.Name)
		case 1:
			of[found[0]] = h
		default:
			errs = append(errs, fmt.Errorf("%s: %w: %s and %s", h.Name, ErrAmbiguous, found[0].Name, found[1].Name))
		}
	}
	return of, without, errors.Join(errs...)
}
