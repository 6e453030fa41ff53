package guest

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host/pci"
)

// A vDPA device NAME is a directory below the device that provides it: a PCI function, an auxiliary
// device (mlx5_core.sf.4) below one, or a simulator. /sys/bus/vdpa/devices/NAME is a link there. If
// the driver vhost_vdpa is bound to the device, its directory has a directory vhost-vdpa-N, and
// guests use it through the node /dev/vhost-vdpa-N (Linux 6.1, drivers/vdpa/vdpa.c,
// __vdpa_alloc_device, and drivers/vhost/vdpa.c, vhost_vdpa_probe).
const (
	busFolder   = "/sys/bus"
	vdpaBus     = "/sys/bus/vdpa"
	vdpaDevices = "/sys/bus/vdpa/devices"
	nodePrefix  = "vhost-vdpa-"
)

// parseNode returns the name of the node of a vDPA device that a path ends with.
func parseNode(name string) (node string, ok bool) {
	node = path.Base(name)
	number, ok := strings.CutPrefix(node, nodePrefix)
	_, err := strconv.ParseUint(number, 10, 31)
	return node, ok && err == nil
}

// readNodes returns the functions of the nodes of vDPA devices: none for a simulated device. The
// bus exists only while the module vdpa is loaded.
func (o *observer) readNodes() map[string][]pci.Address {
	l := o.access(sourceVDPA)
	buses, err := o.root.ReadDir(busFolder)
	if err != nil {
		l.fail(busFolder, err)
		return nil
	}
	if !slices.Contains(buses, path.Base(vdpaBus)) {
		l.read = append(l.read, "no "+vdpaBus)
		return nil
	}
	names, err := o.root.ReadDir(vdpaDevices)
	if err != nil {
		l.failf("%w", err)
		return nil
	}
	l.read = append(l.read, vdpaDevices)
	nodes := map[string][]pci.Address{}
	for _, name := range names {
		dir := path.Join(vdpaDevices, name)
		files, err := o.root.ReadDir(dir)
		if err != nil {
			l.failf("%w", err)
			continue
		}
		for _, file := range files {
			node, ok := parseNode(file)
			if !ok {
				continue
			}
			if nodes[node], err = o.parents(dir); err != nil {
				l.failf("%w", err)
			}
		}
	}
	return nodes
}

// parents returns the function that the directory of a vDPA device is below, if any. The name of
// the device is anything that its maker chose.
func (o *observer) parents(dir string) ([]pci.Address, error) {
	place, err := o.root.Resolve(dir)
	if err != nil {
		return nil, err
	}
	if a, ok := pci.LastOn(path.Dir(strings.TrimPrefix(place, o.root.Path("/")))); ok {
		return []pci.Address{a}, nil
	}
	return []pci.Address{}, nil
}

// functionsOf returns the functions of nodes that a file of a process or domain names. It is a
// failure if a node is in use, or meant to be, and not known: its function may be any.
func (o *observer) functionsOf(nodes []string, named string) (functions []pci.Address) {
	for _, node := range nodes {
		of, ok := o.nodes[node]
		if !ok {
			o.access(sourceVDPA).failf("%s: %s is not in %s", named, node, vdpaDevices)
		}
		functions = append(functions, of...)
	}
	return functions
}

// asked returns the functions in the arguments of a process, directly or as vDPA devices.
func (o *observer) asked(q qemu) []pci.Address {
	asked := q.asked
	for _, node := range q.nodes {
		asked = append(asked, o.nodes[node]...)
	}
	return asked
}
