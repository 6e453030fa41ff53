package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Values of computes_report: how it is known that every compute node reports its PCI
// devices to Placement.
const (
	reportVerified = "verified"
	reportAsserted = "asserted" // by --computes-report, where it could not be verified
)

// errNotReporting says that guests with devices would fail to be scheduled, or get devices
// in use, if nova-scheduler asked Placement for PCI devices now.
var errNotReporting = errors.New("cannot turn on pci_in_placement")

// whereOf returns the databases that nova.conf names, each of which has to give a first
// answer within timeout.
func whereOf(root host.Root, d nova.Databases, timeout time.Duration) novadb.Where {
	return novadb.Where{
		API: d.API, APIParameters: d.APIParameters, Local: d.Main, Parameters: d.MainParameters,
		Root: root, Limits: novadb.Limits{Connect: timeout},
	}
}

// computesReport determines whether every compute node with PCI devices has them in
// Placement, from the databases and the Placement that nova.conf names.
func (u *ui) computesReport(ctx context.Context, root host.Root, opts novaConfigureOptions, plan nova.Plan) (state string, warnings []string, err error) {
	found, err := u.notReporting(ctx, root, opts, plan)
	if ctx.Err() != nil {
		return "", nil, err
	}
	return judgeReports(found, err, opts.reported)
}

// judgeReports returns an error for each compute node that does not report, whatever is
// missing and asserted. asserted replaces only answers that are missing, which err names.
func judgeReports(found []find.NotReporting, missing error, asserted bool) (state string, warnings []string, err error) {
	var errs []error
	for _, n := range found {
		errs = append(errs, fmt.Errorf("%w: %s", errNotReporting, n))
	}
	switch {
	case missing == nil:
		state = reportVerified
	case asserted && len(found) == 0:
		var reasons []string
		for _, e := range split(missing) {
			reasons = append(reasons, e.Error())
		}
		return reportAsserted, []string{"that every compute node reports its PCI devices to Placement is asserted by --computes-report, not verified: " + strings.Join(reasons, "; ")}, nil
	default:
		for _, e := range split(missing) {
			errs = append(errs, &usageError{
				fmt.Sprintf("cannot determine whether every compute node reports its PCI devices to Placement: %v", e),
				"run this on a controller that reaches Nova's databases and Placement; or --computes-report asserts that all compute nodes report and nova-compute was restarted on them",
			})
		}
	}
	return state, nil, errors.Join(errs...)
}

// notReporting returns the compute nodes that certainly do not report, and an error for
// what cannot be read.
func (u *ui) notReporting(ctx context.Context, root host.Root, opts novaConfigureOptions, plan nova.Plan) (found []find.NotReporting, err error) {
	file := opts.place.File
	d, err := nova.ReadDatabases(root, file)
	if err != nil {
		return nil, err
	}
	service := cloud.NewService(d.Placement)
	var errs []error
	if d.API == "" {
		errs = append(errs, fmt.Errorf("%s: has no [api_database] connection", file))
	}
	if service == nil {
		errs = append(errs, fmt.Errorf("%s: has no [placement] auth_url", file))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	databases, err := novadb.Open(ctx, whereOf(root, d, opts.timeout))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, databases.Close()) }()
	unread := databases.Unread()
	c, err := u.signIn(ctx, cloudOptions{Options: cloud.Options{Service: service, Timeout: opts.timeout}})
	if err != nil {
		return nil, errors.Join(unread, err)
	}
	placement, err := c.Placement()
	if err != nil {
		return nil, errors.Join(unread, err)
	}
	found, err = find.ListNotReporting(ctx, databases, placement, plan.Wants)
	return found, errors.Join(unread, err)
}
