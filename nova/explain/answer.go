package explain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/nova"
)

// Question is what the script templates.NovaJudge reads: a request and the hosts for it.
type Question struct {
	Flavor     Guest             `json:"flavor"`
	Image      *Image            `json:"image"` // nil for none
	Volume     bool              `json:"volume"`
	Project    string            `json:"project"` // "" if unknown
	Zone       string            `json:"zone"`    // "" for none
	Group      *ServerGroup      `json:"group"`   // nil for none
	Aliases    []string          `json:"aliases"` // values of [pci] alias
	Filters    []string          `json:"filters"` // enabled ones
	Options    map[string]string `json:"options"` // of [filter_scheduler], [scheduler] and [workarounds], as section.key
	Aggregates []Aggregate       `json:"aggregates"`
	Hosts      []Candidate       `json:"hosts"`
}

// Guest is the flavor of a question.
type Guest struct {
	Name      string            `json:"name"`
	VCPUs     int               `json:"vcpus"`
	RAM       int               `json:"ram"` // MiB
	Disk      int               `json:"disk"`
	Ephemeral int               `json:"ephemeral"`
	Swap      int               `json:"swap"` // MiB
	Specs     map[string]string `json:"extra_specs"`
}

// Image is the image of a question.
type Image struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Format     string            `json:"disk_format"`
	Properties map[string]string `json:"properties"`
}

// Aggregate is a host aggregate of a question.
type Aggregate struct {
	Name     string            `json:"name"`
	Hosts    []string          `json:"hosts"`
	Metadata map[string]string `json:"metadata"`
}

// Candidate is a host of a question.
type Candidate struct {
	Host    string `json:"host"`
	Node    string `json:"node"`
	Columns *Node  `json:"columns"` // of compute_nodes; nil if unknown
}

// Answer is what Nova's own code says of a question.
type Answer struct {
	Version string      `json:"version"` // of Nova
	Rejects []Rejection `json:"rejects"` // on every host
	Queries []Query     `json:"queries"` // to Placement; that with shared CPUs second, where dedicated ones are requested
	Hosts   []Answered  `json:"hosts"`   // in the order of the question
}

// Rejection is a filter, or another part of Nova, that rejects a host, with Nova's own message.
type Rejection struct {
	Filter  string `json:"filter"`
	Message string `json:"message"`
}

// Answered is what Nova's code says of a host.
type Answered struct {
	Host     string      `json:"host"`
	Node     string      `json:"node"`
	Rejects  []Rejection `json:"rejects"`
	Unjudged []string    `json:"unjudged"` // enabled filters that it cannot judge, with the reason
}

// Question returns the question of the facts: of the filters of the first controller that has some.
// The error says why there is none.
func (f Facts) Question() (q Question, err error) {
	i := slices.IndexFunc(f.Sides, func(s nova.Side) bool { return s.Role.Controls() && len(s.Scheduler().Files) > 0 })
	if i < 0 {
		return q, errors.New("nova.conf of no controller is given")
	}
	scheduler := f.Sides[i].Scheduler()
	v := f.Flavor
	q = Question{
		Flavor: Guest{v.Name, v.VCPUs, v.RAM, v.Disk, v.Ephemeral, v.Swap, v.ExtraSpecs},
		Volume: f.Volume, Project: f.Project, Zone: f.Zone, Group: f.Group,
		Filters: scheduler.Filters(f.Release).Enabled, Options: map[string]string{}, Aliases: []string{}, Aggregates: []Aggregate{}, Hosts: []Candidate{},
	}
	if f.Image != nil {
		q.Image = &Image{f.Image.ID, f.Image.Name, f.Image.DiskFormat, f.Image.Properties}
	}
	for _, s := range f.Sides {
		if found := s.API().Find(f.Release.AliasNames()...); s.Role.Controls() && len(found) > 0 {
			for _, o := range found {
				q.Aliases = append(q.Aliases, o.Value)
			}
			break
		}
	}
	for _, source := range scheduler.Files {
		for _, o := range source.File.Options() {
			if slices.Contains([]string{"filter_scheduler", "scheduler", "workarounds"}, strings.ToLower(o.Section)) {
				q.Options[strings.ToLower(o.Section)+"."+o.Key] = o.Value
			}
		}
	}
	for _, a := range f.Aggregates {
		q.Aggregates = append(q.Aggregates, Aggregate{a.Name, a.Hosts, a.Metadata})
	}
	for _, h := range f.Hosts {
		c := Candidate{Host: h.Name, Node: h.Node}
		if h.Stock != nil {
			c.Columns = h.Stock.Node
		}
		q.Hosts = append(q.Hosts, c)
	}
	return q, nil
}

// ParseAnswer reads the document that the script prints to a question. Anything else is an error.
func ParseAnswer(text []byte, q Question) (*Answer, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var a Answer
	if err := d.Decode(&a); err != nil {
		return nil, fmt.Errorf("what it prints is not an answer: %w", err)
	}
	isOf := a.Version != "" && len(a.Hosts) == len(q.Hosts) && !d.More()
	for i := range a.Hosts {
		isOf = isOf && a.Hosts[i].Host == q.Hosts[i].Host && a.Hosts[i].Node == q.Hosts[i].Node
	}
	if !isOf || len(a.Rejects)+len(a.Queries) == 0 {
		return nil, errors.New("what it prints is not an answer to the question")
	}
	return &a, nil
}

// of returns what the answer says of a host, nil for nothing.
func (a *Answer) of(h Host) *Answered {
	i := slices.IndexFunc(a.Hosts, func(one Answered) bool { return one.Host == h.Name && one.Node == h.Node })
	if i < 0 {
		return nil
	}
	return &a.Hosts[i]
}

// rejects returns what rejects a host first, nil for nothing.
func (a *Answer) rejects(h Host) *Rejection {
	if of := a.of(h); of != nil && len(of.Rejects) > 0 {
		return &of.Rejects[0]
	}
	return nil
}

// unjudged returns what Nova's code did not judge of a host.
func (a *Answer) unjudged(h Host) []string {
	if of := a.of(h); of != nil {
		return of.Unjudged
	}
	return []string{"the host was not part of the question"}
}
