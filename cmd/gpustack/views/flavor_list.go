package views

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/flavor"
	clouds "gpustack/operate/cloud"
)

// FlavorList is the output of flavor list (docs/json.md).
type FlavorList struct {
	Schema   int            `json:"schema"`
	Cloud    string         `json:"cloud"`    // the address of Nova's API
	Flavors  []listedFlavor `json:"flavors"`  // the flavors that request devices, by name
	Warnings []string       `json:"warnings"` // what the user has no permission to read
}

// listedFlavor is a flavor that requests devices.
type listedFlavor struct {
	flavor.State
	// the devices that a guest requests; null if the request is malformed
	Request nova.Request `json:"request" null:"zero"`
	// whether a host has all these devices when all are free; null if unknown
	Met host.Bool `json:"can_be_met"`
	// the hosts that have them; null without an inventory
	Hosts []string `json:"hosts" null:"zero"`
	// why the request cannot be met; null for none
	Problem *string `json:"problem"`
}

// NewFlavorList returns the report of the flavors of the cloud at a URL.
func NewFlavorList(url string, list []clouds.ListedFlavor, warnings ...string) FlavorList {
	r := FlavorList{Schema: 1, Cloud: url, Warnings: warnings}
	for _, f := range list {
		r.Flavors = append(r.Flavors, listedFlavor{State: f.State, Request: f.Request, Met: f.Met, Hosts: f.Hosts, Problem: Optional(f.Reason)})
	}
	return r
}

// PrintFlavors prints the flavors as text. checked says that they were checked against what compute
// nodes offer.
func PrintFlavors(u *term.UI, r FlavorList, checked bool) {
	u.Warn(r.Warnings...)
	if len(r.Flavors) == 0 {
		u.Printf("no flavor requests devices\n")
		return
	}
	header := []string{"NAME", "DEVICES", "VCPUS", "RAM", "DISK", "ACCESS", "OTHER PROPERTIES"}
	if checked {
		header = slices.Insert(header, 2, "CAN BE MET")
	}
	var rows [][]string
	for _, f := range r.Flavors {
		disk := flavor.Size(f.Disk, flavor.GiB)
		if f.Ephemeral > 0 {
			disk += " + " + flavor.Size(f.Ephemeral, flavor.GiB)
		}
		row := []string{f.Name, f.ExtraSpecs[nova.RequestKey], fmt.Sprint(f.VCPUs), flavor.Size(f.RAM, flavor.MiB), disk, f.access(), f.others()}
		if checked {
			row = slices.Insert(row, 2, f.answer())
		}
		rows = append(rows, row)
	}
	table(u, header, rows)
}

func (f listedFlavor) access() string {
	switch {
	case f.Public:
		return "public"
	case f.Projects == nil:
		return "private"
	case len(f.Projects) == 0:
		return "private, no project"
	}
	return strings.Join(f.Projects, ", ")
}

// others returns the properties other than the request for devices.
func (f listedFlavor) others() string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(f.ExtraSpecs)) {
		if key != nova.RequestKey {
			words = append(words, key+"="+f.ExtraSpecs[key])
		}
	}
	return strings.Join(words, " ")
}

func (f listedFlavor) answer() string {
	switch {
	case f.Problem != nil:
		return "no: " + *f.Problem
	case !f.Met.Known():
		return "unknown"
	}
	return "by " + strings.Join(f.Hosts, ", ")
}
