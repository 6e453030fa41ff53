// Package rows finds rows of nova.pci_devices that do not describe their devices, repairs those
// that are proved stale, and undoes recorded repairs. It joins Nova's databases, Placement,
// nova.conf, guest reports and the journal of this machine.
//
// A repair is [Session.Connect], the recovery of earlier runs ([Session.Interrupted],
// [Session.Recover]), [Session.Observe], [Session.Plan] and [Session.Apply]; an undo is
// [Session.PlanUndo] and [Session.Undo]. What changes rows or allocations does what the plan
// before it shows, and nothing else. It prints nothing.
package rows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gpustack/cleanup/find"
	"gpustack/cleanup/repair"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Options name the databases and Placement, and select the rows.
type Options struct {
	Conf string // nova.conf, below the root
	// The databases that are named instead of those of nova.conf, by their URLs.
	API, Database string
	Find          find.Options  // without what the reports, the inventories, nova.conf and Connect add
	Cloud         cloud.Options // its credentials are used instead of those of nova.conf, and its time limit for databases too
	Origin        change.Origin
	Accept        int // the interrupted entry that Recover closes as it is; 0 for none
}

// Evidence are documents from the compute hosts by which rows are judged.
type Evidence struct {
	Reports     document.Source // of guests
	Inventories document.Source // of all devices
	Off         []string        // hosts that the operator has declared off
}

// Session is one run on the rows of a cloud. It is not safe for concurrent use.
type Session struct {
	root        host.Root
	options     Options
	connections connections
	repairs     *repair.Repairer // see repairer
}

// New returns a session of the machine below root, whose nova.conf names the databases and whose
// journal records repairs. It reads nothing. The caller closes the session.
func New(root host.Root, o Options) *Session {
	return &Session{root: root, options: o}
}

// Connect reads the evidence and nova.conf, and connects to the databases. It returns a token of
// the databases' time, for guest reports that are made after it.
//
// Errors: all of the documents at once; those of novadb.Open; find.ErrAlive.
func (s *Session) Connect(ctx context.Context, e Evidence) (token string, err error) {
	reportsErr := s.options.Find.ReadReports(e.Reports, e.Off)
	hosts, hostsErr := nova.ReadInventories(e.Inventories, nova.ScopeAll)
	if err := errors.Join(reportsErr, hostsErr, s.readConf()); err != nil {
		return "", err
	}
	s.options.Find.Present = nova.Present(hosts)
	for name := range s.options.Find.Present {
		s.options.Find.Given = append(s.options.Find.Given, find.Given{Host: name, By: "--inventory", Folder: true})
	}
	if err := s.connections.open(ctx); err != nil {
		return "", err
	}
	others, err := find.CheckGiven(ctx, s.connections.databases, s.options.Find)
	if err != nil {
		return "", err
	}
	if len(others) > 0 && e.Reports.Warn != nil {
		e.Reports.Warn(fmt.Sprintf("%s of hosts that no cell has: %s", host.Numbered(len(others), "document"),
			strings.Join(others[:min(len(others), 5)], ", ")))
	}
	token, err = find.Token(ctx, s.connections.databases)
	s.options.Find.Token = token
	return token, err
}

// Unread returns an error for each database that could not be read, nil for none.
func (s *Session) Unread() error { return s.connections.databases.Unread() }

// Close closes the databases that were opened.
func (s *Session) Close() error {
	if s.connections.databases == nil {
		return nil
	}
	return s.connections.databases.Close()
}

// readConf reads the connections that nova.conf names. Databases that are open stay so.
func (s *Session) readConf() error {
	c, err := readConnections(s.root, s.options)
	c.databases = s.connections.databases
	s.connections, s.options.Find.Down = c, c.down
	return err
}

// repairer returns the repairer of the rows in the open databases, always the same. It
// authenticates with Placement if a repair changes allocations.
func (s *Session) repairer() *repair.Repairer {
	if s.repairs == nil {
		s.repairs = &repair.Repairer{Databases: s.connections.databases, Options: s.options.Find, SignIn: func(ctx context.Context) (repair.Placement, error) {
			return s.connections.signIn(ctx)
		}}
	}
	return s.repairs
}

// engine returns the engine for changes of rows, recorded on this machine. open opens the databases
// for an undo or a recovery.
func (s *Session) engine(open func(context.Context) error) change.Engine {
	connect := func(ctx context.Context) (*repair.Repairer, error) {
		if err := open(ctx); err != nil {
			return nil, err
		}
		return s.repairer(), nil
	}
	return change.Engine{Store: change.Machine(s.root), Origin: s.options.Origin, Kinds: []change.Kind{&repair.Kind{Connect: connect, Accept: s.options.Accept}}}
}
