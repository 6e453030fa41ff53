package nova

import (
	"fmt"

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
