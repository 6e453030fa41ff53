package views

import (
	"fmt"
	"strconv"
	"strings"

	"gpustack/cleanup/repair"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/nova/drain"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
	"gpustack/nova/servertest"
)

// Remedies for a change that a second signal has stopped, possibly before its entry in the journal
// was written.
var (
	remedyMachine = ifInterrupted("the next command that changes this machine recovers it first")
	remedyRows    = ifInterrupted("'%s' determines what it has done, '%s' undoes it", host.NewCommand("repair-migration").Flag("apply"), host.NewCommand("undo"))
	remedyObjects = ifInterrupted("the next gpustack command that changes objects of that cloud, such as flavor create, determines what it has done, '%s' undoes it",
		host.NewCommand("undo"))
)

// ifInterrupted returns a remedy for a change if its entry was written.
func ifInterrupted(format string, commands ...any) host.Text {
	return host.Textf("if '%s' shows an interrupted entry, %s", host.NewCommand("history"), host.Textf(format, commands...))
}

// kind is how history, recoveries and plans show the changes of one kind.
type kind struct {
	name   string // in the journal
	object string // the type of object, of KindObjects
	// read returns what an entry records of its change.
	read func(e change.Entry) (recorded, error)
	// recovery says what the recovery of an entry does, by the name of the entry.
	recovery func(name string, e change.Entry) string
	// remedy is the one for a change that a second signal has stopped.
	remedy host.Text
}

// recorded is what an entry records of its change, as history shows it.
type recorded struct {
	changed string                           // for a cell of a table
	add     func(h *HistoryEntry)            // to a document; nil for nothing beside files
	show    func(u *term.UI, h HistoryEntry) // as the plan did
}

// kinds returns how each kind of change is shown. A new kind of change has its row here.
func kinds() []kind {
	return []kind{
		{change.KindFiles, "", readFiles, recoveryOfFiles, remedyMachine},
		{change.KindDrivers, "", readDrivers, recoveryOfDrivers, remedyMachine},
		{change.KindRows, "", readRows, recoveryByOutcome, remedyRows},
		ofObject(flavor.Type, readObject(flavor.Type, func(h *HistoryEntry, m flavor.Move) { h.Flavor = &m })),
		ofObject(image.Type, readObject(image.Type, func(h *HistoryEntry, m image.Move) { h.Image = &m })),
		ofObject(drain.Type, readObject(drain.Type, func(h *HistoryEntry, m drain.Move) { h.Service = &m })),
		{change.KindObjects, servertest.Type, readTest, func(name string, _ change.Entry) string {
			return name + " is reverted: Nova deletes the servers of the test that exist"
		}, remedyObjects},
	}
}

// kindOf returns how the change of an entry is shown. A kind of a later release is shown as far as
// its entry goes.
func kindOf(e change.Entry) kind {
	for _, k := range kinds() {
		if k.name == e.Changes && k.object == e.ObjectType() {
			return k
		}
	}
	if e.Changes == change.KindObjects {
		if e.ObjectType() == "" { // malformed, as parsing it says
			return ofObject("", readObject(flavor.Type, func(*HistoryEntry, flavor.Move) {}))
		}
		return ofObject(e.ObjectType(), unknownObject)
	}
	return kind{e.Changes, "", readUnknown, recoveryByOutcome, remedyMachine}
}

// ofObject returns the kind of changes of one type of objects of a cloud.
func ofObject(typ string, read func(change.Entry) (recorded, error)) kind {
	return kind{change.KindObjects, typ, read, recoveryByOutcome, remedyObjects}
}

// RemedyOf returns the remedy for a change of a kind that a second signal has stopped, possibly
// before its entry in the journal was written.
func RemedyOf(name string) host.Text {
	for _, k := range kinds() {
		if k.name == name {
			return k.remedy
		}
	}
	return remedyMachine
}

// changed returns a short description of what an entry has changed.
func changed(e change.Entry) string {
	r, err := kindOf(e).read(e)
	if err != nil {
		return InOneLine(err)
	}
	return r.changed
}

// RecoverySummary returns the summary of the recovery of an interrupted entry, as far as the entry
// itself shows it: the recovery determines what was written.
func RecoverySummary(e change.Entry) string {
	return kindOf(e).recovery(EntryName(e), e)
}

// RecoveryQuestion returns the question whether to recover interrupted entries, and the summary of
// each, which stands above it.
func RecoveryQuestion(entries []change.Entry) (question string, summaries []string) {
	names, was := host.Map(entries, EntryName), either(len(entries) > 1, "were", "was")
	return fmt.Sprintf("%s %s interrupted: recover now?", host.Listed(names, "and"), was), host.Map(entries, RecoverySummary)
}

// RowsQuestion is [RecoveryQuestion] of repairs, of which entry accept, unless it is 0, is closed
// as it is.
func RowsQuestion(open []change.Left, accept int) (question string, summaries []string) {
	var names []string
	for _, l := range open {
		summary := RecoverySummary(l.Entry)
		if l.Entry.ID == accept {
			summary = EntryName(l.Entry) + " is closed; no row and no allocation is changed"
		}
		names, summaries = append(names, strconv.Itoa(l.Entry.ID)), append(summaries, summary)
	}
	if accept != 0 {
		return fmt.Sprintf("close entry %d with its rows and allocations as they are now?", accept), summaries
	}
	return fmt.Sprintf("determine what the interrupted entry %s has done, and complete or revert it?", host.Listed(names, "and")), summaries
}

// recoveryByOutcome is that of changes whose outcome is found in a database or an API.
func recoveryByOutcome(name string, _ change.Entry) string {
	return name + " is completed or reverted, whichever its outcome shows"
}

// recoveryBegun is that of changes of the machine whose own part is done or undone already.
func recoveryBegun(name string, e change.Entry) (summary string, ok bool) {
	programs, files := term.Some(len(e.Programs), "program", " run"), after("at most ", term.Some(len(e.Files), "file", " restored"))
	switch e.Status {
	case change.Rebuilding:
		return term.Sentence(name+" is completed", programs), true
	case change.Unbuilding:
		return term.Sentence("the undo of "+name+" is completed", programs), true
	case change.Undoing:
		return term.Sentence("the undo of "+name+" is completed", files, programs), true
	case change.Applying, change.Done, change.Undone:
	}
	return term.Sentence(name+" is rolled back", files), false
}

func recoveryOfFiles(name string, e change.Entry) string {
	summary, _ := recoveryBegun(name, e)
	return summary
}

func recoveryOfDrivers(name string, e change.Entry) string {
	if summary, ok := recoveryBegun(name, e); ok {
		return summary
	}
	done := " is rolled back"
	if record, err := driver.ParseRecord(e); err == nil && record.Release { // functions never stay half released
		done = " is completed"
	}
	return name + done + " in each IOMMU group that is half changed: " + changed(e)
}

func readFiles(e change.Entry) (recorded, error) {
	r := recorded{changed: "-", show: printEntryFiles}
	if n := len(e.Files); n == 1 {
		r.changed = e.Files[0].Name
	} else if n > 1 {
		r.changed = fmt.Sprintf("%s and %d more", strings.TrimSpace(e.Files[0].Name), n-1)
	}
	return r, nil
}

func readDrivers(e change.Entry) (recorded, error) {
	record, err := driver.ParseRecord(e)
	if err != nil {
		return recorded{}, err
	}
	plan := driver.Plan{Release: record.Release, Changes: record.Functions, Services: record.Services, Containers: record.Containers}
	return recorded{
		changed: "drivers of " + host.Numbered(len(record.Functions), "function"),
		add:     func(h *HistoryEntry) { h.DriversPlan = newDriversPlan(plan) },
		show:    func(u *term.UI, _ HistoryEntry) { printEntryDrivers(u, plan) },
	}, nil
}

func readRows(e change.Entry) (recorded, error) {
	units, err := repair.Units(e)
	return recorded{
		changed: "rows of Nova's databases",
		add:     func(h *HistoryEntry) { h.Repairs = units },
		show:    func(u *term.UI, _ HistoryEntry) { printEntryRows(u, units) },
	}, err
}

// readUnknown returns what is shown of a change of an unknown kind.
func readUnknown(e change.Entry) (recorded, error) {
	return recorded{changed: e.Changes, show: func(u *term.UI, _ HistoryEntry) {
		u.Printf("\na change of kind %s, of another version of gpustack: the journal has it as it is recorded\n", strconv.Quote(e.Changes))
	}}, nil
}
