package nova

import (
	"fmt"

	"gpustack/host"
	"gpustack/nova/conf"
)

// ownHeader begins a file of ours in nova.conf.d.
const ownHeader = "# Written by gpustack nova configure. \"gpustack undo\" reverts it.\n"

// KeepReporting returns the content of a file after the undo of a change: now is the content with
// the change, before the content without it; nil stands for no file. It is before, but for
// report_in_placement, which stays set: nova-compute refuses to start without it once its devices
// are in Placement (nova/compute/pci_placement_translator.py,
// ensure_tracking_was_not_enabled_before).
func KeepReporting(now, before []byte) ([]byte, error) {
	reports := func(f *conf.File) bool { return Side{Files: []conf.Source{{File: f}}}.IsOn(ReportInPlacement) }
	with, err := conf.Parse(now)
	if err != nil || !reports(with) {
		return before, nil //nolint:nilerr // Nova cannot read the file either, so the option is not in effect
	}
	text := before
	if before == nil {
		text = []byte(ownHeader)
	}
	without, err := conf.Parse(text)
	if err != nil || reports(without) {
		return before, nil //nolint:nilerr // as above
	}
	kept, err := without.Set(conf.Setting{Names: []conf.Name{ReportInPlacement}, Values: []string{"true"}})
	if err != nil {
		return nil, fmt.Errorf("keep %s: %w", ReportInPlacement, err)
	}
	return kept.Bytes(), nil
}

// planReporting turns on the option by which nova-compute reports devices to Placement.
func planReporting(read sources, o Options) step {
	if !o.Placement || !o.Role.Computes() {
		return step{}
	}
	st := read.turnOn(ReportInPlacement, programCompute)
	if read.changes(st) {
		st.Warnings = ReshapeWarnings(o, read.Compute().Files)
	}
	return st
}

// planAsking turns on the option by which the services of a controller ask Placement for devices.
func planAsking(read sources, o Options) step {
	if !o.Placement || !o.Role.Controls() || o.Release < Antelope {
		return step{}
	}
	return read.turnOn(PCIInPlacement, programConductor, programScheduler, programAPI)
}

// turnOn sets a boolean option for programs.
func (s sources) turnOn(n conf.Name, programs ...string) step {
	same := func(have, want string) bool { return have == want || conf.IsTrue(have) && conf.IsTrue(want) }
	return s.each([]conf.Name{n}, func(string, bool) string { return "true" }, same, programs...)
}

// ReshapeWarnings returns the warning that nova-compute needs the role service in Keystone to report
// devices that guests have: it then reshapes its providers (nova/compute/resource_tracker.py,
// _update_to_placement). Placement's policy permits that only to the role service since 9.0.0
// (2023.1, placement/policies/reshaper.py), and oslo.policy enforces such defaults since 4.4.0
// (2024.2), unless placement.conf sets enforce_new_defaults to False. None if the release or
// the role is another. The user is that of files, which are those of nova-compute, in its order.
func ReshapeWarnings(o Options, files []conf.Source) []string {
	if !o.Placement || !o.Role.Computes() || o.Release < Dalmatian {
		return nil
	}
	option := func(otherwise string, keys ...string) string {
		for _, key := range keys { // the first that is set counts
			o, _ := Side{Files: files}.last([]conf.Name{{Section: "placement", Key: key}})
			if text, err := plain(o.Value); err == nil && text != "" {
				return host.ShellWord(text)
			}
		}
		return host.ShellWord(otherwise)
	}
	// The defaults are the names in OpenStack's installation guides.
	return []string{"report_in_placement: Placement " + Dalmatian.String() +
		" and later permits only users with the role service to reshape providers, as nova-compute does to report devices of guests. " +
		"Without the role, nova-compute does not start on a host with such guests (ReshapeFailed, HTTP 403). Add the role before the restart: openstack role add" +
		" --project " + option("service", "project_name", "project_id") + " --project-domain " + option("Default", "project_domain_name", "project_domain_id") +
		" --user " + option("placement", "username", "user_id") + " --user-domain " + option("Default", "user_domain_name", "user_domain_id") + " service"}
}
