package node

import (
	"context"
	"errors"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/driver"
	"gpustack/host/machine"
)

// RebootRequired reports whether the machine below root has to be rebooted.
// Commands that have not observed the machine call it. If a write to sysfs of an earlier run is
// stuck in the kernel, it reads no function: that would block too.
func RebootRequired(ctx context.Context, root host.Root) host.Bool {
	_, reboot := Observe(ctx, root, 0)
	return reboot
}

// Observe observes subjects of the machine below root, which may be 0, and whether it has to be
// rebooted, as [RebootRequired]: the machine is read once for both.
func Observe(ctx context.Context, root host.Root, subjects machine.Subject) (m machine.Machine, reboot host.Bool) {
	journal := change.Machine(root).Observe()
	err := driver.Binder{Root: root}.Settled(ctx, journal)
	if err == nil {
		subjects |= machine.Reboot
	}
	if subjects != 0 {
		m = machine.Observe(root, subjects, machine.Options{Journal: &journal})
	}
	switch {
	case errors.Is(err, host.ErrStuck):
		return m, host.Yes
	case err != nil:
		return m, host.Unknown
	}
	return m, check.RebootRequired(m)
}

// Settled returns an error if an earlier run's sysfs write is still blocked in the kernel. journal
// is a look at the machine's. Read-only commands call it first: reading driver_override would block
// too.
func Settled(ctx context.Context, root host.Root, journal change.Seen) error {
	return driver.Binder{Root: root, Patience: 2 * time.Second}.Settled(ctx, journal)
}
