package cloud

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"
)

// Migration is a migration, a resize or an evacuation of a server, current or past.
type Migration struct {
	ID      int
	UUID    string // that of the consumer in Placement; "" before microversion 2.59
	Server  string // its id
	Type    string // such as resize, live-migration; "" before microversion 2.23
	Status  string // such as migrating; finished until a resize is confirmed or reverted
	From    string // the host
	To      string // the host; "" until the scheduler has chosen one
	Updated time.Time
}

// Migrations returns the migrations from or to a host. It requires an administrator.
//
// Errors: ErrHidden.
func (c *Compute) Migrations(ctx context.Context, host string) ([]Migration, error) {
	return c.migrations(ctx, url.Values{"host": {host}})
}

// NewMigrations returns the migrations of all hosts for which the scheduler may not have chosen the
// host yet. It requires an administrator.
//
// Errors: ErrHidden.
func (c *Compute) NewMigrations(ctx context.Context) (all []Migration, err error) {
	// nova/conductor/tasks/migrate.py, nova/compute/api.py (live_migrate, evacuate)
	return c.inStatus(ctx, "accepted", "pre-migrating")
}

// OpenMigrations returns the migrations of all hosts that may hold devices. It requires an
// administrator.
//
// Errors: ErrHidden.
func (c *Compute) OpenMigrations(ctx context.Context) (all []Migration, err error) {
	// every status of which MigrationOver is false (nova/objects/fields.py, and the files above)
	return c.inStatus(ctx, "accepted", "queued", "preparing", "pre-migrating", "running", "migrating", "post-migrating", "finished",
		"confirming", "reverting", "error")
}

func (c *Compute) inStatus(ctx context.Context, statuses ...string) (all []Migration, err error) {
	for _, status := range statuses {
		list, err := c.migrations(ctx, url.Values{"status": {status}})
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

func (c *Compute) migrations(ctx context.Context, query url.Values) (all []Migration, err error) {
	const what = "migrations"
	next := c.client.ServiceURL("os-migrations") + "?" + query.Encode()
	for next != "" {
		var page struct {
			Migrations []struct {
				ID      int    `json:"id"`
				UUID    string `json:"uuid"`
				Server  string `json:"instance_uuid"`
				Type    string `json:"migration_type"`
				Status  string `json:"status"`
				From    string `json:"source_compute"`
				To      string `json:"dest_compute"`
				Created string `json:"created_at"`
				Updated string `json:"updated_at"`
			} `json:"migrations"`
			Links []struct {
				Rel  string `json:"rel"`
				Href string `json:"href"`
			} `json:"migrations_links"` // microversion 2.59
		}
		err := c.cloud.ask(ctx, what, func(ctx context.Context) error {
			_, err := c.client.Get(ctx, next, &page, nil)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, m := range page.Migrations {
			updated, err := utc(cmp.Or(m.Updated, m.Created))
			if err != nil {
				return nil, &Error{Doing: what, Reason: err.Error()}
			}
			if m.From == "" && m.To == "" { // Nova always has the first
				return nil, fmt.Errorf("%s: %w", what, ErrHidden)
			}
			all = append(all, Migration{m.ID, m.UUID, m.Server, m.Type, m.Status, m.From, m.To, updated})
		}
		next = ""
		for _, l := range page.Links {
			if l.Rel == "next" {
				next = l.Href
			}
		}
	}
	return all, nil
}

// MigrationOver reports whether Nova counts a migration of this status as over, so that it keeps no
// devices (nova/db/main/api.py, migration_get_in_progress_and_error_by_host_and_node). One in error
// keeps them.
func MigrationOver(status string) bool {
	switch status {
	case "confirmed", "reverted", "failed", "completed", "cancelled", "done":
		return true
	}
	return false
}
