package flavor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// State is a flavor with the ids of the projects that may use it.
type State struct {
	cloud.Flavor
	// ids of the projects that may use a private flavor; nil for a public one, and if they may not
	// be read
	Projects []string `json:"projects" null:"zero"`
}

// Read returns the flavor with an id as the cloud has it, or nil if there is none.
func Read(ctx context.Context, c *cloud.Compute, id string) (*State, error) {
	f, err := c.GetFlavor(ctx, id)
	if errors.Is(err, cloud.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return Complete(ctx, c, f)
}

// Complete returns a flavor with its extra specs and the projects that may use it.
func Complete(ctx context.Context, c *cloud.Compute, f cloud.Flavor) (*State, error) {
	var err error
	if f.ExtraSpecs, err = c.ExtraSpecs(ctx, f); err != nil {
		return nil, err
	}
	s := &State{Flavor: f, Projects: []string{}}
	if !f.Public {
		s.Projects, err = c.Access(ctx, f)
	}
	return s, err
}

// Text returns a flavor with a line for each of its values, for diffs; "" for nil.
func Text(s *State) string {
	var b strings.Builder
	for _, l := range s.lines() {
		fmt.Fprintf(&b, "%-12s %s\n", l[0], l[1])
	}
	return b.String()
}

// lines returns the values of a flavor other than its id and name, each with a key.
func (s *State) lines() (lines [][2]string) {
	if s == nil {
		return nil
	}
	line := func(key, value string) { lines = append(lines, [2]string{key, value}) }
	line("vcpus", fmt.Sprint(s.VCPUs))
	line("ram", Size(s.RAM, MiB))
	line("disk", Size(s.Disk, GiB))
	if s.Ephemeral > 0 {
		line("ephemeral", Size(s.Ephemeral, GiB))
	}
	if s.Swap > 0 {
		line("swap", Size(s.Swap, MiB))
	}
	if s.RxTxFactor != 1 {
		line("rxtx-factor", fmt.Sprint(s.RxTxFactor))
	}
	if s.Public {
		line("access", "public")
	} else {
		line("access", "private")
	}
	for _, project := range s.Projects {
		line("project", project)
	}
	if s.Description != "" {
		line("description", s.Description)
	}
	for _, key := range slices.Sorted(maps.Keys(s.ExtraSpecs)) {
		line("property", key+"="+s.ExtraSpecs[key])
	}
	return lines
}

// same reports whether two states are equal in every value, id and name included.
func (s *State) same(other *State) bool {
	return len(s.differences(other)) == 0
}

// differences returns in which values a flavor differs from an expected one, for messages.
func (s *State) differences(expected *State) (differ []string) {
	switch {
	case s == nil && expected == nil:
		return nil
	case s == nil:
		return []string{"it does not exist"}
	case expected == nil:
		return []string{"it exists"}
	case s.ID != expected.ID:
		return []string{fmt.Sprintf("its id is %s instead of %s", s.ID, expected.ID)}
	case s.Name != expected.Name:
		differ = append(differ, fmt.Sprintf("its name is %s", s.Name))
	}
	have, want := s.lines(), expected.lines() // lines of projects are compared in any order
	for _, l := range host.Union(have, want...) {
		switch {
		case !slices.Contains(want, l):
			differ = append(differ, fmt.Sprintf("it has %s %s", l[0], l[1]))
		case !slices.Contains(have, l):
			differ = append(differ, fmt.Sprintf("it does not have %s %s", l[0], l[1]))
		}
	}
	return differ
}
