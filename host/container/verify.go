package container

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/cdi"
)

// Verify reads the specs as container runtimes do: each device must be found by its qualified name
// in gpustack's file, with nodes and libraries that exist. Its error has all failures.
func Verify(root host.Root, names []string) error {
	folders := cdi.Read(root)
	var errs []error
	for _, problem := range folders.All() {
		if problem.Status == host.Fail && IsSpec(problem.File) {
			errs = append(errs, errors.New(problem.String()))
		}
	}
	devices := folders.Devices()
	for _, name := range names {
		i := slices.IndexFunc(devices, func(d cdi.Device) bool { return d.Name == name })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("%s: container runtimes do not find it", name))
		case !IsSpec(devices[i].File):
			errs = append(errs, fmt.Errorf("%s: container runtimes take it from %q", name, devices[i].File))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return host.WithHint(err, host.Textf("the specs are written; '%s' says what containers lack", host.NewCommand("container check")))
	}
	return nil
}
