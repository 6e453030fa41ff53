package main

import "gpustack/host/change"

// Remedies for a change that a second signal has stopped, possibly before its entry in the journal
// was written.
const (
	remedyMachine = "if 'gpustack history' shows an interrupted entry, the next command that changes this machine recovers it first"
	remedyRows    = "if 'gpustack history' shows an interrupted entry, 'gpustack repair-migration --apply' determines what it has done, 'gpustack undo' undoes it"
)

// remedyOf returns the remedy for a change of a kind.
func remedyOf(kind string) string {
	if kind == change.KindObjects {
		return "if 'gpustack history' shows an interrupted entry, the next gpustack command that changes objects of that cloud, such as flavor create, determines what it has done, 'gpustack undo' undoes it"
	}
	return remedyMachine
}
