package find

import (
	"errors"
	"fmt"
	"os"
	"time"

	"gpustack/cleanup"
	"gpustack/host/guest"
)

// ReadReports reads guest reports from files, and has rows judged by them and by the hosts that
// the operator has declared off. now is the clock that the reports' ages are measured with.
//
// Errors: files that cannot be read or are no reports, and those of cleanup.NewProof.
func (o *Options) ReadReports(files, off []string, now func() time.Time) error {
	var reports []guest.Report
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		report, err := guest.Decode(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		reports = append(reports, report)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	proof, err := cleanup.NewProof(reports, off, now)
	if err != nil {
		return err
	}
	o.Held = cleanup.HeldIn(reports)
	if len(reports)+len(off) > 0 {
		o.Proof = proof
	}
	return nil
}
