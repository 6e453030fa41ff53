package views

import (
	"fmt"
	"time"

	"gpustack/host"
)

// Report is the part of the output that all commands have which change something (docs/json.md).
type Report struct {
	Schema         int       `json:"schema"`
	Time           time.Time `json:"time"`    // when the plan was made
	Changed        bool      `json:"changed"` // the plan has changes
	Applied        bool      `json:"applied"`
	Entry          *int      `json:"entry"`           // id of the journal entry
	RebootRequired host.Bool `json:"reboot_required"` // unknown: the root shows no running kernel, or it cannot be read
	Restart        []string  `json:"restart"`
	Warnings       []string  `json:"warnings"`

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

// RebootFor adds to a report whether the machine has to be rebooted for its adapters.
func (r *Report) RebootFor(adapters bool) {
	if adapters && r.RebootRequired.Known() {
		r.RebootRequired = host.Yes
	}
}

// Common returns the part that every report has.
func (r *Report) Common() *Report { return r }

// EntryName returns how texts name an entry of the journal.
func EntryName(id int, command string) string {
	return fmt.Sprintf("entry %d (%s)", id, command)
}
