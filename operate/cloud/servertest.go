package cloud

import (
	"context"
	"time"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/servertest"
)

// Tests are tests of flavors in one cloud, and the journal that records their servers.
type Tests struct {
	servertest.Kind
	Engine change.Engine
}

// NewTests returns the tests that an engine of [Engine] records.
func NewTests(compute *cloud.Compute, engine change.Engine) Tests {
	return Tests{servertest.Kind{Compute: compute, Root: engine.Store.Root}, engine}
}

// Unended returns the entries whose run has ended without deleting its servers, see
// [servertest.Kind.Unended].
func (t Tests) Unended() ([]change.Entry, error) {
	entries, err := t.Engine.Store.List()
	return t.Kind.Unended(entries), err
}

// PlanCleaning plans the deletion of the servers that tests have left.
func (t Tests) PlanCleaning(ctx context.Context) (servertest.Cleaning, error) {
	entries, err := t.Engine.Store.List()
	if err != nil {
		return servertest.Cleaning{}, err
	}
	return t.NewCleaning(ctx, entries, time.Now())
}

// Clean carries out a cleaning, see [servertest.Kind.Clean].
func (t Tests) Clean(ctx context.Context, c *servertest.Cleaning) error {
	return t.Kind.Clean(ctx, t.Engine, c)
}

// Plan observes what a test depends on, and plans it. evidence gets Placement, if it was read.
//
// Errors: those of [servertest.Observe] and [servertest.NewPlan].
func (t Tests) Plan(ctx context.Context, o servertest.Options, sources []nova.Defined, evidence *servertest.Evidence) (servertest.Plan, error) {
	is, err := servertest.Observe(ctx, t.Compute.Cloud(), t.Compute, o, sources)
	if err != nil {
		return servertest.Plan{}, err
	}
	evidence.Placement = is.Placement
	return servertest.NewPlan(o, is, time.Now())
}

// OpenEvidence connects to the database of one cell, whose rows show whether devices are free;
// without a url it connects to none. The caller calls end.
func OpenEvidence(ctx context.Context, url string) (e servertest.Evidence, end func() error, err error) {
	if url == "" {
		return e, func() error { return nil }, nil
	}
	databases, err := novadb.Open(ctx, novadb.Where{Database: url})
	if err != nil {
		return e, nil, err
	}
	e.Rows = func(ctx context.Context, instance string) ([]string, error) {
		return find.DevicesOf(ctx, databases, instance)
	}
	return e, databases.Close, nil
}

// AliasSources reads the definitions of aliases: files that are given, else those of the machine
// below root. stdin is for a file that is standard input. unread are the errors of files of the
// machine, which most users may not read: aliases that they define are not found.
func AliasSources(root host.Root, confs []nova.SideFiles, stdin document.Source) (sources []nova.Defined, unread []error, err error) {
	if len(confs) > 0 {
		sides, err := nova.ReadSides(root, stdin, confs)
		if err != nil {
			return nil, nil, err
		}
		given, err := nova.DefinedBy(sides)
		return []nova.Defined{given}, nil, err
	}
	aliases, err := nova.OfferedAliases(root)
	return []nova.Defined{{Aliases: aliases}}, host.Split(err), nil
}
