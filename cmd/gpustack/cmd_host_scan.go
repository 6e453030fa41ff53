package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/iommu"
	"gpustack/host/pci"
)

func newHostScanCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "scan",
		Usage: "show the GPUs, their IOMMU groups and what stands in their way",
		Description: `
Lists the NVIDIA display functions of a machine and whatever shares a slot or an
IOMMU group with one of them, since a group can only be given to a guest whole.
Reads files below the root, changes nothing and needs no privileges.

Filters look at all functions instead and pick those that match every kind of
filter given. The formats json and yaml are described in docs/json.md.

EXAMPLES
  gpustack host scan
  gpustack host scan -o tree --all
  gpustack host scan --device 10de:11b4 -o json
  gpustack host scan --root /mnt/sosreport

EXIT STATUS
  0  the list is printed
  1  it could not be read, or a device asked for does not exist`,
		Flags: []cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatTree, formatJSON, formatYAML),
			&cli.BoolFlag{Name: "all", Usage: "list every PCI function"},
			&cli.StringSliceFlag{Name: "device", Usage: "list `DEVICE`: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			&cli.StringSliceFlag{Name: "vendor", Usage: "list functions made by `VENDOR`, four digits (repeatable)"},
			&cli.StringSliceFlag{Name: "class", Usage: "list functions of `CLASS`, two or four digits (repeatable)"},
			&cli.StringFlag{Name: "pci-ids", Usage: "take names from `FILE` instead of the pci.ids below the root"},
		},
		Action: action(u, parseHostScan, runHostScan),
	}
}

type hostScanOptions struct {
	root   string
	format string
	all    bool
	filter pci.Filter
	scan   pci.Options
}

func parseHostScan(c *cli.Context, f *faults) hostScanOptions {
	f.arguments(c)
	return hostScanOptions{
		root:   c.String("root"),
		format: f.choice(c, "output"),
		all:    c.Bool("all"),
		filter: pci.Filter{
			Devices: values(f, c, "device", pci.ParseSelector),
			Vendors: values(f, c, "vendor", pci.ParseID),
			Classes: values(f, c, "class", pci.ParseClassPrefix),
		},
		scan: pci.Options{PCIIDs: c.String("pci-ids")},
	}
}

func runHostScan(ctx context.Context, u *ui, opts hostScanOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	if err := settled(ctx, root); err != nil {
		return err
	}
	whole, err := scan(root, opts.scan)
	if err != nil {
		return err
	}
	shown, err := whole.narrow(opts)
	if err != nil {
		return err
	}
	u.warn(shown.allWarnings()...)
	switch opts.format {
	case formatTable:
		u.scanTable(shown)
	case formatTree:
		u.scanTree(shown, whole.Devices)
	default:
		return u.show(opts.format, shown)
	}
	return nil
}

// scanReport is what host scan prints, in the form that docs/json.md describes.
type scanReport struct {
	Schema   int           `json:"schema"`
	Host     scannedHost   `json:"host"`
	Devices  []pci.Device  `json:"devices"`
	Groups   []iommu.Group `json:"groups"`
	Warnings []string      `json:"warnings"` // of no device listed
}

type scannedHost struct {
	Hostname     *string     `json:"hostname"`
	Kernel       *string     `json:"kernel"`
	Distribution *string     `json:"distribution"`
	CPUVendor    *string     `json:"cpu_vendor"`
	IOMMU        iommu.State `json:"iommu"`
	BootLoader   *string     `json:"boot_loader"`
}

// scan reads the whole machine.
func scan(root host.Root, opts pci.Options) (scanReport, error) {
	var facts host.Facts
	var factWarnings []string
	var beside sync.WaitGroup
	beside.Go(func() { facts, factWarnings = host.ReadFacts(root) })
	devices, warnings, err := pci.Scan(root, opts)
	beside.Wait()
	if err != nil {
		return scanReport{}, err
	}
	state, stateWarnings := iommu.ReadState(root, devices)
	return scanReport{
		Schema: 1,
		Host: scannedHost{
			Hostname:     facts.Hostname,
			Kernel:       facts.Kernel,
			Distribution: facts.Distribution,
			CPUVendor:    facts.CPUVendor,
			IOMMU:        state,
			BootLoader:   facts.BootLoader,
		},
		Devices:  devices,
		Groups:   iommu.Groups(devices),
		Warnings: append(append(append([]string{}, factWarnings...), stateWarnings...), warnings...),
	}, nil
}

// narrow leaves the devices that were asked for, and their groups. It is an error
// to ask for a device that is not there.
func (r scanReport) narrow(opts hostScanOptions) (scanReport, error) {
	if err := missing(opts.filter.Devices, r.Devices); err != nil {
		return scanReport{}, err
	}
	all := r.Devices
	switch {
	case !opts.filter.IsZero():
		r.Devices = opts.filter.Pick(all)
	case !opts.all:
		r.Devices = pci.Candidates(all)
	}
	listed, groups := map[pci.Address]bool{}, map[int]bool{}
	for _, d := range r.Devices {
		listed[d.Address] = true
		if d.IOMMUGroup != nil {
			groups[*d.IOMMUGroup] = true
		}
	}
	for _, d := range all {
		if !listed[d.Address] {
			r.Warnings = append(r.Warnings, d.Warnings...)
		}
	}
	shown := []iommu.Group{}
	for _, g := range r.Groups {
		if groups[g.Number] {
			shown = append(shown, g)
		}
	}
	r.Groups = shown
	return r, nil
}

// missing is an error for each selector that names nothing.
func missing(selectors []pci.Selector, devices []pci.Device) error {
	var faults []error
	for _, s := range selectors {
		if len((pci.Filter{Devices: []pci.Selector{s}}).Pick(devices)) == 0 {
			faults = append(faults, &usageError{
				fmt.Sprintf("device %s: not among the %d PCI functions of this machine", s, len(devices)),
				"gpustack host scan --all lists them",
			})
		}
	}
	return errors.Join(faults...)
}

func (r scanReport) allWarnings() []string {
	all := r.Warnings
	for _, d := range r.Devices {
		all = append(all, d.Warnings...)
	}
	return all
}
