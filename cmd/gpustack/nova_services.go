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
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Values of computes_report: whether it was verified that every compute node reports its PCI
// devices to Placement.
const (
	reportVerified = "verified"
	reportAsserted = "asserted" // by --computes-report, because it could not be verified
)

// errNotReporting says that guests with devices could not be scheduled, or would get devices that
// are in use, if nova-scheduler used Placement for PCI devices now.
var errNotReporting = host.WithHint(host.WithCode(errors.New("cannot turn on pci_in_placement"), host.CodeNotReporting, ""),
	"on that host, run gpustack nova configure --role compute --placement and restart nova-compute; gpustack repair-migration finds rows of instances that are gone")

// databasesOf returns the databases that nova.conf names. Each must answer within timeout.
func databasesOf(root host.Root, d nova.Databases, timeout time.Duration) novadb.Where {
	return novadb.Where{
		API: d.API, APIParameters: d.APIParameters, Local: d.Main, Parameters: d.MainParameters,
		Root: root, Limits: novadb.Limits{Connect: timeout},
	}
}

// computesReport determines whether every compute node with PCI devices has them in
// Placement, from the databases and the Placement that nova.conf names.
func computesReport(ctx context.Context, u *term.UI, root host.Root, opts novaConfigureOptions, plan nova.Plan) (state string, warnings []string, err error) {
	found, err := notReporting(ctx, u, root, opts, plan)
	if ctx.Err() != nil {
		return "", nil, err
	}
	return judgeReports(found, err, opts.reported)
}

// judgeReports returns an error for each compute node that does not report its devices. asserted
// replaces only answers that are missing, which the error missing names.
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
		for _, e := range host.Split(missing) {
			reasons = append(reasons, e.Error())
		}
		return reportAsserted, []string{"that every compute node reports its PCI devices to Placement is asserted by --computes-report, not verified: " +
			strings.Join(reasons, "; ")}, nil
	default:
		for _, e := range host.Split(missing) {
			errs = append(errs, host.WithCode(args.UsageError(
				fmt.Sprintf("cannot determine whether every compute node reports its PCI devices to Placement: %v", e),
				"run this on a controller that can connect to Nova's databases and Placement; or assert with --computes-report that all compute nodes report devices and nova-compute was restarted on them",
			), host.CodeUnverified, "--computes-report"))
		}
	}
	return state, nil, errors.Join(errs...)
}

// notReporting returns the compute nodes that do not report their devices, and an error for
// everything that cannot be read.
func notReporting(ctx context.Context, u *term.UI, root host.Root, opts novaConfigureOptions, plan nova.Plan) (found []find.NotReporting, err error) {
	file := opts.place.File
	d, err := nova.ReadDatabases(root, file)
	if err != nil {
		return nil, err
	}
	service := cloud.NewService(d.Placement)
	var errs []error
	if d.API == "" {
		errs = append(errs, fmt.Errorf("%s: [api_database] connection is not set", file))
	}
	if service == nil {
		errs = append(errs, fmt.Errorf("%s: [placement] auth_url is not set", file))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	databases, err := novadb.Open(ctx, databasesOf(root, d, opts.timeout))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, databases.Close()) }()
	unread := databases.Unread()
	c, err := signIn(ctx, u, cloudOptions{Options: cloud.Options{Service: service, Timeout: opts.timeout}})
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

// printRestarts prints the services to restart with the commands that restart them on the machine.
func printRestarts(u *term.UI, services []nova.Service) {
	if len(services) == 0 {
		return
	}
	u.Printf("\nrestart these services, on compute nodes first, nova-api last:\n")
	var rows [][]string
	var unknown []string
	for _, s := range services {
		command := "-"
		if s.Command != nil {
			command = *s.Command
		} else {
			unknown = append(unknown, s.Name)
		}
		rows = append(rows, []string{s.Name, command, s.Interrupts})
	}
	titles := []string{"SERVICE", "COMMAND", "INTERRUPTS"}
	if len(unknown) == len(services) {
		titles = slices.Delete(titles, 1, 2)
		for i := range rows {
			rows[i] = slices.Delete(rows[i], 1, 2)
		}
	}
	u.Table(titles, rows)
	if len(unknown) > 0 {
		u.Printf("no unit was found that runs %s\n", term.Listed(unknown, "or"))
	}
}

// restartNames returns the names by which an operator restarts services of the journal on the
// machine.
func restartNames(root host.Root, programs []string) ([]string, error) {
	names := []string{}
	for _, program := range programs {
		service, err := nova.NewService(root, program)
		if err != nil {
			return nil, err
		}
		names = append(names, service.Names()...)
	}
	return names, nil
}
