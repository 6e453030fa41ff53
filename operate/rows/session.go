// Package rows finds rows of nova.pci_devices that do not describe their devices, repairs those
// that are proved stale, and undoes recorded repairs. It joins Nova's databases, Placement,
// nova.conf, guest reports and the journal of this machine.
//
// A repair is [Session.Connect], the recovery of earlier runs ([Session.Interrupted],
// [Session.Recover]), [Session.Observe], [Session.Plan] and [Session.Apply]; an undo is
// [Session.PlanUndo] and [Session.Undo]. What changes rows or allocations does what the plan
// before it shows.
package rows

import (
	"context"
	"errors"
	"fmt"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
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
	Origin        *change.Origin
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
	root      host.Root
	options   Options
	where     novadb.Where
	placement map[string]string // [placement] of nova.conf
	repairer  *repair.Repairer  // nil before connect
}

// New returns a session of the machine below root, whose nova.conf names the databases and whose
// journal records repairs. It reads nothing. The caller closes the session.
func New(root host.Root, o Options) *Session {
	return &Session{root: root, options: o}
}

// Connect reads the evidence and nova.conf, and connects to the databases. It returns a token of
// the databases' time, for guest reports that are made after it.
//
// Errors: all of the documents at once; those of [novadb.Open]; find.ErrAlive.
func (s *Session) Connect(ctx context.Context, e Evidence) (token string, err error) {
	if err := errors.Join(s.options.Find.ReadReports(e.Reports, e.Off), s.readInventories(e.Inventories), s.readConf()); err != nil {
		return "", err
	}
	if _, err := s.connect(ctx); err != nil {
		return "", err
	}
	if err := find.CheckOff(ctx, s.repairer.Databases, s.options.Find); err != nil {
		return "", err
	}
	if token, err = find.Token(ctx, s.repairer.Databases); err != nil {
		return "", err
	}
	s.options.Find.Token, s.repairer.Options.Token = token, token
	return token, nil
}

// Unread returns an error for each database that could not be read, nil for none.
func (s *Session) Unread() error { return s.repairer.Databases.Unread() }

// Close closes the databases that were opened.
func (s *Session) Close() error {
	if s.repairer == nil {
		return nil
	}
	return s.repairer.Databases.Close()
}

// connect connects to the databases, once, and returns the repairer of their rows. It
// authenticates with Placement if a repair changes allocations.
func (s *Session) connect(ctx context.Context) (*repair.Repairer, error) {
	if s.repairer != nil {
		return s.repairer, nil
	}
	databases, err := novadb.Open(ctx, s.where)
	if err != nil {
		return nil, err
	}
	s.repairer = &repair.Repairer{Databases: databases, Options: s.options.Find, SignIn: func(ctx context.Context) (repair.Placement, error) {
		return s.signIn(ctx)
	}}
	return s.repairer, nil
}

// signIn authenticates with Placement, as the user or, without credentials of the user, as
// nova.conf says.
func (s *Session) signIn(ctx context.Context) (*cloud.Placement, error) {
	o := s.options.Cloud
	if !o.HasCredentials() {
		o.Service = cloud.NewService(s.placement)
	}
	c, err := cloud.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return c.Placement()
}

// readInventories has the rows compared with the devices in inventories of hosts.
func (s *Session) readInventories(from document.Source) error {
	hosts, err := nova.ReadInventories(from, nova.ScopeAll)
	if err != nil {
		return err
	}
	present := map[string][]string{}
	for _, h := range hosts {
		for i := range h.Devices {
			present[h.InNova()] = append(present[h.InNova()], h.Devices[i].Address.String())
		}
	}
	s.options.Find.Present = present
	return nil
}

// readConf reads from nova.conf the settings that the options do not give.
func (s *Session) readConf() error {
	o := s.options
	s.where = s.databases(nova.Databases{})
	s.where.API, s.where.Database = o.API, o.Database
	if there, err := s.root.Exists(o.Conf); o.Database != "" && (err != nil || !there) {
		return err // then only Placement and the templates of URLs would be read from nova.conf
	}
	d, err := nova.ReadDatabases(s.root, o.Conf)
	if err != nil {
		return err
	}
	s.options.Find.Down, s.placement = d.Down, d.Placement
	s.where = s.databases(d)
	s.where.Database = o.Database
	// With the API database of another cloud, all instances would be missing.
	if o.Database != "" || o.API != "" {
		s.where.API, s.where.APIParameters = o.API, ""
	}
	if s.where.API == "" && s.where.Database == "" {
		return host.WithHint(fmt.Errorf("%s: has no [api_database] connection", o.Conf),
			"run gpustack on a controller; or give --database with the URL of one cell, and --api-database with that of nova_api")
	}
	return nil
}

// databases returns the databases that nova.conf names. Each must answer within the time limit of
// the cloud.
func (s *Session) databases(d nova.Databases) novadb.Where {
	return novadb.Where{
		API: d.API, APIParameters: d.APIParameters, Local: d.Main, Parameters: d.MainParameters,
		Root: s.root, Limits: novadb.Limits{Connect: s.options.Cloud.Timeout},
	}
}

// engine returns the engine for changes of rows, recorded on this machine.
func (s *Session) engine(connect func(context.Context) (*repair.Repairer, error)) change.Engine {
	return change.Engine{Store: change.Machine(s.root), Origin: s.options.Origin, Kinds: []change.Kind{&repair.Kind{Connect: connect, Accept: s.options.Accept}}}
}
