package flavor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/object"
)

// Move is a change of one flavor from one state to another. A new flavor has no id until With gives
// it one.
type Move struct {
	object.Head
	Before *State `json:"before"` // the flavor before the change; null if it was created
	After  *State `json:"after"`  // the flavor after the change; null if it was deleted
}

// Side returns the name of the flavor before or after the move, "" if there is none, and its values.
func (m Move) Side(after bool) (name, text string) {
	s := m.Before
	if after {
		s = m.After
	}
	if s != nil {
		name = "flavor " + s.Name
	}
	return name, Text(s)
}

// Inverse returns the move that undoes this one.
func (m Move) Inverse() Move {
	return Move{m.Head, m.After, m.Before}
}

// Requests returns the requests that make the move, in their order.
func (m Move) Requests() []cloud.Request {
	return host.FlatMap(m.steps(), func(s step) []cloud.Request { return s.requests })
}

// step is a part of a move: the requests that it makes, how they are made, and how they are undone.
type step struct {
	requests []cloud.Request
	do, undo func(context.Context, *cloud.Compute) error
}

// Errors of moves.
var (
	// errExists says that another user has created a flavor with the name since the plan was made.
	errExists = host.WithHint(errors.New("was created by another user meanwhile"), "run the command again")
	// errDrift says that Nova has made a different flavor than was requested.
	errDrift = host.WithHint(errors.New("is not as requested"), "see the log of nova-api; another program may have changed the flavor")
)

// steps returns the parts of the move.
func (m Move) steps() []step {
	object := func(key string, value any) map[string]any { return map[string]any{key: value} }
	if m.After == nil {
		f := m.Before.Flavor
		return []step{{requests: []cloud.Request{{Method: "DELETE", Path: "/flavors/" + f.ID}}, do: func(ctx context.Context,
			c *cloud.Compute) error {
			return c.DeleteFlavor(ctx, f)
		}}}
	}
	f, before := m.After.Flavor, m.Before
	path := "/flavors/" + f.ID
	if f.ID == "" {
		path = "/flavors/ID"
	}
	var steps []step
	add := func(requests []cloud.Request, do, undo func(context.Context, *cloud.Compute) error) {
		if m.Before == nil {
			undo = nil // the flavor is deleted
		}
		steps = append(steps, step{requests, do, undo})
	}
	if before == nil {
		steps = append(steps, m.creation(path))
		before = &State{Flavor: cloud.Flavor{Description: f.Description}}
	}
	if set, unset := between(before.ExtraSpecs, f.ExtraSpecs); len(set)+len(unset) > 0 {
		var requests []cloud.Request
		if len(set) > 0 {
			requests = append(requests, cloud.Request{Method: "POST", Path: path + "/os-extra_specs", Body: object("extra_specs", set)})
		}
		for _, key := range unset {
			requests = append(requests, cloud.Request{Method: "DELETE", Path: path + "/os-extra_specs/" + key})
		}
		was := before.ExtraSpecs
		add(requests, func(ctx context.Context, c *cloud.Compute) error { return setSpecs(ctx, c, f, set, unset) },
			func(ctx context.Context, c *cloud.Compute) error {
				set, unset := between(f.ExtraSpecs, was)
				return setSpecs(ctx, c, f, set, unset)
			})
	}
	if was := before.Description; was != f.Description {
		var description any // null removes it
		if f.Description != "" {
			description = f.Description
		}
		add([]cloud.Request{{Method: "PUT", Path: path, Body: object("flavor", object("description", description))}},
			func(ctx context.Context, c *cloud.Compute) error { return c.DescribeFlavor(ctx, f, f.Description) },
			func(ctx context.Context, c *cloud.Compute) error { return c.DescribeFlavor(ctx, f, was) })
	}
	access := func(action, project string, do, undo func(*cloud.Compute, context.Context, cloud.Flavor, string) error) {
		add([]cloud.Request{{Method: "POST", Path: path + "/action", Body: object(action, object("tenant", project))}},
			func(ctx context.Context, c *cloud.Compute) error { return do(c, ctx, f, project) },
			func(ctx context.Context, c *cloud.Compute) error { return undo(c, ctx, f, project) })
	}
	for _, project := range m.After.Projects {
		if !slices.Contains(before.Projects, project) {
			access("addTenantAccess", project, (*cloud.Compute).Grant, (*cloud.Compute).Revoke)
		}
	}
	for _, project := range before.Projects {
		if !slices.Contains(m.After.Projects, project) {
			access("removeTenantAccess", project, (*cloud.Compute).Revoke, (*cloud.Compute).Grant)
		}
	}
	return steps
}

// creation is the step that creates the flavor without its extra specs.
func (m Move) creation(path string) step {
	f := m.After.Flavor
	id := strings.TrimPrefix(path, "/flavors/")
	body := map[string]any{
		"id": id, "name": f.Name, "vcpus": f.VCPUs, "ram": f.RAM, "disk": f.Disk, "OS-FLV-EXT-DATA:ephemeral": f.Ephemeral,
		"swap": f.Swap, "os-flavor-access:is_public": f.Public,
	}
	if f.Description != "" {
		body["description"] = f.Description
	}
	if f.RxTxFactor != 1 {
		body["rxtx_factor"] = f.RxTxFactor
	}
	foreign := false // there is nothing of ours to delete
	return step{
		requests: []cloud.Request{{Method: "POST", Path: "/flavors", Body: map[string]any{"flavor": body}}},
		do: func(ctx context.Context, c *cloud.Compute) error {
			err := create(ctx, c, f)
			foreign = errors.Is(err, errExists) || cloud.IsRefused(err)
			return err
		},
		undo: func(ctx context.Context, c *cloud.Compute) error {
			if foreign {
				return nil
			}
			if err := c.DeleteFlavor(ctx, f); err != nil {
				return fmt.Errorf("flavor %s with id %s may remain incomplete: %w", f.Name, f.ID, err)
			}
			return nil
		},
	}
}

// create creates the flavor without its extra specs.
func create(ctx context.Context, c *cloud.Compute, f cloud.Flavor) error {
	made, err := c.CreateFlavor(ctx, f)
	if errors.Is(err, cloud.ErrConflict) {
		// A request whose answer was lost has created it, unless it is another flavor.
		if made, err = c.GetFlavor(ctx, f.ID); errors.Is(err, cloud.ErrNotFound) || err == nil && !sameFlavor(made, f) {
			return fmt.Errorf("flavor %s: %w", f.Name, errExists)
		}
	}
	if err == nil && !sameFlavor(made, f) {
		err = fmt.Errorf("flavor %s: %w:\n%s", f.Name, errDrift, Text(&State{Flavor: made}))
	}
	return err
}

// sameFlavor compares two flavors without their extra specs.
func sameFlavor(made, f cloud.Flavor) bool {
	made.ExtraSpecs = f.ExtraSpecs
	return (&State{Flavor: made}).same(&State{Flavor: f})
}

// between returns the extra specs that are added or changed, and those that are removed.
func between(before, after map[string]string) (set map[string]string, unset []string) {
	set = map[string]string{}
	for key, value := range after {
		if has, there := before[key]; !there || has != value {
			set[key] = value
		}
	}
	return set, host.Filter(slices.Sorted(maps.Keys(before)), func(key string) bool { _, stays := after[key]; return !stays })
}

// specsText returns extra specs in words.
func specsText(specs map[string]string) string {
	list := host.Map(slices.Sorted(maps.Keys(specs)), func(key string) string { return key + "=" + specs[key] })
	if list == nil {
		return "no extra specs"
	}
	return "the extra specs " + strings.Join(list, ", ")
}

func setSpecs(ctx context.Context, c *cloud.Compute, f cloud.Flavor, set map[string]string, unset []string) error {
	if len(set) > 0 {
		made, err := c.SetExtraSpecs(ctx, f, set)
		if err == nil && !maps.Equal(made, set) {
			err = fmt.Errorf("flavor %s: %w: the cloud has stored %s", f.Name, errDrift, specsText(made))
		}
		if err != nil {
			return err
		}
	}
	for _, key := range unset {
		if err := c.UnsetExtraSpec(ctx, f, key); err != nil {
			return err
		}
	}
	return nil
}

// Make makes the move, all of it or nothing. A new flavor that cannot be completed is deleted:
// without its extra specs it would boot guests without devices.
func (m Move) Make(ctx context.Context, c *cloud.Compute) (change.Outcome, error) {
	if cause := context.Cause(ctx); cause != nil {
		return change.None, fmt.Errorf("%w, nothing was changed", cause)
	}
	if m.After == nil {
		return m.remove(context.WithoutCancel(ctx), c)
	}
	var steps []change.Step
	for _, s := range m.steps() {
		step := change.Step{Apply: func(ctx context.Context) error {
			if m.Before != nil { // without its answer, the effect of a request would be unknown
				ctx = context.WithoutCancel(ctx)
			}
			return s.do(ctx, c)
		}}
		if s.undo != nil {
			step.Undo = func(ctx context.Context) error { return s.undo(ctx, c) }
		}
		steps = append(steps, step)
	}
	outcome, err := change.Run(ctx, steps, change.OnError)
	switch cause := context.Cause(ctx); {
	case err == nil || outcome != change.None || errors.Is(err, errExists):
	case cause != nil && errors.Is(err, cause):
		err = fmt.Errorf("%w, nothing was changed", err)
	default:
		err = fmt.Errorf("nothing was changed: %w", err)
	}
	return outcome, err
}

// remove deletes the flavor. After an error it determines whether the flavor is deleted.
func (m Move) remove(ctx context.Context, c *cloud.Compute) (change.Outcome, error) {
	err := c.DeleteFlavor(ctx, m.Before.Flavor)
	if err == nil {
		return change.Stands, nil
	}
	if cloud.IsRefused(err) {
		return change.None, fmt.Errorf("nothing was changed: %w", err)
	}
	is, readErr := Read(ctx, c, m.Before.ID)
	switch {
	case readErr != nil:
		return change.Open, errors.Join(err, readErr)
	case is == nil:
		return change.Stands, nil
	}
	return change.None, fmt.Errorf("nothing was changed: %w", err)
}
