package pci

import (
	"fmt"
	"path"

	"gpustack/host"
)

// mediatedDir contains a link for each mediated device. The path of its target contains the
// functions above it (Linux, Documentation/driver-api/vfio-mediated-device.rst).
const mediatedDir = "/sys/bus/mdev/devices"

// mediatedTypesDir is a sysfs folder of each function that supports mediated devices.
const mediatedTypesDir = "mdev_supported_types"

// ReadMediated returns the number of mediated devices, such as NVIDIA's vGPUs, of each function
// that Scan found. It reads the list of all mediated devices and the list of each GPU.
func ReadMediated(root host.Root, devices []Device) (map[Address]int, error) {
	count, err := readMediated(root)
	if err != nil {
		return nil, err
	}
	for i := range devices {
		d := &devices[i]
		if !d.IsGPU() || !d.mediates {
			continue
		}
		of, err := mediatedOf(root, d.Address)
		if err != nil {
			return nil, err
		}
		if of > count[d.Address] {
			count[d.Address] = of
		}
	}
	return count, nil
}

// mediatedOf counts the mediated devices of each type that a function has.
func mediatedOf(root host.Root, a Address) (count int, err error) {
	types := path.Join("/", devicesDir, a.String(), mediatedTypesDir)
	names, err := root.ReadDir(types)
	for _, name := range names {
		var made []string
		if made, err = root.ReadDir(path.Join(types, name, "devices")); err != nil && !host.IsAbsent(err) {
			break
		}
		count += len(made)
	}
	if err != nil && !host.IsAbsent(err) {
		return 0, err
	}
	return count, nil
}

func readMediated(root host.Root) (map[Address]int, error) {
	count := map[Address]int{}
	names, err := root.ReadDir(mediatedDir)
	if host.IsAbsent(err) {
		return count, nil
	}
	if err != nil {
		return nil, err
	}
	dir, err := root.OpenDir(mediatedDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only read from
	for _, name := range names {
		target, err := dir.Readlink(name)
		if host.IsAbsent(err) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path.Join(mediatedDir, name), err)
		}
		if parent, ok := LastOn(target); ok {
			count[parent]++
		}
	}
	return count, nil
}
