package guest

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// A group's node is /dev/vfio/NUMBER, or noiommu-NUMBER, and a device's own is
// /dev/vfio/devices/vfioN; /dev/vfio/vfio is a container for groups (Linux,
// Documentation/driver-api/vfio.rst). What a device is once it is open has no path.
const (
	vfioFolder   = "vfio"
	openDevice   = "anon_inode:[vfio-device]"
	groupsFolder = "/sys/kernel/iommu_groups"
	vfioDevices  = "/sys/class/vfio-dev"
)

// handle is what of VFIO a process has open: a group, or a device.
type handle struct {
	group  int
	device string // "" for a group
}

// parseHandle reads where a descriptor leads. Only the end of the path counts: libvirt
// gives QEMU a /dev of its own, which need not show by the same path from outside, and
// a node can have been removed since.
func parseHandle(target string) (handle, bool) {
	elements := strings.Split(strings.TrimSuffix(target, " (deleted)"), "/")
	slices.Reverse(elements)
	elements = append(elements, "", "", "")
	switch last := elements[0]; {
	case elements[1] == vfioFolder:
		n, err := strconv.ParseUint(strings.TrimPrefix(last, "noiommu-"), 10, 31)
		return handle{group: int(n)}, err == nil
	case elements[1] == "devices" && elements[2] == vfioFolder && strings.HasPrefix(last, "vfio"):
		return handle{device: last}, true
	}
	return handle{}, false
}

// holders lists who has what open.
func (o *observer) holders(processes []process) {
	groups := o.look(sourceGroups)
	if _, err := o.root.ReadDir(groupsFolder); err != nil {
		groups.fail(groupsFolder, err)
	} else {
		groups.read = append(groups.read, groupsFolder)
	}
	for _, p := range processes {
		var handles []handle
		for _, target := range p.files {
			if h, ok := parseHandle(target); ok && !slices.Contains(handles, h) {
				handles = append(handles, h)
			}
		}
		if len(handles) == 0 && slices.Contains(p.files, openDevice) {
			o.look(sourceVFIO).faultf("%s/fd: %s has a VFIO device open, and not its group: which cannot be told", p.dir(), p.comm)
		}
		q, _ := parseQEMU(p.argv) // guests has said what is wrong with it
		for _, h := range handles {
			holder := Holder{PID: p.pid, Command: p.comm, UUID: q.uuid, Name: q.name, Asked: q.asked}
			if h.device != "" {
				holder.Device = &h.device
				holder.Functions = o.function(h.device)
			} else {
				holder.Group = &h.group
				holder.Functions = o.members(h.group)
			}
			o.report.Holders = append(o.report.Holders, holder)
		}
	}
}

// members returns the functions of a group (Linux,
// Documentation/ABI/testing/sysfs-kernel-iommu_groups), nil where they cannot be told.
func (o *observer) members(group int) []pci.Address {
	dir := path.Join(groupsFolder, strconv.Itoa(group), "devices")
	names, err := o.root.ReadDir(dir)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("is empty, and a process has the group open")
	}
	if err != nil {
		o.look(sourceGroups).faultf("%s: %v", dir, host.Cause(err))
		return nil
	}
	members := []pci.Address{}
	for _, name := range names {
		a, err := pci.ParseAddress(name)
		if err != nil {
			// A mediated device is a folder of the function that it is a part of.
			if a, err = o.below(path.Join(dir, name)); err != nil {
				o.look(sourceGroups).faultf("%v", err)
				return nil
			}
		}
		members = append(members, a)
	}
	return sorted(members)
}

// function returns the function that a device is (Linux,
// Documentation/ABI/testing/sysfs-devices-vfio-dev), nil where it cannot be told.
func (o *observer) function(device string) []pci.Address {
	a, err := o.below(path.Join(vfioDevices, device, "device"))
	if err != nil {
		o.look(sourceGroups).faultf("%v", err)
		return nil
	}
	return []pci.Address{a}
}

// below returns the function that a link of sysfs leads to, or into.
func (o *observer) below(name string) (pci.Address, error) {
	ok, err := o.root.Exists(name)
	if err != nil {
		return pci.Address{}, fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	place, err := o.root.Resolve(name)
	if err != nil {
		return pci.Address{}, fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	elements := strings.Split(place, "/")
	slices.Reverse(elements)
	for _, element := range elements {
		if a, err := pci.ParseAddress(element); err == nil && ok {
			return a, nil
		}
	}
	return pci.Address{}, fmt.Errorf("%s: leads to no PCI function", name)
}

// sorted puts addresses in order, each once.
func sorted(addresses []pci.Address) []pci.Address {
	slices.SortFunc(addresses, pci.Address.Compare)
	return slices.Compact(addresses)
}
