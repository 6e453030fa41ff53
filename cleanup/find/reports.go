package find

import (
	"slices"

	"gpustack/cleanup"
	"gpustack/host/document"
	"gpustack/host/guest"
)

// ReadReports reads guest reports, and has rows judged by them and by the hosts that the operator
// has declared off.
//
// Errors: those of [document.Source.Each], [document.Malformed] and cleanup.NewProof.
func (o *Options) ReadReports(from document.Source, off []string) error {
	var reports []guest.Report
	err := from.Each(document.HostGuests, func(d document.Document) error {
		r, err := guest.Decode(d.Text)
		if err != nil {
			return document.Malformed(d.Name, document.HostGuests, err)
		}
		reports = append(reports, r)
		if r.NovaHost != nil {
			named := slices.ContainsFunc(from.Paths, func(path string) bool { return document.Name(path) == d.File })
			o.Given = append(o.Given, Given{*r.NovaHost, d.Name, !named})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range off {
		o.Given = append(o.Given, Given{Host: name, By: "--host-is-off"})
	}
	o.Proof, err = cleanup.NewProof(reports, off)
	return err
}
