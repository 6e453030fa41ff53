package find

import (
	"gpustack/cleanup"
	"gpustack/host/document"
	"gpustack/host/guest"
)

// ReadReports reads guest reports, and has rows judged by them and by the hosts that the operator
// has declared off.
//
// Errors: those of [guest.ReadReports] and cleanup.NewProof.
func (o *Options) ReadReports(from document.Source, off []string) error {
	reports, err := guest.ReadReports(from)
	if err != nil {
		return err
	}
	proof, err := cleanup.NewProof(reports, off)
	if err != nil {
		return err
	}
	o.Held = cleanup.HeldIn(reports)
	if len(reports)+len(off) > 0 {
		o.Proof = proof
	}
	return nil
}
