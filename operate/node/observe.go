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
	_, reboot := Observe(ctx, root, false)
	return reboot
}

// Observe observes what is recorded, and whether the machine has to be rebooted, as [RebootRequired];
// with functions the functions of the machine below root in any case.
func Observe(ctx context.Context, root host.Root, functions bool) (m machine.Machine, reboot host.Bool) {
	journal := change.Machine(root).Observe()
	err := driver.Binder{Root: root}.Settled(ctx, journal)
	if err == nil || functions {
		m = machine.ObserveRecord(root, &journal, functions)
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
