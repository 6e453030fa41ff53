package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Modes of the eswitch of a network adapter (Linux, Documentation/networking/devlink).
const (
	legacy    = "legacy"
	switchdev = "switchdev"
)

// Eswitch returns the mode of a function's eswitch, as its network interfaces show it: only in
// switchdev mode they are ports of a switch, whose id the kernel shows (Linux,
// Documentation/ABI/testing/sysfs-class-net, phys_switch_id). "" means that there is no interface.
func Eswitch(root host.Root, a pci.Address) (string, error) {
	dir := attribute(a, "net")
	names, err := host.IfPresent(root.ReadDir(dir))
	if err != nil {
		return "", err
	}
	mode := ""
	for _, name := range names {
		file := path.Join(dir, name, "phys_switch_id")
		id, err := root.ReadFile(file)
		switch {
		case host.IsAbsent(err), errors.Is(err, unix.EOPNOTSUPP), err == nil && strings.TrimSpace(string(id)) == "":
			mode = legacy
		case err != nil:
			return "", err
		default:
			return switchdev, nil
		}
	}
	return mode, nil
}

// SetEswitch sets the mode of a function's eswitch, and waits until its network interfaces, which
// the driver replaces, show it.
func SetEswitch(ctx context.Context, root host.Root, k Requester, a pci.Address, mode string) error {
	if _, err := k.Request(Request{Kind: SetMode, Device: a.String(), Value: mode}); err != nil {
		return err
	}
	return Wait(ctx, func() error {
		now, err := Eswitch(root, a)
		if err == nil && now != mode {
			err = fmt.Errorf("%s: the kernel accepted eswitch mode %s, but its interfaces show %q", a, mode, now)
		}
		return err
	})
}
