package rdma

import (
	"path"
	"slices"
	"strconv"

	"gpustack/host"
	"gpustack/host/pci"
)

// netdev is a network interface of a PCI function.
type netdev struct {
	name     string
	function *pci.Address // nil for virtual interfaces
	port     int          // dev_port, from 0
	ipoib    *IPoIB
}

// typeInfiniBand is the hardware type of IPoIB interfaces (Linux, ARPHRD_INFINIBAND).
const typeInfiniBand = "32"

// interfaces returns the machine's network interfaces that belong to a PCI function, and children
// of IPoIB interfaces.
func (r *reader) interfaces() []netdev {
	names, err := r.root.ReadDir(netDir)
	if err != nil && !host.IsAbsent(err) {
		r.warn(netDir, err)
	}
	var found []netdev
	for _, name := range names {
		dir := path.Join(netDir, name)
		if ok, err := r.root.Exists(path.Join(dir, "ifindex")); err == nil && !ok {
			if folder, err := r.root.Exists(path.Join(dir, "type")); err == nil && !folder {
				continue // bonding_masters, a file
			}
		}
		n := netdev{name: name}
		if at, err := r.root.Real(path.Join(dir, "device")); err == nil {
			if a, err := pci.ParseAddress(path.Base(at)); err == nil {
				n.function = &a
			}
		}
		if kind, _ := r.text(dir, "type"); kind == typeInfiniBand {
			n.ipoib = r.ipoib(dir, name)
		}
		if n.function == nil && n.ipoib == nil {
			continue
		}
		if port := r.number(dir, "dev_port", 10); port != nil {
			n.port = *port
		}
		found = append(found, n)
	}
	// A child has its parent's port.
	for i := range found {
		if p := found[i].ipoib; p != nil && p.Parent != "" {
			k := slices.IndexFunc(found, func(n netdev) bool { return n.name == p.Parent })
			if k >= 0 {
				found[i].function, found[i].port = found[k].function, found[k].port
			}
		}
	}
	return found
}

// ipoib reads the attributes of an IPoIB interface (Linux, Documentation/infiniband/ipoib.rst).
func (r *reader) ipoib(dir, name string) *IPoIB {
	i := IPoIB{Name: name}
	i.Mode, _ = r.text(dir, "mode")
	i.MTU = r.number(dir, "mtu", 10)
	i.Parent, _ = r.text(dir, "parent")
	if text, ok := r.text(dir, "pkey"); ok {
		key, err := strconv.ParseUint(text, 0, 16)
		if err != nil {
			r.warn(path.Join(dir, "pkey"), err)
		} else {
			k := uint16(key)
			i.PKey = &k
		}
	}
	return &i
}

// addInterfaces adds the interfaces of the adapter's function. Of a function with two ports,
// dev_port says to which one an interface belongs.
func (a *Adapter) addInterfaces(all []netdev) {
	for _, n := range all {
		if a.Address == nil || n.function == nil || *n.function != *a.Address {
			continue
		}
		a.Netdevs = append(a.Netdevs, n.name)
		for i := range a.Ports {
			if n.ipoib != nil && (len(a.Ports) == 1 || a.Ports[i].Number == n.port+1) {
				a.Ports[i].IPoIB = append(a.Ports[i].IPoIB, *n.ipoib)
			}
		}
	}
}
