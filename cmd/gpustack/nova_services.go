package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gpustack/cleanup"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// readDatabases reads from a controller's files where Nova's databases and Placement are.
func readDatabases(root host.Root, file string) (nova.Databases, error) {
	files, err := nova.Files(root, file, nova.Controller)
	if err != nil {
		return nova.Databases{}, err
	}
	sides, err := readSides(root, []confOption{{nova.Controller, files}})
	if err != nil {
		return nova.Databases{}, err
	}
	return sides[0].Databases()
}

// placementService returns the user of [placement], or nil where the section has none.
func placementService(section map[string]string) *cloud.Service {
	if section["auth_url"] == "" {
		return nil
	}
	return &cloud.Service{
		AuthURL: section["auth_url"], Username: section["username"], Password: section["password"], Project: section["project_name"],
		UserDomain: section["user_domain_name"], ProjectDomain: section["project_domain_name"], Region: section["region_name"],
		Interface: strings.SplitN(section["valid_interfaces"], ",", 2)[0], CACert: section["cafile"], Insecure: strings.EqualFold(section["insecure"], "true"),
	}
}

// Values of computes_report: how it is known that every compute node reports its PCI
// devices to Placement.
const (
	reportVerified = "verified"
	reportAsserted = "asserted" // by --computes-report, where it could not be verified
)

// errNotReporting says that guests with devices would fail to be scheduled, or get devices
// in use, if nova-scheduler asked Placement for PCI devices now.
var errNotReporting = errors.New("pci_in_placement is not turned on")

// computesReport determines whether every compute node with PCI devices has them in
// Placement, from the databases and the Placement that nova.conf names. asserted replaces
// an answer that cannot be had; it does not override one.
func (u *ui) computesReport(ctx context.Context, root host.Root, file string, plan nova.Plan, asserted bool) (state string, warnings []string, err error) {
	found, err := u.notReporting(ctx, root, file, plan)
	switch {
	case err != nil && asserted:
		var reasons []string
		for _, e := range split(err) {
			reasons = append(reasons, e.Error())
		}
		return reportAsserted, []string{"that every compute node reports its PCI devices to Placement is asserted by --computes-report, not verified: " + strings.Join(reasons, "; ")}, nil
	case err != nil:
		var errs []error
		for _, e := range split(err) {
			errs = append(errs, &usageError{
				fmt.Sprintf("%v: cannot determine whether every compute node reports its PCI devices to Placement: %v", errNotReporting, e),
				"run this on a controller that reaches Nova's databases and Placement; or --computes-report asserts that all of them report, and have restarted since",
			})
		}
		return "", nil, errors.Join(errs...)
	}
	var errs []error
	for _, n := range found {
		errs = append(errs, fmt.Errorf("%w: %s", errNotReporting, n))
	}
	return reportVerified, nil, errors.Join(errs...)
}

// notReporting asks the databases and Placement.
func (u *ui) notReporting(ctx context.Context, root host.Root, file string, plan nova.Plan) (found []cleanup.NotReporting, err error) {
	d, err := readDatabases(root, file)
	if err != nil {
		return nil, err
	}
	service := placementService(d.Placement)
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
	databases, err := cleanup.Open(ctx, cleanup.Where{API: d.API, Local: d.Main})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, databases.Close()) }()
	if err := databases.Unread(); err != nil {
		return nil, err
	}
	c, err := u.signIn(ctx, cloudOptions{Options: cloud.Options{Service: service}})
	if err != nil {
		return nil, err
	}
	placement, err := c.Placement()
	if err != nil {
		return nil, err
	}
	return databases.NotReporting(ctx, placement, plan.Wants)
}
