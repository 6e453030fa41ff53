package servertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// Evidence finds out whether devices of a deleted server are free. One of both is enough; Placement
// comes first.
type Evidence struct {
	Placement *cloud.Placement // nil: it is not to be asked
	// Rows returns the addresses of the devices that Nova's database shows as those of an instance;
	// nil without a database.
	Rows func(ctx context.Context, instance string) ([]string, error)
}

// Freed is whether the devices of a deleted server are free again.
type Freed struct {
	// whether its devices are free again; null if that is not verified
	Free host.Bool `json:"freed"`
	By   string    `json:"freed_by" null:"zero"` // which source shows that: "Placement" or "the database"
	// why it is not verified, or what holds the devices, for people; null for neither
	Why string `json:"not_freed" null:"zero"`
}

// held is what a server holds before it is deleted.
type held struct {
	providers []string // of PCI devices in Placement
	rows      []string // addresses in the database
	why       string   // why nothing is known of it
}

// before returns what a server holds. It must be called before the server is deleted: without a
// device that it is seen to hold, nothing proves that Placement or the database knows its devices.
func (e Evidence) before(ctx context.Context, server string) held {
	var h held
	h.why = "Placement does not show PCI devices of the server (report_in_placement), and --database is not given"
	if e.Placement != nil {
		providers, err := e.providers(ctx, server)
		switch {
		case err != nil:
			h.why = err.Error()
		case len(providers) > 0:
			return held{providers: providers}
		}
	}
	if e.Rows != nil {
		rows, err := e.Rows(ctx, server)
		switch {
		case err != nil:
			return held{why: err.Error()}
		case len(rows) == 0:
			return held{why: "the database has no device of the server: it may be that of another cell"}
		}
		return held{rows: rows}
	}
	return h
}

// providers returns the providers of PCI devices on which a server has an allocation.
func (e Evidence) providers(ctx context.Context, server string) ([]string, error) {
	a, err := e.Placement.Allocations(ctx, server)
	if err != nil || len(a.Providers) == 0 {
		return nil, err
	}
	all, err := e.Placement.PCIProviders(ctx)
	var ids []string
	for _, p := range all {
		if _, ok := a.Providers[p.UUID]; ok {
			ids = append(ids, p.UUID)
		}
	}
	return ids, err
}

// after waits until the devices that a deleted server held are free.
func (e Evidence) after(ctx context.Context, server string, h held, pace Pace) Freed {
	pace = pace.withDefaults()
	if len(h.providers)+len(h.rows) == 0 {
		return Freed{Why: h.why}
	}
	by, look := "Placement", e.placementHolds
	if len(h.rows) > 0 {
		by, look = "the database", e.rowsHold
	}
	since := time.Now()
	for {
		holds, err := look(ctx, server, h)
		free := err == nil && holds == ""
		over := time.Since(since) >= pace.Free
		switch cause := context.Cause(ctx); {
		case free || err == nil && over:
			return Freed{host.BoolOf(free), by, holds}
		case cause != nil: // the devices may be free in a moment
			return Freed{Why: cause.Error()}
		case err != nil && (over || !passes(err)):
			return Freed{Why: err.Error()}
		}
		pace.pause(ctx, since)
	}
}

// placementHolds returns what a server that does not exist still holds, or "".
func (e Evidence) placementHolds(ctx context.Context, server string, h held) (string, error) {
	a, err := e.Placement.Allocations(ctx, server)
	if err != nil {
		return "", err
	}
	if len(a.Providers) > 0 {
		return fmt.Sprintf("the deleted server %s still has an allocation in Placement", server), nil
	}
	for _, p := range h.providers {
		held, err := e.Placement.HeldOn(ctx, p)
		if err != nil && !errors.Is(err, cloud.ErrNotFound) {
			return "", err
		}
		if _, holds := held[server]; holds {
			return fmt.Sprintf("the deleted server %s still uses resource provider %s", server, p), nil
		}
	}
	return "", nil
}

func (e Evidence) rowsHold(ctx context.Context, server string, _ held) (string, error) {
	rows, err := e.Rows(ctx, server)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return fmt.Sprintf("rows of nova.pci_devices are still assigned to the deleted server %s: %s", server, joined(rows)), nil
}
