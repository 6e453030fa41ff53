package guard

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// guard reads sysfs and procfs below a root.
type guard struct {
	root    host.Root
	devices pci.Devices
	records map[string]udevRecord
	numbers map[string]string // of disks in sysfs
}

// lines returns the fields of each line of a file, or none if the file is absent.
func (g *guard) lines(name string) ([][]string, error) {
	data, err := host.IfPresent(g.root.ReadTable(name))
	if err != nil {
		return nil, err
	}
	var lines [][]string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, fields)
		}
	}
	return lines, nil
}

// at returns what read returns for a file or directory of sysfs, by its name without links, or
// nothing if it is absent.
func at[T any](g *guard, name string, read func(string) (T, error)) (found T, err error) {
	resolved, err := g.root.Real(name)
	if err == nil {
		found, err = host.IfPresent(read(resolved))
	}
	return found, host.OfFile(name, err)
}

// attribute returns the text of a sysfs attribute, or "" if it is absent, as below a file, or its
// device is removed at the same time (ENODEV: Linux, kernfs_seq_start in fs/kernfs/file.c).
func (g *guard) attribute(name string) (string, error) {
	data, err := at(g, name, g.root.ReadFile)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOTDIR) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// list returns the names in a sysfs directory, or none if the directory is absent.
func (g *guard) list(dir string) ([]string, error) { return at(g, dir, g.root.ReadDir) }

// exists reports whether sysfs has a file or directory, or a link to one.
func (g *guard) exists(name string) (bool, error) { return at(g, name, g.root.Exists) }

// link returns the unresolved target of a symbolic link, or "" if the link is absent.
func (g *guard) link(folder, name string) (string, error) {
	dir, err := at(g, folder, g.root.OpenDir)
	if dir == nil || err != nil {
		return "", err
	}
	defer dir.Close() //nolint:errcheck // only read from
	target, err := host.IfPresent(dir.Readlink(name))
	return target, host.OfFile(path.Join(folder, name), err)
}

// device returns the path of a device of a class below /sys/devices, or "" if the class has no
// such device or has a directory in place of the link.
func (g *guard) device(class, name string) (string, error) {
	target, err := g.link(class, name)
	if errors.Is(err, unix.EINVAL) {
		return "", nil
	}
	return target, err
}

// functions returns the functions that a device depends on, by target, the path of its directory
// below /sys/devices: the last function of the path, also of a device of a subfunction, whose
// directory is in that of its function (Linux since 5.12, mlx5_sf_dev_add in
// drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c); each earlier one that is not a bridge,
// such as an Intel VMD controller, which has a PCI domain of its own below it (Linux,
// drivers/pci/controller/vmd.c); and, for each virtual function, the physical function, without
// which the virtual one does not exist (Linux, Documentation/ABI/testing/sysfs-bus-pci, physfn).
func (g *guard) functions(target string) ([]pci.Address, error) {
	var onPath []pci.Address
	for element := range strings.SplitSeq(target, "/") {
		if a, err := pci.ParseAddress(element); err == nil {
			onPath = append(onPath, a)
		}
	}
	var addresses []pci.Address
	for i, a := range onPath {
		if i < len(onPath)-1 && !g.endpoint(a) {
			continue
		}
		addresses = append(addresses, a)
		dir := path.Join("/sys/bus/pci/devices", a.String())
		physical, err := g.link(dir, "physfn")
		if err != nil {
			return nil, err
		}
		if physical == "" {
			continue
		}
		pf, err := pci.ParseAddress(path.Base(physical))
		if err != nil {
			return nil, fmt.Errorf("%s/physfn: %w", dir, err)
		}
		addresses = append(addresses, pf)
	}
	return addresses, nil
}

// endpoint reports whether a function is listed and can be assigned to a guest. A function of
// unknown class counts.
func (g *guard) endpoint(a pci.Address) bool {
	d := g.devices.At(a)
	return d != nil && !d.IsBridge()
}
