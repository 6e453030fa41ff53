package driver

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// netnsFile shows Y while all network namespaces share RDMA devices, and N in exclusive mode
// (Linux, drivers/infiniband/core/device.c, netns_mode).
const netnsFile = "/sys/module/ib_core/parameters/netns_mode"

// Modes of RDMA devices in network namespaces (rdma-system(8)).
const (
	netnsShared    = "shared"
	NetnsExclusive = "exclusive"
)

// ErrNamespaces means that the mode cannot change any more.
var ErrNamespaces = host.WithHint(errors.New("another network namespace exists already: the mode can change only before"),
	"reboot: the option netns_mode of module ib_core sets the mode, also in the initramfs if ib_core is there")

// Netns returns the mode in which RDMA devices belong to network namespaces, or "" if the module
// ib_core is not loaded.
func Netns(root host.Root) (string, error) {
	data, err := root.ReadFile(netnsFile)
	if host.IsAbsent(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	switch text := strings.TrimSpace(string(data)); text {
	case "Y":
		return netnsShared, nil
	case "N":
		return NetnsExclusive, nil
	default:
		return "", fmt.Errorf("%s: neither Y nor N: %q", netnsFile, text)
	}
}

// SetNetnsMode sets the mode, which is possible only while no second network namespace exists.
func SetNetnsMode(root host.Root, k Requester, mode string) error {
	_, err := k.Request(Request{Kind: SetNetns, Value: mode})
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: %w", ErrNamespaces, err)
	}
	if err != nil {
		return err
	}
	now, err := Netns(root)
	if err == nil && now != mode {
		err = fmt.Errorf("%s: the kernel accepted netns mode %s, but has %s", netnsFile, mode, now)
	}
	return err
}
