package views

import (
	"fmt"
	"time"

	"gpustack/host"
)

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
	if does && r.RebootRequired.Known() {
		r.RebootRequired = host.Yes
	}
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

// RebootFor adds to a report whether the machine has to be rebooted for its adapters.
func (r *Report) RebootFor(adapters bool) {
	if adapters && r.RebootRequired.Known() {
		r.RebootRequired = host.Yes
	}
}

// rebootText returns the part of a summary about the next boot.
func (r Report) rebootText() string {
	if r.NextBoot {
		return "reboot needed"
	}
	return ""
}

// Common returns the part that every report has.
func (r *Report) Common() *Report { return r }

// EntryName returns how texts name an entry of the journal.
func EntryName(id int, command string) string {
	return fmt.Sprintf("entry %d (%s)", id, command)
}
