package views

import (
	"cmp"
	"fmt"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/fleet"
)

// FleetAliases is the output of fleet aliases (docs/json.md).
type FleetAliases struct {
	Schema    int          `json:"schema"`
	NodeCount int          `json:"node_count"` // nodes with a document of any kind
	Aliases   []fleetAlias `json:"aliases"`    // an alias for each product, by ids
	// whether each product has a name and one device type
	Passed bool `json:"passed"`
	// hosts with several documents of one kind; documents of other commands
	Warnings []string `json:"warnings"`
}

// fleetAlias is an alias of a product with the nodes that have it.
type fleetAlias struct {
	fleetProduct
	DeviceType *pci.DeviceType `json:"device_type"` // the type on most nodes; null if it is unknown
	// the value of the option in nova.conf; null for a product without a name or device type
	Alias      *string      `json:"alias"`
	NodeNames  []string     `json:"node_names"` // the nodes that have the product with that type
	Exceptions []fleetSplit `json:"exceptions"` // nodes that have it with another type
}

// fleetSplit are nodes that have a product with another device type.
type fleetSplit struct {
	// the type on these nodes; null if it is unknown
	DeviceType *pci.DeviceType `json:"device_type"`
	NodeNames  []string        `json:"node_names"` // the nodes with that type
}

// NewFleetAliases returns the report of the aliases of a fleet.
func NewFleetAliases(f fleet.Fleet) FleetAliases {
	r := FleetAliases{Schema: 1, NodeCount: len(f.Nodes), Passed: true,
		Warnings: f.Warnings}
	for _, a := range f.Aliases() {
		row := fleetAlias{
			fleetProduct: newFleetProduct(fleet.Product{Vendor: a.VendorID, ID: a.ProductID}, cmp.Or(a.Name, a.Text)),
			DeviceType:   known(pci.DeviceType(a.DeviceType)), NodeNames: nodeNames(a.Nodes)}
		if a.Name != "" && a.DeviceType != "" {
			line := conf.Written(a.Alias)
			row.Alias = &line
		}
		for _, s := range a.Others {
			row.Exceptions = append(row.Exceptions, fleetSplit{known(s.Type), nodeNames(s.Nodes)})
		}
		r.Passed = r.Passed && row.Alias != nil && len(row.Exceptions) == 0
		r.Aliases = append(r.Aliases, row)
	}
	return r
}

// Print prints the aliases as lines of nova.conf, and below them what no line can have.
func (r FleetAliases) Print(u *term.UI) {
	u.Printf("[pci]\n")
	for _, a := range r.Aliases {
		if a.Alias != nil {
			u.Raw(fmt.Sprintf("alias = %s\n", term.Printable(*a.Alias))) // a line of nova.conf is not broken
		}
	}
	var rows [][]string
	for _, a := range r.Aliases {
		why := ""
		switch {
		case a.DeviceType == nil:
			why = "the device type is unknown"
		case a.Alias == nil:
			why = "the product has no name: choose one with nova configure --alias"
		}
		if why != "" {
			rows = append(rows, printableRow(a.title(), Text(a.DeviceType), why, FoldNames(a.NodeNames)))
		}
		for _, s := range a.Exceptions {
			why := fmt.Sprintf("not %s as on %d others", Text(a.DeviceType), len(a.NodeNames))
			switch {
			case s.DeviceType == nil:
				why = "the device type is unknown"
			case a.DeviceType != nil && *a.DeviceType == pci.TypePF && *s.DeviceType == pci.TypePCI:
				why += ": SR-IOV is off in the firmware, or the kernel does not support it"
			}
			rows = append(rows, printableRow(a.title(), Text(s.DeviceType), why, FoldNames(s.NodeNames)))
		}
	}
	if rows != nil {
		u.Printf("\n")
		table(u, []string{"PRODUCT WITHOUT ONE ALIAS", "TYPE", "WHY", "NODES"}, rows)
	}
	u.Printf("\n%s\n", strings.Join([]string{fmt.Sprintf("aliases: %d", len(r.Aliases)), fmt.Sprintf("nodes: %d", r.NodeCount)}, ", "))
}
