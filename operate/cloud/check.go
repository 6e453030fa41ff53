package cloud

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/novacheck"
)

// CheckOptions name what nova check reads.
type CheckOptions struct {
	Release nova.Release // 0 for the installed one
	Role    nova.Role    // of the machine; "" to infer it
	// Confs are files of several machines; none: the files of this machine are read.
	Confs       []nova.SideFiles
	Inventories document.Source // opens the copies of Confs, too
	Hypervisor  nova.Hypervisor // the versions that count instead of those of this machine
	Flavors     *cloud.Options  // the cloud whose flavors are checked; nil for none
}

// Checked is what nova check has read and found.
type Checked struct {
	// the release of Nova: "mitaka" to "2026.2", also for a newer one, with a warning
	Release nova.Release `json:"release"`
	// the checked files of each machine, or of this machine's services of each kind
	Sides []nova.Side `json:"configurations"`
	novacheck.Counts
	// the results of the checks "option", "alias", "device_spec", "filters", "placement" and
	// "flavors", by file and line, then of "service"
	Findings []host.Finding `json:"findings"`
	Warnings []string       `json:"warnings"` // what could not be read or judged
	Here     bool           // the files are those of this machine
}

// Check checks the files of controllers and compute nodes against each other, and against the
// inventories and flavors that the options name. It changes nothing.
//
// Errors: everything that cannot be read, at once.
func Check(ctx context.Context, root host.Root, o CheckOptions) (Checked, error) {
	release, warnings, releaseErr := o.Release.OrInstalledFor(root, o.Confs)
	sides, more, sidesErr := o.sides(root)
	hosts, hostsErr := nova.ReadInventories(o.Inventories, nova.ScopeGPUs)
	flavors, waiting, flavorsErr := o.readFlavors(ctx)
	if err := errors.Join(releaseErr, sidesErr, hostsErr, flavorsErr); err != nil {
		return Checked{}, err
	}
	checked := Checked{
		Release: release, Sides: sides, Counts: novacheck.Count(release, sides, hosts),
		Findings: append(novacheck.Run(release, sides, hosts, flavors), waiting...), Warnings: slices.Concat(warnings, more), Here: len(o.Confs) == 0,
	}
	if !checked.Here || !root.IsMachine() {
		return checked, nil
	}
	old, err := outdated(root, sides, guest.Started(root, nova.All.Programs()))
	checked.Findings = append(checked.Findings, old...)
	return checked, err
}

// outdated returns a warning for each service that was started before a file changed that it reads.
// started are the starts of the last processes of the services that run on the machine below root,
// as far as they are known.
func outdated(root host.Root, sides []nova.Side, started map[string]time.Time) (findings []host.Finding, err error) {
	entries, err := change.List(root)
	if err != nil {
		return nil, nil // which services need a restart is unknown
	}
	for _, side := range sides {
		for _, program := range side.Role.Programs() {
			start, isSeen := started[program]
			for _, file := range side.Of(program).Files {
				info, err := os.Stat(root.Path(file.Name))
				if host.IsAbsent(err) { // it was removed since it was read
					continue
				}
				if err != nil {
					return nil, host.OfFile(file.Name, err)
				}
				if !isSeen || !needsRestart(entries, program, file.Name, info.ModTime(), start) {
					continue
				}
				service, err := nova.NewService(root, program)
				if err != nil {
					return nil, err
				}
				remedy := host.Plain("restart " + program)
				if service.Command != nil {
					remedy = host.Plain("run " + *service.Command)
				}
				findings = append(findings, host.Finding{
					Check: "service", Status: host.Warn, File: file.Name, Effect: "Nova runs " + program + " with the options that it read before", Remedy: remedy,
					Seen: fmt.Sprintf("%s was started at %s, before the file changed", program, start.Format(time.RFC3339)),
				})
				break
			}
		}
	}
	return findings, nil
}

// needsRestart reports whether a file changed after the start of a service that reads it. Of changes
// that nova configure made and recorded, those count that need a restart of that service, without
// those that were both made and undone since.
func needsRestart(entries []change.Entry, program, file string, changed, start time.Time) bool {
	start = start.Add(2 * time.Second) // the kernel shows the time of boot in whole seconds, and entries have such times
	isRecorded := false
	for _, e := range entries {
		if e.Ended == nil || !slices.ContainsFunc(e.Files, func(f change.File) bool { return f.Name == file }) {
			continue
		}
		isReverted := e.Status == change.Undone && e.Started.After(start)
		if !isReverted && e.Ended.After(start) && slices.Contains(e.Restart, program) {
			return true
		}
		isRecorded = isRecorded || changed.After(e.Started.Add(-time.Second)) && changed.Before(e.Ended.Add(time.Second))
	}
	return !isRecorded && changed.After(start)
}

// sides reads the files that are named, or everything of this machine.
func (o CheckOptions) sides(root host.Root) (sides []nova.Side, warnings []string, err error) {
	if len(o.Confs) > 0 {
		sides, err := nova.ReadSides(root, o.Inventories, o.Confs)
		for i := range sides {
			sides[i].Hypervisor = o.Hypervisor
		}
		return sides, nil, err
	}
	records, recordErr := gate.ReadRecords(root)
	record := recorded(records, nil)
	if recordErr == nil {
		record.Returning = machine.ObserveRecord(root, nil, false).Unbooted.Value
	}
	role, from := o.Role, ""
	if role == "" {
		if role, from, err = configuredRole(root); err != nil {
			warnings = append(warnings, fmt.Sprintf("the role is inferred without the journal: %v", err))
		}
	}
	made, err := steps.Made(root)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("cannot determine which VFs this boot has made: %v", err))
	}
	sides, more, err := nova.ObserveSides(root, role, from, record)
	var needed []pci.Address
	if slices.ContainsFunc(sides, func(s nova.Side) bool { return s.Role.Computes() }) {
		needs, err := guard.Observe(root, sides[0].Devices)
		if err != nil {
			more = append(more, fmt.Sprintf("cannot determine which functions the host needs: %v", err))
		}
		needed = gate.Host{Devices: sides[0].Devices, Needs: needs}.Needed()
	}
	for i := range sides {
		there := records.Guests.There(sides[i].Devices)
		sides[i].Given, sides[i].Selected, sides[i].Needed = there.Addresses(), host.Value(there).Selected, needed
		sides[i].VFs, sides[i].Left = records.RDMA.VFs(rdma.ForGuests, sides[i].Devices), records.RDMA.Left(sides[i].Devices, made)
		sides[i].Hypervisor = o.Hypervisor.Or(sides[i].Hypervisor)
	}
	return sides, append(warnings, more...), errors.Join(err, recordErr)
}

// readFlavors returns the flavors of the cloud that request devices, and a finding for the one-time-use
// devices of a cloud with Placement that no guest gets.
func (o CheckOptions) readFlavors(ctx context.Context) (flavors []novacheck.Flavor, waiting []host.Finding, err error) {
	if o.Flavors == nil {
		return nil, nil, nil
	}
	compute, err := cloud.ConnectCompute(ctx, *o.Flavors)
	if err != nil {
		return nil, nil, err
	}
	toClean := ""
	placement, err := compute.Cloud().Placement()
	if err == nil {
		toClean, err = placement.ToClean(ctx, "")
	}
	if err != nil && !errors.Is(err, cloud.ErrNoEndpoint) {
		return nil, nil, err
	}
	if toClean != "" {
		waiting = []host.Finding{{Check: "flavors", Status: host.Warn, Seen: toClean, Effect: "Nova gives them to no guest",
			Remedy: host.Textf("run %s", host.NewCommand("nova devices").Flag("state", string(DeviceToClean)))}}
	}
	all, err := compute.FlavorsWithSpecs(ctx)
	for _, f := range all {
		if request, requests := f.ExtraSpecs[nova.RequestKey]; requests {
			flavors = append(flavors, novacheck.Flavor{Name: f.Name, Request: request})
		}
	}
	return flavors, waiting, err
}
