package containerprepare

import (
	"errors"
	"fmt"

	"gpustack/host/pci"
)

// Lendable returns an error that names the functions of containers which cannot be bound for
// guests: GPUs that are divided into MIG instances.
func Lendable(m Observed, functions []pci.Address) error {
	var errs []error
	for _, a := range functions {
		if m.Driver.MIG[a] {
			errs = append(errs, fmt.Errorf("%s: %w", a, named(ErrMIG, a)))
		}
	}
	return errors.Join(errs...)
}

// Returnable returns an error if functions cannot be returned to containers: NVIDIA's driver of a
// GPU must not be missing, nor be kept from being loaded.
func Returnable(m Observed, functions []pci.Address) error {
	w := wanting{Observed: m}
	for _, a := range functions {
		if f := m.Recorded.At(a); f != nil && !f.HCA {
			w.module()
			break
		}
	}
	return errors.Join(w.errs...)
}
