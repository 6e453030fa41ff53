package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"gpustack/host"
)

// warningsOf returns a warning for each interrupted change of a journal that only some commands
// recover: those of databases and APIs. A journal that cannot be read because it belongs to root
// gives none, and neither does an entry that a run may be working on.
func warningsOf(ctx context.Context, journal Seen) (warnings []string) {
	left, err := Engine{}.InterruptedIn(ctx, journal, ToLook)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil
	case err != nil:
		warnings = append(warnings, fmt.Sprintf("cannot determine whether earlier changes were interrupted: %v", err))
	}
	warnings = append(warnings, host.Map(host.Filter(left, func(l Left) bool { return !OnMachine(l.Entry) && !l.Running }), Left.Text)...)
	return warnings
}

// AllWarnings returns such warnings of every journal that [Stores] finds for a folder, ""
// for a command that reads no machine. An error of finding them is the command's own to report.
func AllWarnings(ctx context.Context, dir string) (warnings []string) {
	all, err := Stores(cmp.Or(dir, "/"))
	if err != nil {
		return nil
	}
	return host.FlatMap(all, func(store Store) []string { return warningsOf(ctx, store.Observe()) })
}

// Look reads the journal of the machine below root, once, with the warnings of [AllWarnings], of
// which some may be of the user's journal.
func Look(ctx context.Context, root host.Root) (journal Seen, warnings []string) {
	var machine *Seen
	all, _ := storesOf(root) // an error is one of the user's journal, which a check does not need
	for _, store := range all {
		seen := store.Observe()
		warnings = append(warnings, warningsOf(ctx, seen)...)
		if store.Dir == Dir {
			machine = &seen
		}
	}
	if machine == nil { // it is for root only
		return Machine(root).Observe(), warnings
	}
	return *machine, warnings
}
