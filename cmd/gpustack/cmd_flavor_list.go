package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/check"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
)

func newFlavorListCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the flavors whose guests get devices",
		Description: `
Lists the flavors that request devices and that the user may see; an administrator also
sees private flavors and the projects that may use them. With --conf or --inventory it
shows which hosts can provide the devices of each flavor when all devices are free.
Without --conf an alias stands for the product that host scan gives that name. Changes
nothing.

` + cloudHelp + `

EXAMPLES
  gpustack flavor list
  gpustack flavor list --conf controller=/etc/nova/nova.conf --inventory gpu1.json
  gpustack flavor list --os-cloud lab -o json

EXIT STATUS
  0  the flavors are listed
  1  the flavors could not be listed`,
		Flags: append([]cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			confsFlag("check against `[ROLE=]FILE[,FILE]` (repeatable)"),
			releaseFlag(),
			inventoryFlag("check against the hardware in `FILE`, JSON or YAML of host scan"),
		}, cloudFlags()...),
		Action: action(u, parseFlavorList, runFlavorList),
	}
}

type flavorListOptions struct {
	root, format string
	cloud        cloudOptions
	confs        []nova.SideFiles
	release      nova.Release
	inventories  []string
}

func parseFlavorList(c *cli.Context, f *args.Faults) flavorListOptions {
	f.Arguments(c)
	return flavorListOptions{c.String("root"), f.Choice(c, "output"), parseCloud(c, f), parseConfs(c, f, ""), parseRelease(c, f), c.StringSlice("inventory")}
}

// flavorListReport is the output of flavor list (docs/json.md).
type flavorListReport struct {
	Schema   int          `json:"schema"`
	Cloud    string       `json:"cloud"`
	Flavors  []listedItem `json:"flavors"`
	Warnings []string     `json:"warnings"`
}

// listedItem is a flavor that requests devices.
type listedItem struct {
	flavor.State
	Request nova.Request `json:"request" null:"zero"` // null if it is malformed
	Met     *bool        `json:"can_be_met"`
	Hosts   []string     `json:"hosts" null:"zero"`
	Problem *string      `json:"problem"`
}

func runFlavorList(ctx context.Context, u *term.UI, opts flavorListOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	hosts, err := nova.ReadInventories(documentsAt(u, opts.inventories...), nova.ScopeGPUs)
	errs := []error{err}
	var sides []nova.Side
	var release nova.Release
	warnings := []string{}
	if len(opts.confs) > 0 {
		var newer []string
		release, newer, err = opts.release.OrInstalled(root)
		warnings = append(warnings, newer...)
		errs = append(errs, err)
		sides, err = nova.ReadSides(documentsAt(u), opts.confs)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, compute, err := connect(ctx, u, opts.cloud)
	if err != nil {
		return err
	}
	all, err := compute.FlavorsWithSpecs(ctx)
	if err != nil {
		return err
	}
	report := flavorListReport{Schema: 1, Cloud: compute.URL, Flavors: []listedItem{}, Warnings: warnings}
	for _, f := range gpuFlavors(all) {
		item := listedItem{State: flavor.State{Flavor: f}}
		if !f.Public {
			item.Projects, err = compute.Access(ctx, f)
			switch {
			case errors.Is(err, cloud.ErrForbidden):
				report.Warnings = append(report.Warnings, err.Error())
				item.Projects = nil
			case err != nil:
				return err
			}
		}
		request, err := nova.ParseRequest(f.ExtraSpecs[nova.RequestKey])
		if err != nil {
			met, problem := false, strings.ReplaceAll(err.Error(), "\n", ", ")
			item.Met, item.Problem = &met, &problem
		} else {
			answer := check.Request(request, release, sides, hosts)
			item.Request, item.Met, item.Hosts = request, answer.Met, answer.Hosts
			if answer.Reason != "" {
				item.Problem = &answer.Reason
			}
		}
		report.Flavors = append(report.Flavors, item)
	}
	if opts.format != term.FormatTable {
		u.Document.Show(report)
		return nil
	}
	printFlavors(u, report, len(sides)+len(hosts) > 0)
	return nil
}

// printFlavors prints the flavors as text.
func printFlavors(u *term.UI, r flavorListReport, held bool) {
	u.Warn(r.Warnings...)
	if len(r.Flavors) == 0 {
		u.Printf("no flavor requests devices\n")
		return
	}
	header := []string{"NAME", "DEVICES", "VCPUS", "RAM", "DISK", "ACCESS", "OTHER PROPERTIES"}
	if held {
		header = slices.Insert(header, 2, "CAN BE MET")
	}
	var rows [][]string
	for _, f := range r.Flavors {
		disk := flavor.Size(f.Disk, flavor.GiB)
		if f.Ephemeral > 0 {
			disk += " + " + flavor.Size(f.Ephemeral, flavor.GiB)
		}
		row := []string{f.Name, f.ExtraSpecs[nova.RequestKey], fmt.Sprint(f.VCPUs), flavor.Size(f.RAM, flavor.MiB), disk, f.access(), f.others()}
		if held {
			row = slices.Insert(row, 2, f.answer())
		}
		rows = append(rows, row)
	}
	u.Table(header, rows)
}

func (f listedItem) access() string {
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
func (f listedItem) others() string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(f.ExtraSpecs)) {
		if key != nova.RequestKey {
			words = append(words, key+"="+f.ExtraSpecs[key])
		}
	}
	return strings.Join(words, " ")
}

func (f listedItem) answer() string {
	switch {
	case f.Problem != nil:
		return "no: " + *f.Problem
	case f.Met == nil:
		return "unknown"
	}
	return "by " + strings.Join(f.Hosts, ", ")
}
