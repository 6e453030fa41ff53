package cloud

import (
	"context"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/servertest"
)

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
