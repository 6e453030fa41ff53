package guest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

const pciDevices = "/sys/bus/pci/devices"

// virtualFunctions lists the physical functions that have virtual functions. The kernel links both
// ways (Linux, Documentation/ABI/testing/sysfs-bus-pci, physfn and virtfnX); the links must agree,
// since they change while virtual functions are made or removed.
//
// Without PCI devices the source is absent: a machine without a PCI bus has no functions either
// that a repair could be about, and a tree without sysfs looks the same.
func (o *observer) virtualFunctions() {
	l := o.access(sourceSRIOV)
	names, err := o.root.ReadDir(pciDevices)
	if err != nil {
		l.fail(pciDevices, err)
		return
	}
	l.read = append(l.read, fmt.Sprintf("%d of %s", len(names), pciDevices))
	physical := map[pci.Address]pci.Address{} // of a virtual function
	virtual := map[pci.Address][]pci.Address{}
	for _, name := range names {
		pf, vfs, err := o.relations(name)
		if err != nil {
			l.failf("%w", err)
			continue
		}
		a, err := pci.ParseAddress(name)
		if err != nil {
			l.failf("%s: %w", path.Join(pciDevices, name), err)
			continue
		}
		if pf != nil {
			physical[a] = *pf
		}
		if len(vfs) > 0 {
			virtual[a] = vfs
		}
	}
	for _, pf := range slices.SortedFunc(maps.Keys(virtual), pci.Address.Compare) {
		for _, vf := range virtual[pf] {
			if of, ok := physical[vf]; !ok || of != pf {
				l.failf("%s names %s as its virtual function, which does not name %s", pf, vf, pf)
			}
		}
	}
	for _, vf := range slices.SortedFunc(maps.Keys(physical), pci.Address.Compare) {
		if pf := physical[vf]; !slices.Contains(virtual[pf], vf) {
			l.failf("%s names %s as its physical function, which does not name %s", vf, pf, vf)
			virtual[pf] = append(virtual[pf], vf)
		}
	}
	for _, pf := range slices.SortedFunc(maps.Keys(virtual), pci.Address.Compare) {
		f := PhysicalFunction{pf, sorted(virtual[pf])}
		o.report.VirtualFunctions = append(o.report.VirtualFunctions, f)
	}
}

// relations reads the links of a function to its physical function and to its virtual functions.
// Few functions have any, and the kernel numbers these from 0 (Linux, pci_iov_sysfs_link in
// drivers/pci/iov.c).
func (o *observer) relations(name string) (pf *pci.Address, vfs []pci.Address, err error) {
	place := path.Join(pciDevices, name)
	dir, err := o.root.OpenDir(place)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close() //nolint:errcheck // only read from
	there, err := dir.Which(make([]byte, host.MaxAttribute), "physfn", "virtfn0")
	if err != nil || len(there) == 0 {
		return nil, nil, err
	}
	files, err := o.root.ReadDir(place)
	if err != nil {
		return nil, nil, err
	}
	var links []string
	for _, file := range files {
		index, isVirtual := strings.CutPrefix(file, "virtfn")
		if _, err := strconv.ParseUint(index, 10, 31); file == "physfn" || isVirtual && err == nil {
			links = append(links, file)
		}
	}
	for _, link := range links {
		target, err := dir.Readlink(link)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path.Join(place, link), err)
		}
		a, err := pci.ParseAddress(path.Base(target))
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", path.Join(place, link), err)
		case link == "physfn":
			pf = &a
		default:
			vfs = append(vfs, a)
		}
	}
	return pf, vfs, nil
}
