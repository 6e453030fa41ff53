package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/cmd/gpustack/args"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/check"
	"gpustack/nova/cloud"
	"gpustack/nova/explain"
)

// readCloud reads the hosts, their devices in Nova's database, and what Placement has for them.
func (e *explaining) readCloud(ctx context.Context) error {
	if e.opts.image != "" {
		image, err := e.cloud.Image(ctx, e.opts.image)
		if err != nil {
			return err
		}
		e.facts.Image = &image
	}
	if err := e.facts.ReadHosts(ctx, e.compute); err != nil {
		return err
	}
	if strangers := e.facts.AddInventories(e.inventories); len(strangers) > 0 {
		e.report.Warnings = append(e.report.Warnings, "Nova has no host for the inventories of "+strings.Join(strangers, ", "))
	}
	if err := e.readDatabase(ctx); err != nil {
		return err
	}
	if name := e.opts.host; name != "" {
		e.facts.Hosts = slices.DeleteFunc(e.facts.Hosts, func(h explain.Host) bool { return h.Name != name && h.Node != name })
		if len(e.facts.Hosts) == 0 {
			return args.UsageError("--host "+name+": Nova has no such compute node", "'openstack compute service list --service nova-compute' shows the hosts")
		}
	}
	if len(e.facts.Hosts) == 0 {
		var why []string
		for _, source := range []explain.Source{explain.Services, explain.Nodes} {
			if reason, unread := e.facts.Unread[source]; unread {
				why = append(why, reason)
			}
		}
		return host.WithHint(fmt.Errorf("no compute node is known: %s", strings.Join(append(why, "no inventory or database is given"), "; ")),
			"use an administrator's credentials, or give --inventory or --database")
	}
	placement, err := e.cloud.Placement()
	switch {
	case errors.Is(err, cloud.ErrNoEndpoint):
		e.facts.Unread[explain.Candidates] = err.Error()
	case err != nil:
		return err
	default:
		return e.facts.ReadPlacement(ctx, placement)
	}
	return nil
}

// readDatabase reads the devices of all hosts from the databases that are named, or that a
// controller's file names. Databases of a file may be out of reach from here: they are not checked
// then.
func (e *explaining) readDatabase(ctx context.Context) error {
	where, down, isNamed, err := e.databases()
	if err == nil && where == nil && len(e.opts.guests) > 0 {
		err = args.UsageError("--guests: rows are judged in a database, and none is given", "give --database URL, or --conf controller=FILE with [api_database]")
	}
	if err != nil || where == nil {
		return err
	}
	options := find.Options{Host: e.opts.host, Down: down}
	if err := options.ReadReports(documentsAt(e.u, e.opts.guests...), nil); err != nil {
		return err
	}
	databases, err := novadb.Open(ctx, *where)
	if err != nil && !isNamed && ctx.Err() == nil {
		e.facts.Unread[explain.Database] = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	defer databases.Close() //nolint:errcheck // only read
	for _, err := range host.Split(databases.Unread()) {
		if err != nil {
			e.report.Warnings = append(e.report.Warnings, err.Error())
		}
	}
	stocks, err := find.Stocks(ctx, databases, options)
	if err != nil {
		return err
	}
	e.facts.Databases = true
	for _, s := range stocks {
		e.facts.AddStock(s.Host, s.Node, s.UUID, newStock(s))
	}
	return nil
}

// databases returns the databases to read, nil for none. isNamed is true for those of --database
// and --api-database.
func (e *explaining) databases() (where *novadb.Where, down time.Duration, isNamed bool, err error) {
	if e.opts.database != "" || e.opts.apiDatabase != "" {
		w := databasesOf(e.root, nova.Databases{}, e.opts.cloud.Timeout)
		w.Database, w.API = e.opts.database, e.opts.apiDatabase
		return &w, 0, true, nil
	}
	for _, s := range e.facts.Sides {
		if !s.Role.Controls() {
			continue
		}
		d, err := s.Databases()
		if err != nil {
			return nil, 0, false, err
		}
		if d.API != "" {
			w := databasesOf(e.root, d, e.opts.cloud.Timeout)
			return &w, d.Down, false, nil
		}
	}
	return nil, 0, false, nil
}

// newStock returns the devices of a compute node as explain judges them.
func newStock(s find.Stock) explain.Stock {
	var stock explain.Stock
	for _, r := range s.Rows {
		row := explain.Row{Address: r.Address, Vendor: r.Vendor, Product: r.Product, Type: r.Type, Status: r.Status, NUMA: r.NUMA}
		if r.Instance != nil {
			row.Instance = *r.Instance
		}
		if r.Finding != nil {
			row.Verdict, row.Reason = string(r.Finding.Verdict), r.Finding.Reason
		}
		stock.Rows = append(stock.Rows, row)
	}
	if s.Stats == nil {
		return stock
	}
	stock.Pools = []explain.Pool{}
	for p, n := range s.Stats.Counts {
		if p.Type == "" { // of a release before Mitaka
			stock.Pools = nil
			return stock
		}
		stock.Pools = append(stock.Pools, explain.Pool{Vendor: p.Vendor, Product: p.Product, Type: p.Type, NUMA: find.NUMANode(p), Count: n})
	}
	slices.SortFunc(stock.Pools, func(a, b explain.Pool) int {
		return strings.Compare(poolKey(a), poolKey(b))
	})
	return stock
}

func poolKey(p explain.Pool) string {
	key := p.Vendor + p.Product + p.Type
	if p.NUMA != nil {
		key += fmt.Sprint(*p.NUMA)
	}
	return key
}

// judge judges the hosts by what was read, and the files against each other.
func (e *explaining) judge() {
	e.report.Report = explain.Judge(e.facts, e.omitted)
	if len(e.facts.Sides) == 0 {
		return
	}
	var flavors []check.Flavor
	if request := e.facts.Flavor.ExtraSpecs[nova.RequestKey]; request != "" {
		flavors = append(flavors, check.Flavor{Name: e.facts.Flavor.Name, Request: request})
	}
	for _, f := range check.Run(e.facts.Release, e.facts.Sides, e.inventories, flavors) {
		if f.Status == host.Fail {
			e.report.Findings = append(e.report.Findings, f)
		}
	}
}
