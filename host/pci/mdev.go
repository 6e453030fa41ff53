package pci

import (
	"fmt"
	"path"
	"strings"

	"gpustack/host"
)

// mediatedDir holds a link for each mediated device, whose target has the functions above it
// among its elements (Linux, Documentation/driver-api/vfio-mediated-device.rst).
const mediatedDir = "/sys/bus/mdev/devices"

// ReadMediated returns how many mediated devices each function has, as NVIDIA's vGPUs are.
func ReadMediated(root host.Root) (map[Address]int, error) {
	names, err := root.ReadDir(mediatedDir)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mediatedDir, host.Cause(err))
	}
	dir, err := root.OpenDir(mediatedDir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", mediatedDir, host.Cause(err))
	}
	defer dir.Close() //nolint:errcheck // only read from
	count := map[Address]int{}
	for _, name := range names {
		target, err := dir.Readlink(name)
		if host.IsAbsent(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(mediatedDir, name), err)
		}
		var parent *Address
		for element := range strings.SplitSeq(target, "/") {
			if a, err := ParseAddress(element); err == nil {
				parent = &a
			}
		}
		if parent != nil {
			count[*parent]++
		}
	}
	return count, nil
}
