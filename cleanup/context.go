package cleanup

import (
	"encoding/json"
	"fmt"
	"strings"
)

// contextData is the part of a migration_context that DescribeContext shows
// (nova/objects/migration_context.py, version 1.2; earlier versions lack the resources or the PCI
// devices and requests).
type contextData struct {
	Migration    int64           `json:"migration_id"`
	OldDevices   contextDevices  `json:"old_pci_devices"`
	NewDevices   contextDevices  `json:"new_pci_devices"`
	OldRequests  contextRequests `json:"old_pci_requests"`
	NewRequests  contextRequests `json:"new_pci_requests"`
	OldTopology  contextTopology `json:"old_numa_topology"`
	NewTopology  contextTopology `json:"new_numa_topology"`
	OldResources contextObjects  `json:"old_resources"`
	NewResources contextObjects  `json:"new_resources"`
}

type contextDevices struct {
	Data struct {
		Objects []struct {
			Data struct {
				Address string `json:"address"`
				Node    int64  `json:"compute_node_id"`
			} `json:"nova_object.data"`
		} `json:"objects"`
	} `json:"nova_object.data"`
}

type contextRequests struct {
	Data struct {
		Requests []struct {
			Data struct {
				Count int     `json:"count"`
				Alias *string `json:"alias_name"`
			} `json:"nova_object.data"`
		} `json:"requests"`
	} `json:"nova_object.data"`
}

type contextTopology struct {
	Data struct {
		Cells []json.RawMessage `json:"cells"`
	} `json:"nova_object.data"`
}

type contextObjects struct {
	Data struct {
		Objects []json.RawMessage `json:"objects"`
	} `json:"nova_object.data"`
}

// DescribeContext returns what a migration_context holds, in one line for the migration and one
// for each of its sides.
//
// Errors: the text is not in Nova's format.
func DescribeContext(text string) ([]string, error) {
	if _, err := ParseContext(text); err != nil {
		return nil, err
	}
	var object struct {
		Data contextData `json:"nova_object.data"`
	}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return nil, fmt.Errorf("migration_context is not in Nova's format: %w", err)
	}
	d := object.Data
	side := func(name string, devices contextDevices, requests contextRequests, numa contextTopology, resources contextObjects) string {
		topology, others := "no NUMA topology", "no other resources"
		if n := len(numa.Data.Cells); n > 0 {
			topology = fmt.Sprintf("a NUMA topology of %d cells", n)
		}
		if n := len(resources.Data.Objects); n > 0 {
			others = fmt.Sprintf("other resources: %d", n)
		}
		return name + ": " + strings.Join([]string{devices.text(), requests.text(), topology, others}, ", ")
	}
	return []string{
		fmt.Sprintf("of migration %d, %d bytes", d.Migration, len(text)),
		side("old", d.OldDevices, d.OldRequests, d.OldTopology, d.OldResources),
		side("new", d.NewDevices, d.NewRequests, d.NewTopology, d.NewResources),
	}, nil
}

func (c contextDevices) text() string {
	var all []string
	for _, o := range c.Data.Objects {
		all = append(all, fmt.Sprintf("%s of compute node %d", o.Data.Address, o.Data.Node))
	}
	return listed("PCI devices", all)
}

// text names a request as the flavor does, by alias and number.
func (c contextRequests) text() string {
	var all []string
	for _, o := range c.Data.Requests {
		alias := "a port" // its requests have no alias
		if o.Data.Alias != nil {
			alias = *o.Data.Alias
		}
		all = append(all, fmt.Sprintf("%s:%d", alias, o.Data.Count))
	}
	return listed("PCI requests", all)
}

// listed returns things with their name as text.
func listed(name string, things []string) string {
	if len(things) == 0 {
		return "no " + name
	}
	return name + " " + strings.Join(things, " and ")
}
