package change

import (
	"strconv"

	"gpustack/host"
)

// known is what every reader of a journal knows of the kind of an entry, which it cannot open.
type known struct {
	// onMachine reports whether a change is of the machine that its journal is of.
	onMachine bool
	// effect is what an interrupted change may have left.
	effect string
	// remedy says what ends an interrupted entry.
	remedy host.Text
}

// knownOf returns what is known of the kind of an entry. A new kind of change has its case here.
func knownOf(e Entry) known {
	undo := host.NewCommand("undo").Arg(strconv.Itoa(e.ID))
	const machine = "the next command that changes this machine recovers it first"
	switch e.Changes {
	case KindFiles:
		return known{true, "files may be changed in part", host.Plain(machine)}
	case KindDrivers:
		return known{true, "functions may have no driver, or a group may be split between host and guests, until the next boot", host.Plain(machine)}
	case KindRows:
		return known{false, "rows of Nova's database and Placement's allocations may not match",
			host.Textf("%s determines it and completes or reverts the repair, %s undoes it", host.NewCommand("repair-migration").Flag("apply"), undo)}
	case KindObjects:
		return known{false, "an object of OpenStack's API may be created, changed or deleted in part",
			host.Textf("the next gpustack command that changes objects of that cloud, such as flavor create, "+
				"determines it and completes or reverts the change, %s undoes it", undo)}
	}
	return known{false, "what it changed may be changed in part", host.Plain("the release of gpustack that made it recovers it")}
}

// Remedy says what ends the entry.
func (l Left) Remedy() host.Text { return knownOf(l.Entry).remedy }

// Effect says what the interrupted change may have left.
func (l Left) Effect() string { return knownOf(l.Entry).effect }

// OnMachine reports whether an entry changes the machine that its journal is of: every command that
// changes the machine recovers it. Others are recovered only by commands that access their database
// or API.
func OnMachine(e Entry) bool { return knownOf(e).onMachine }
