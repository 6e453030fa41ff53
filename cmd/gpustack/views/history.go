package views

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"gpustack/cleanup"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/nova"
	"gpustack/nova/drain"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
	"gpustack/operate/node"
)

// History is the output of history (docs/json.md).
type History struct {
	Schema int `json:"schema"`
	// all changes of this machine, oldest first; with ENTRY that entry only
	Entries []HistoryEntry `json:"entries"`
}

// HistoryEntry is an entry of the journal in documents. The journal's own format, which also has
// what undo needs, is internal to gpustack.
type HistoryEntry struct {
	// the folder of the journal that contains the entry
	Journal string `json:"journal"`
	Entry   int    `json:"entry"` // the number, as undo accepts it
	// "files", "rows" of a database, "drivers" of functions, or "objects" of an API
	Changes string        `json:"changes"`
	Command string        `json:"command"` // the command that was run
	Status  change.Status `json:"status"`  // how far the change got
	Started time.Time     `json:"started"` // when the command began to change something
	// when it was done or undone; null before that
	Ended  *time.Time    `json:"ended"`
	Origin change.Origin `json:"origin"` // who made the change, where and how
	Files  []string      `json:"files"`  // the files that were changed
	// the change of each file, as far as the journal shows it, of an entry of "files"
	Diffs       []change.Past  `json:"diffs"`
	DriversPlan                // of an entry of "drivers"
	Repairs     []cleanup.Unit `json:"repairs"` // the repairs of an entry of "rows"
	// the change of a flavor by an entry of "objects"; null for other changes
	Flavor *flavor.Move `json:"flavor"`
	// the change of an image by an entry of "objects"; null for other changes
	Image *image.Move `json:"image_change"`
	// the change of a compute service by an entry of "objects"; null for other changes
	Service  *drain.Move `json:"service_change"`
	Programs []string    `json:"programs"` // programs that were run afterwards
	// programs to run on the machine, which gpustack did not run
	Left []string `json:"left"`
	// services that read the files when they start
	Restart []string `json:"restart"`
	// why drivers, repairs or flavor cannot be read; null if they can be
	Problem *string `json:"problem"`

	changed string // see function changed
}

// NewHistory returns the report of entries.
func NewHistory(entries []node.Recorded) History {
	return History{Schema: 1, Entries: host.Map(entries, newHistoryEntry)}
}

// newHistoryEntry returns an entry of a journal.
func newHistoryEntry(r node.Recorded) HistoryEntry {
	e := r.Entry
	h := HistoryEntry{
		Journal: r.Store.Path(), Origin: e.Origin, Entry: e.ID, Changes: e.Changes, Command: e.Command, Status: e.Status,
		Started: e.Started, Ended: e.Ended, Diffs: r.Past, Files: host.Map(e.Files, func(f change.File) string { return f.Name }),
		Programs: commandLines(e.Programs), Left: commandLines(e.Left), Restart: e.Restart,
	}
	read, err := kindOf(e).read(e)
	if h.changed = read.changed; err != nil {
		h.changed = InOneLine(err)
		h.Problem = &h.changed
	} else if read.add != nil {
		read.add(&h)
	}
	return h
}

// PrintHistory prints entries as a table. journals says that there are several, which are named.
func PrintHistory(u *term.UI, r History, journals bool) {
	if len(r.Entries) == 0 {
		u.Printf("gpustack has changed nothing here\n")
		return
	}
	header := []string{"ENTRY", "BEGUN", "USER", "STATUS", "COMMAND", "CHANGED", "JOURNAL"}
	tableWith(u, "JOURNAL", journals, header, host.Map(r.Entries, func(e HistoryEntry) []string {
		return []string{strconv.Itoa(e.Entry), e.Started.Format("2006-01-02 15:04:05Z"), orDash(e.Origin.User), string(e.Status), e.Command, e.changed,
			e.Journal}
	}))
}

// PrintEntry prints an entry with its change, as its plan did, and the services to restart.
func PrintEntry(u *term.UI, h HistoryEntry, r node.Recorded) error {
	e := r.Entry
	printEntryHead(u, h.Journal, e)
	read, err := kindOf(e).read(e)
	if err == nil {
		read.show(u, h)
	}
	printPrograms(u, h.Programs, h.Left)
	if len(e.Restart) == 0 {
		return err
	}
	names, restartErr := nova.RestartNames(r.Store.Root, e.Restart)
	if restartErr != nil {
		return errors.Join(err, restartErr)
	}
	u.Printf("\nservices to restart, in this order: %s\n", term.Printable(strings.Join(names, ", ")))
	return err
}

// printEntryHead prints what an entry is.
func printEntryHead(u *term.UI, journal string, e change.Entry) {
	at := func(t time.Time) string { return t.Format("2006-01-02 15:04:05Z") }
	origin := e.Origin
	ended := either(e.Ended != nil, at(host.Value(e.Ended)), "-")
	u.Printf("%s\n", term.Printable(EntryName(e)))
	for _, field := range [][2]string{
		{"begun", at(e.Started)}, {"ended", ended}, {"status", string(e.Status)}, {"user", orDash(origin.User)}, {"host", orDash(origin.Host)},
		{"version", orDash(origin.Version)}, {"command", commandLine(origin.Argv)}, {"journal", journal},
	} {
		u.Printf("  %-8s %s\n", field[0], term.Printable(field[1]))
	}
}

// commandLine returns a command line of gpustack, as a shell reads it.
func commandLine(argv []string) string {
	words := []string{"gpustack"}
	for _, word := range argv {
		words = append(words, host.ShellWord(word))
	}
	return strings.Join(words, " ")
}

// printEntryFiles prints changes of files as their plan did, each with what its diff lacks.
func printEntryFiles(u *term.UI, h HistoryEntry) {
	for _, c := range h.Diffs {
		u.Diff(c.Diff)
		if c.Note != "" {
			u.Printf("\n%s: %s\n", term.Printable(c.Name), c.Note)
		}
	}
}

// printEntryDrivers prints changes of drivers as their plan did.
func printEntryDrivers(u *term.UI, plan driver.Plan) {
	tableBelow(u, []string{"FUNCTION", "GROUP", "BEFORE", "AFTER"}, host.Map(plan.Changes, func(c driver.Change) []string {
		return []string{c.Address.String(), Text(c.Group), orDash(string(c.Before.Driver)), thenText(c)}
	}))
	printDriverWrites(u, plan, true)
}

// printEntryRows prints repairs as their plan did, each with its state.
func printEntryRows(u *term.UI, units []cleanup.Unit) {
	PrintRepairPlan(u, units)
	u.Printf("\n")
	for _, unit := range units {
		u.Printf("%s: %s\n", term.Printable(unit.Name()), unit.State)
	}
}

// UndoCommand returns the command that undoes an entry.
func UndoCommand(entry int) host.Command {
	return host.NewCommand("undo").Arg(strconv.Itoa(entry))
}

// InOneLine returns the text of an error as a cell of a table.
func InOneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
