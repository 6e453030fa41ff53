package cloud

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/explain"
	"gpustack/nova/novacheck"
)

// ExplainOptions name the guest to explain, and what is read about it besides the cloud.
type ExplainOptions struct {
	Guest       explain.Options
	Release     nova.Release // 0: the installed one, else the oldest with the cloud's newest microversion
	Cloud       cloud.Options
	Confs       []nova.SideFiles
	Inventories document.Source // opens the copies of Confs, too
	Reports     document.Source // of guests, by which rows are judged
	NovaPython  string          // the command that runs Python where Nova is installed, in words; "" for none
	// The databases to read, by their URLs. If both are "", those that a controller's file names.
	Database, API string
}

// errNoDatabase means that guest reports are given without a database whose rows they could judge.
var errNoDatabase = host.WithHint(errors.New("--guests: rows are judged in a database, and none is given"),
	"give --database URL, or --conf controller=FILE with [api_database]")

// Explanation is why the hosts of a cloud can or cannot build a guest.
type Explanation struct {
	Cloud  string `json:"cloud"`       // the address of Nova's API
	Flavor string `json:"flavor_name"` // the flavor; with --server that of the server
	// the server whose fault is explained; null with --flavor
	Server *explain.Server `json:"failed_server"`
	explain.Report
	Findings []host.Finding `json:"findings"` // checks of the files that fail
	Warnings []string       `json:"warnings"` // what could not be read
}

// Explain reads the files, the cloud and the databases, and judges the hosts. Of a server that has
// a host it reads nothing else. It changes nothing.
//
// Errors: all of the files and inventories at once; then those of the cloud; of the databases, only
// if they are given by URL; errNoDatabase.
func Explain(ctx context.Context, root host.Root, o ExplainOptions) (Explanation, error) {
	e := explaining{root: root, options: o, facts: explain.Facts{Unread: map[explain.Source]string{}}}
	if err := e.readFiles(); err != nil {
		return Explanation{}, err
	}
	compute, err := e.connect(ctx)
	if err != nil {
		return Explanation{}, err
	}
	server, warnings, err := e.facts.ReadGuest(ctx, compute, o.Guest)
	if err != nil {
		return Explanation{}, err
	}
	e.warn(warnings...)
	if server != nil && server.HasHost() {
		return e.explanation(compute, server, server.Report()), nil
	}
	if err := e.readCloud(ctx, compute); err != nil {
		return Explanation{}, err
	}
	return e.explanation(compute, server, explain.Judge(e.facts)), nil
}

// explaining is one run of Explain.
type explaining struct {
	root     host.Root
	options  ExplainOptions
	hosts    []nova.Host // of the inventories
	facts    explain.Facts
	findings []host.Finding
	warnings []string
}

func (e *explaining) warn(warnings ...string) {
	e.warnings = append(e.warnings, warnings...)
}

func (e *explaining) explanation(compute *cloud.Compute, server *explain.Server, r explain.Report) Explanation {
	return Explanation{compute.URL, e.facts.Flavor.Name, server, r, e.findings, e.warnings}
}

// readFiles reads nova.conf files and inventories.
func (e *explaining) readFiles() error {
	var confErr, err error
	if len(e.options.Confs) > 0 {
		e.facts.Sides, confErr = nova.ReadSides(e.root, e.options.Inventories, e.options.Confs)
	}
	e.hosts, err = nova.ReadInventories(e.options.Inventories, nova.ScopeGPUs)
	return errors.Join(confErr, err)
}

// connect connects to the cloud and determines its release.
func (e *explaining) connect(ctx context.Context) (*cloud.Compute, error) {
	release, warnings, err := e.options.Release.OrInstalledFor(e.root, e.options.Confs)
	if err != nil && !errors.Is(err, nova.ErrNoRelease) {
		return nil, err
	}
	e.warn(warnings...)
	compute, err := cloud.ConnectCompute(ctx, e.options.Cloud)
	if err != nil {
		return nil, err
	}
	if release == 0 {
		release = explain.ReleaseOf(compute.Newest)
	}
	e.facts.Release = release
	return compute, nil
}

// readCloud reads the hosts, their devices in Nova's database, and what Placement has for them;
// then it checks the files.
func (e *explaining) readCloud(ctx context.Context, compute *cloud.Compute) error {
	if err := e.facts.ReadHosts(ctx, compute); err != nil {
		return err
	}
	if strangers := e.facts.AddInventories(e.hosts); len(strangers) > 0 {
		e.warn("Nova has no host for the inventories of " + strings.Join(strangers, ", "))
	}
	if err := e.readDatabase(ctx); err != nil {
		return err
	}
	if err := e.facts.Select(e.options.Guest.Host); err != nil {
		return err
	}
	if err := e.askNova(ctx); err != nil {
		return err
	}
	if err := e.facts.ReadProvision(ctx, compute.Cloud()); err != nil {
		return err
	}
	e.checkFiles()
	return nil
}

// readDatabase reads the devices of all hosts from the databases that are given by URL, or that a
// controller's file names. Databases of a file may be out of reach from here: they are not checked
// then.
func (e *explaining) readDatabase(ctx context.Context) error {
	from, err := e.databases()
	if err == nil && from == nil && len(e.options.Reports.Paths) > 0 {
		err = errNoDatabase
	}
	if err != nil || from == nil {
		return err
	}
	databases, options, lost, err := e.open(ctx)
	if lost != nil {
		e.facts.Unread[explain.Database] = lost.Error()
	}
	if err != nil || lost != nil {
		return err
	}
	options.Host = e.options.Guest.Host
	defer databases.Close() //nolint:errcheck // only read
	for _, err := range host.Split(databases.Unread()) {
		if err != nil {
			e.warn(err.Error())
		}
	}
	stocks, _, err := find.Stocks(ctx, databases, options)
	if err != nil {
		return err
	}
	e.facts.Databases = true
	for _, s := range stocks {
		stock, err := newStock(s)
		for _, err := range host.Split(err) {
			e.warn(fmt.Sprintf("compute_nodes of %s: %v", s.Host, err))
		}
		e.facts.AddStock(s.Host, s.Node, s.UUID, stock)
	}
	return nil
}

// open reads the guest reports and opens the databases, nil for none, with the options for their rows.
// lost is why databases that a file names are out of reach.
func (e *explaining) open(ctx context.Context) (d *novadb.Databases, o find.Options, lost, err error) {
	from, err := e.databases()
	if err == nil {
		err = o.ReadReports(e.options.Reports, nil)
	}
	if err != nil || from == nil {
		return nil, o, nil, err
	}
	o.Down = from.down
	d, err = novadb.Open(ctx, from.Where)
	if err != nil && !from.isGiven && ctx.Err() == nil {
		return nil, o, err, nil
	}
	return d, o, nil, err
}

// explained are the databases that Explain reads.
type explained struct {
	novadb.Where
	isGiven bool          // by URL, not by a file
	down    time.Duration // of silence, after which a service counts as down; 0 for the default
}

// databases returns the databases to read, nil for none.
func (e *explaining) databases() (*explained, error) {
	o := e.options
	if o.Database != "" || o.API != "" {
		where := databasesOf(e.root, nova.Databases{}, o.Cloud.Timeout)
		where.Database, where.API = o.Database, o.API
		return &explained{Where: where, isGiven: true}, nil
	}
	for _, s := range e.facts.Sides {
		if !s.Role.Controls() {
			continue
		}
		d, err := s.Databases()
		if err != nil {
			return nil, err
		}
		if d.API != "" {
			return &explained{Where: databasesOf(e.root, d, o.Cloud.Timeout), down: d.Down}, nil
		}
	}
	return nil, nil
}

// checkFiles finds failed checks of the files.
func (e *explaining) checkFiles() {
	if len(e.facts.Sides) == 0 {
		return
	}
	var flavors []novacheck.Flavor
	if request := e.facts.Flavor.ExtraSpecs[nova.RequestKey]; request != "" {
		flavors = append(flavors, novacheck.Flavor{Name: e.facts.Flavor.Name, Request: request})
	}
	e.findings = append(e.findings, host.Filter(novacheck.Run(e.facts.Release, e.facts.Sides, e.hosts, flavors), func(f host.Finding) bool {
		return f.Status == host.Fail
	})...)
}
