package servertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gpustack/host/change"
)

// Leftover is a server of a test that exists, and whether it can be deleted.
type Leftover struct {
	Server
	Project string
	Host    string // "" if the user may not see it
	Created time.Time
	Entry   int    // of the journal; 0 for none
	Leave   string // why it stays, or "" if it is deleted
}

// Leftovers finds the servers of tests that exist, of all projects if the user may list them (all).
// A server of a test that may still be running stays: one of this machine by the process of its
// record, one of another machine until the time that its metadata has, or for good if it is kept.
func (k Kind) Leftovers(ctx context.Context, entries []change.Entry, now time.Time) (list []Leftover, all bool, err error) {
	found, all, err := k.Compute.FindServers(ctx, prefix)
	if err != nil {
		return nil, all, err
	}
	type recorded struct {
		entry change.Entry
		Record
	}
	byNonce := map[string]recorded{}
	for _, e := range entries {
		if e.ObjectType() != Type {
			continue
		}
		r, err := ParseRecord(e)
		if err != nil {
			continue // history names it
		}
		for _, s := range r.Servers {
			byNonce[s.Nonce] = recorded{e, r}
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
		case here && r.Runs(k.Root):
			l.Entry, l.Leave = r.entry.ID, fmt.Sprintf("its test is running: process %d", r.Process.PID)
		case here:
			l.Entry = r.entry.ID
		case is.Metadata[metadataEnds] == endsNever:
			l.Leave = "it is kept (--keep) by another machine or user"
		case endsErr == nil && now.Before(ends):
			l.Leave = fmt.Sprintf("its test may be running on another machine until %s", ends.Format("15:04:05Z"))
		}
		list = append(list, l)
	}
	return list, all, nil
}

// Unended returns the entries in this cloud whose run has ended without deleting its servers,
// although they were not to be kept. Entries that are open are recovered by the engine.
func (k Kind) Unended(entries []change.Entry) (unended []change.Entry) {
	for _, e := range entries {
		if e.ObjectType() != Type || e.Status != change.Done || !k.Handles(e) {
			continue
		}
		if r, err := ParseRecord(e); err == nil && !r.Keep && !r.Runs(k.Root) {
			unended = append(unended, e)
		}
	}
	return unended
}

func joined(words []string) string { return strings.Join(words, ", ") }
