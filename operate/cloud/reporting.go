package cloud

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Whether it was verified that every compute node reports its PCI devices to Placement.
const (
	ReportVerified = "verified"
	ReportAsserted = "asserted" // by the operator, because it could not be verified
)

// errNotReporting says that guests with devices could not be scheduled, or would get devices that
// are in use, if nova-scheduler used Placement for PCI devices now.
var errNotReporting = host.WithHint(host.WithCode(errors.New("cannot turn on pci_in_placement"), host.CodeNotReporting, ""),
	host.Textf("on that host, run %s and restart nova-compute; %s finds rows of instances that are gone",
		host.NewCommand("nova configure").Flag("role", "compute").Flag("placement").Elsewhere(), host.NewCommand("repair-migration")))

// ReportingOptions are how ComputesReport verifies that compute nodes report their devices.
type ReportingOptions struct {
	Conf     string        // the nova.conf below the root that names the databases and Placement
	Cloud    cloud.Options // its time limit is that of the databases too; without credentials
	Asserted bool          // the operator asserts that all compute nodes report
}

// ComputesReport determines whether every compute node with PCI devices of the plan has them in
// Placement, from the databases and the Placement that nova.conf names. The state is ReportVerified
// or ReportAsserted; only the latter has a warning.
//
// Errors: of each compute node that does not report, with host.CodeNotReporting; of everything that
// cannot be read, with host.CodeUnverified, unless the operator asserts that all report.
func ComputesReport(ctx context.Context, root host.Root, plan nova.Plan, o ReportingOptions) (state string, warnings []string, err error) {
	found, err := notReporting(ctx, root, plan, o)
	if ctx.Err() != nil {
		return "", nil, err
	}
	return judgeReports(found, err, o.Asserted)
}

// judgeReports returns an error for each compute node that does not report its devices. asserted
// replaces only answers that are missing, which the error missing names.
func judgeReports(found []find.NotReporting, missing error, asserted bool) (state string, warnings []string, err error) {
	errs := host.Map(found, func(n find.NotReporting) error { return fmt.Errorf("%w: %s", errNotReporting, n) })
	switch {
	case missing == nil:
		state = ReportVerified
	case asserted && len(found) == 0:
		reasons := host.Map(host.Split(missing), error.Error)
		return ReportAsserted, []string{"that every compute node reports its PCI devices to Placement is asserted by --computes-report, not verified: " +
			strings.Join(reasons, "; ")}, nil
	default:
		for _, e := range host.Split(missing) {
			cause := errors.New(host.WithoutCredentials("cannot determine whether every compute node reports its PCI devices to Placement: " + e.Error()))
			errs = append(errs, host.WithCode(host.WithHint(cause,
				"run this on a controller that can connect to Nova's databases and Placement; or assert with --computes-report "+
					"that all compute nodes report devices and nova-compute was restarted on them",
			), host.CodeUnverified, "--computes-report"))
		}
	}
	return state, nil, errors.Join(errs...)
}

// notReporting returns the compute nodes that do not report their devices, and an error for
// everything that cannot be read.
func notReporting(ctx context.Context, root host.Root, plan nova.Plan, o ReportingOptions) (found []find.NotReporting, err error) {
	d, err := nova.ReadDatabases(root, o.Conf)
	if err != nil {
		return nil, err
	}
	service := cloud.NewService(d.Placement)
	var errs []error
	if d.API == "" {
		errs = append(errs, fmt.Errorf("%s: [api_database] connection is not set", o.Conf))
	}
	if service == nil {
		errs = append(errs, fmt.Errorf("%s: [placement] auth_url is not set", o.Conf))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	databases, err := novadb.Open(ctx, databasesOf(root, d, o.Cloud.Timeout))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, databases.Close()) }()
	unread := databases.Unread()
	o.Cloud.Service = service
	c, err := cloud.Connect(ctx, o.Cloud)
	if err != nil {
		return nil, errors.Join(unread, err)
	}
	placement, err := c.Placement()
	if err != nil {
		return nil, errors.Join(unread, err)
	}
	found, err = find.ListNotReporting(ctx, databases, placement, plan.Side.Wants)
	return found, errors.Join(unread, err)
}
