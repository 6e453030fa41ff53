package servertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/change"
)

// Leftover is a server of a test that exists, and whether it can be deleted.
type Leftover struct {
	Server
	Project string    `json:"project_id"`       // the server's project
	Host    string    `json:"host" null:"zero"` // the server's host; null if the user may not see it
	Created time.Time `json:"created"`          // by Nova's clock
	// the journal entry that records the server; null for none
	Entry   int    `json:"entry" null:"zero"`
	Leave   string `json:"reason" null:"zero"` // why it is not to be deleted, for people; null if it is
	Deleted bool   `json:"deleted"`            // whether it is deleted
}

// Cleaning is the plan that deletes the servers that tests have left.
type Cleaning struct {
	Leftovers []Leftover
	All       bool // the leftovers are those of all projects, not of the user's alone
	// Closed are the entries of tests that are not running, none of whose servers stays: their
	// servers are deleted, or no longer exist.
	Closed []change.Entry
}

// NewCleaning plans the deletion of the servers that tests have left. entries are those of the
// journal.
func (k Kind) NewCleaning(ctx context.Context, entries []change.Entry, now time.Time) (Cleaning, error) {
	found, all, err := k.leftovers(ctx, entries, now)
	if err != nil {
		return Cleaning{}, err
	}
	c := Cleaning{Leftovers: found, All: all}
	c.Closed = k.ended(entries, now, func(r Record) bool { return !c.stays(r) })
	return c, nil
}

// stays reports whether a server of a record is not to be deleted.
func (c Cleaning) stays(r Record) bool {
	return slices.ContainsFunc(c.Leftovers, func(l Leftover) bool {
		return l.Leave != "" && slices.ContainsFunc(r.Servers, func(s Server) bool { return s.Name == l.Name || s.ID == l.ID })
	})
}

// Remove returns the servers that are to be deleted.
func (c Cleaning) Remove() (servers []Server) {
	return host.Map(host.Filter(c.Leftovers, func(l Leftover) bool { return l.Leave == "" }), func(l Leftover) Server { return l.Server })
}

// Clean deletes the servers of a cleaning, sets which are deleted, and closes the entries if all
// are.
//
// Errors: [LeftError] for each server that is left.
func (k Kind) Clean(ctx context.Context, engine change.Engine, c *Cleaning) error {
	failed := k.deleteAll(ctx, c.Remove())
	for i := range c.Leftovers {
		l := &c.Leftovers[i]
		l.Deleted = l.Leave == "" && !isLeft(failed, l.ID)
	}
	if failed != nil {
		return failed
	}
	var errs []error
	for _, e := range c.Closed {
		errs = append(errs, Unlocked(ctx, func() error {
			_, err := engine.Undo(ctx, e.ID)
			return err
		}))
	}
	return errors.Join(errs...)
}

// isLeft reports whether an error says that a server is left.
func isLeft(err error, server string) bool {
	return slices.ContainsFunc(host.Split(err), func(e error) bool {
		var l *LeftError
		return errors.As(e, &l) && l.Server == server
	})
}

// leftovers finds the servers of tests that exist, of all projects if the user may list them (all).
// A server of a test that may still be running stays, as its record says, or without one until the
// time that its metadata has, or for good if it is kept.
func (k Kind) leftovers(ctx context.Context, entries []change.Entry, now time.Time) (list []Leftover, all bool, err error) {
	found, all, err := k.Compute.FindServers(ctx, prefix)
	if err != nil {
		return nil, all, err
	}
	byNonce := map[string]Leftover{}
	for _, e := range entries {
		r, err := ParseRecord(e)
		if err != nil {
			continue // another object, or history names it
		}
		recorded := Leftover{Entry: e.ID}
		if running := r.runs(k.Root, now); running != "" {
			recorded.Leave = "its test " + running
		}
		for _, s := range r.Servers {
			byNonce[s.Nonce] = recorded
		}
	}
	for _, is := range found {
		nonce, ok := strings.CutPrefix(is.Name, prefix)
		if !ok || !isNonce(nonce) {
			continue // not a name of a test
		}
		l := Leftover{Server: Server{Nonce: nonce, Name: is.Name, ID: is.ID, State: Created}, Project: is.Project, Host: is.Host, Created: is.Created}
		r, here := byNonce[nonce]
		ends, endsErr := time.Parse(time.RFC3339, is.Metadata[metadataEnds])
		switch {
		case is.Metadata[metadataNonce] != nonce:
			l.Leave = "its metadata is not that of a test: another client has created it"
		case here:
			l.Entry, l.Leave = r.Entry, r.Leave
		case is.Metadata[metadataEnds] == endsNever:
			l.Leave = "it is kept (--keep-server) by another machine or user"
		case endsErr == nil && now.Before(ends):
			l.Leave = fmt.Sprintf("its test may be running on another machine until %s", ends.Format("15:04:05Z"))
		}
		list = append(list, l)
	}
	return list, all, nil
}

// Unended returns the entries in this cloud whose run has ended without deleting its servers,
// although they were not to be kept. Entries that are open are recovered by the engine.
func (k Kind) Unended(entries []change.Entry) []change.Entry {
	return k.ended(entries, time.Now(), func(r Record) bool { return !r.Keep })
}

// ended returns the entries in this cloud whose run has ended, apart from those that are not wanted.
func (k Kind) ended(entries []change.Entry, now time.Time, wanted func(Record) bool) []change.Entry {
	return host.Filter(entries, func(e change.Entry) bool {
		r, err := ParseRecord(e)
		return err == nil && e.Status == change.Done && r.Is(k.Compute.Scope()) && r.runs(k.Root, now) == "" && wanted(r)
	})
}

func joined(words []string) string { return strings.Join(words, ", ") }
