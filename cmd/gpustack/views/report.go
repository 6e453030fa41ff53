package views

import (
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/host/change"
)

// Head is what every document begins with (docs/json.md): what it is, and where, when and by which
// version it was made. Reports have no such members of their own, apart from a time other than that of printing,
// and those of host scan, whose order has nova_host among them.
type Head struct {
	Kind string `json:"kind"` // the command that printed the document, or "failure"
	// Host is the hostname of the machine that the command line names: the running machine's, or
	// the one in etc/hostname below --root; null if no file there shows it.
	Host    *string   `json:"host"`
	Version string    `json:"version"` // the version of gpustack, as gpustack --version prints it
	Time    time.Time `json:"time"`    // when the document was made, in UTC
}

// Report is the part of the output that all commands have which change something (docs/json.md).
type Report struct {
	Schema  int       `json:"schema"`
	Time    time.Time `json:"time"`    // when the plan was made
	Changed bool      `json:"changed"` // whether the plan changes anything
	// whether the changes were made; false if nothing was written
	Applied bool `json:"applied"`
	Entry   *int `json:"entry"` // the number of the journal entry; null before there is one
	// RebootRequired is true from a change that takes effect at the next boot, or its undo, until
	// the running kernel matches the record, also in runs that change nothing, and while a write
	// that only a reboot ends is stuck in the kernel. For a plan that was not applied it is what
	// applying it would require. It is null if the root shows no running kernel, as in an image, or
	// if its record cannot be read.
	RebootRequired host.Bool `json:"reboot_required"`
	Restart        []string  `json:"restart"`  // the services to restart, in order
	Warnings       []string  `json:"warnings"` // what the operator should know
	// the next step once the plan is applied, of repair-migration the one that repairs; null for none
	Next *host.Next `json:"next"`

	Root     host.Root `json:"-"`
	NextBoot bool      `json:"-"` // the plan takes effect at the next boot
}

// atNextBoot records that a plan takes effect at the next boot, if it does.
func (r *Report) atNextBoot(does bool) {
	r.NextBoot = does
	r.RebootFor(does)
}

// then records what to run after the plan is applied, if it changes anything.
func (r *Report) then(c host.Command, needs ...host.Need) {
	if r.NextBoot {
		needs = append(needs, host.NeedReboot)
	}
	if r.Changed {
		r.Next = host.NewNext(c, needs...)
	}
}

// RebootFor adds to a report that the machine has to be rebooted, if changes require it.
func (r *Report) RebootFor(changes bool) {
	if changes && r.RebootRequired.Known() {
		r.RebootRequired = host.Yes
	}
}

// rebootText returns the part of a summary about the next boot.
func (r Report) rebootText() string { return either(r.NextBoot, "reboot needed", "") }

// Common returns the part that every report has.
func (r *Report) Common() *Report { return r }

// EntryName returns how texts name an entry of the journal.
func EntryName(e change.Entry) string {
	return fmt.Sprintf("entry %d (%s)", e.ID, e.Command)
}
