package cleanup

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"gpustack/host"
)

// Context is instance_extra.migration_context, which an instance has while it is moved.
type Context struct {
	Migration int64
	Old, New  []Request // its PCI requests before the move and after it
	Moved     []Place   // the devices that it has after the move
}

// Place identifies a device by its compute node and its address.
type Place struct {
	Node    int64  `json:"compute_node_id"`
	Address string `json:"address"`
}

// object is one in the format of oslo.versionedobjects.
type object[T any] struct {
	Data T `json:"nova_object.data"`
}

// contextObject is a migration_context (nova/objects/migration_context.py, version 1.2; earlier
// versions lack the resources or the PCI devices and requests).
type contextObject object[struct {
	Migration    int64            `json:"migration_id"`
	NewDevices   contextDevices   `json:"new_pci_devices"`
	OldRequests  *contextRequests `json:"old_pci_requests"`
	NewRequests  *contextRequests `json:"new_pci_requests"`
	NewTopology  json.RawMessage  `json:"new_numa_topology"`
	NewResources json.RawMessage  `json:"new_resources"`
}]

type contextDevices object[struct {
	Objects []object[Place] `json:"objects"`
}]

type contextRequests object[struct {
	Requests []object[contextRequest] `json:"requests"`
}]

// contextRequest is a request in the form of instance_extra.pci_requests, which is no versioned
// object (nova/objects/instance_pci_requests.py, to_json).
type contextRequest struct {
	Count     int              `json:"count"`
	Specs     []map[string]any `json:"spec"`
	Alias     *string          `json:"alias_name"`
	New       bool             `json:"is_new"`
	Policy    *string          `json:"numa_policy"`
	ID        *string          `json:"request_id"`
	Requester *string          `json:"requester_id"`
}

// list returns the requests, nil if the context has none.
func (c *contextRequests) list() (all []Request) {
	if c == nil {
		return nil
	}
	all = []Request{}
	for _, o := range c.Data.Requests {
		all = append(all, Request{Count: o.Data.Count, Specs: o.Data.Specs, ID: host.Value(o.Data.ID)})
	}
	return all
}

// ParseContext reads a migration_context.
func ParseContext(text string) (*Context, error) {
	object, err := parseContext(text)
	if err != nil {
		return nil, err
	}
	c := &Context{Migration: object.Data.Migration, Old: object.Data.OldRequests.list(), New: object.Data.NewRequests.list()}
	for _, o := range object.Data.NewDevices.Data.Objects {
		c.Moved = append(c.Moved, o.Data)
	}
	return c, nil
}

func parseContext(text string) (object contextObject, err error) {
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return object, fmt.Errorf("migration_context is not in Nova's format: %w", err)
	}
	if object.Data.Migration == 0 {
		return object, errors.New("migration_context is not in Nova's format")
	}
	return object, nil
}

// AppliedContext returns the columns of instance_extra with which a migration_context is applied, as
// Instance.apply_migration_context and save write them (nova/objects/instance.py).
func AppliedContext(text string) (map[string]*string, error) {
	object, err := parseContext(text)
	if err != nil {
		return nil, err
	}
	requests := []contextRequest{}
	if object.Data.NewRequests != nil {
		for _, o := range object.Data.NewRequests.Data.Requests {
			requests = append(requests, o.Data)
		}
	}
	written, err := json.Marshal(requests)
	if err != nil {
		return nil, err
	}
	column := func(value json.RawMessage) *string {
		if len(value) == 0 || string(value) == "null" {
			return nil
		}
		text := string(value)
		return &text
	}
	return map[string]*string{"pci_requests": column(written), "numa_topology": column(object.Data.NewTopology),
		"resources": column(object.Data.NewResources)}, nil
}

// afterMove returns whether the migration_context of an instance has to be applied when its
// migration is closed, or why the context must not be removed. held are the instance's devices on all
// nodes; arrived says that its own node is the migration's destination.
//
// nova-compute looks up the request of each device of an instance when it starts the guest
// (Instance.get_pci_devices), and raises KeyError for one that is not among the instance's requests.
func (i Instance) afterMove(held []Held, arrived, resizes bool) (applies bool, why string) {
	c, requests := i.Context, i.Requests
	var own []Held
	var has []Place
	for _, h := range held {
		if i.On(h.Host, h.NodeName) {
			own, has = append(own, h), append(has, Place{h.Node, h.Address})
		}
	}
	if arrived {
		switch {
		case c.New == nil:
			return false, fmt.Sprintf("the context of migration %d has no new_pci_requests", c.Migration)
		case !sameSet(has, c.Moved):
			return false, fmt.Sprintf("the context of migration %d has other devices on the destination than the instance", c.Migration)
		case resizes && !sameSet(requests, c.New):
			return false, fmt.Sprintf("the resize of migration %d has not put the new flavor in place: "+
				"the instance's pci_requests are not yet those of its context", c.Migration)
		}
		applies, requests = true, c.New
	}
	if !i.Asked && !applies {
		return applies, ""
	}
	for _, h := range own {
		if !requested(h.Device, requests) {
			return false, fmt.Sprintf("without the context of migration %d, the request of %s on %s would be none of the instance's", c.Migration, h.Address, h.Host)
		}
	}
	return applies, ""
}

// sameSet returns whether two lists have the same elements, each once.
func sameSet[T any](a, b []T) bool {
	in := func(x T, list []T) bool {
		return slices.ContainsFunc(list, func(y T) bool { return reflect.DeepEqual(x, y) })
	}
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x T) bool { return !in(x, b) })
}

// requested returns whether a device's request is one of these. Before Zed, devices of an alias have
// none.
func requested(d Device, requests []Request) bool {
	return d.Request == nil || slices.ContainsFunc(requests, func(r Request) bool { return r.ID == *d.Request })
}
