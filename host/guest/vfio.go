package guest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// The node of a group is /dev/vfio/NUMBER or /dev/vfio/noiommu-NUMBER, the node of a device is
// /dev/vfio/devices/vfioN, and /dev/vfio/vfio is a container for groups (Linux,
// Documentation/driver-api/vfio.rst). A device that was opened through its group has no path.
const (
	vfioFolder   = "vfio"
	openDevice   = "anon_inode:[vfio-device]"
	groupsFolder = "/sys/kernel/iommu_groups"
	vfioDevices  = "/sys/class/vfio-dev"
)

// handle is a VFIO group, a VFIO device or a vDPA device that a process has open.
type handle struct {
	group  int
	device string // "vfio0"
	vdpa   string // "vhost-vdpa-0"
}

// parseHandle parses the target of a file descriptor. It uses only the end of the path: QEMU has a
// private /dev from libvirt, whose paths look different from outside, and the node may have been
// removed.
func parseHandle(target string) (handle, bool) {
	target = strings.TrimSuffix(target, " (deleted)")
	if node, ok := parseNode(target); ok {
		return handle{vdpa: node}, true
	}
	elements := strings.Split(target, "/")
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

// holders lists the processes that have VFIO groups, VFIO devices or vDPA devices open.
func (o *observer) holders(processes []process) {
	groups := o.access(sourceGroups)
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
			o.access(sourceVFIO).failf("%s/fd: %s has an unknown VFIO device open without its group", p.dir(), p.comm)
		}
		q, _ := parseQEMU(p.argv) // guests has recorded the errors
		for _, h := range handles {
			holder := Holder{PID: p.pid, Command: p.comm, UUID: q.uuid, Name: q.name, Asked: o.asked(q)}
			switch {
			case h.device != "":
				holder.Device = &h.device
				holder.Functions = o.function(h.device)
			case h.vdpa != "":
				holder.VDPA = &h.vdpa
				holder.Functions = o.functionsOf([]string{h.vdpa}, p.dir()+"/fd")
			default:
				holder.Group = &h.group
				holder.Functions = o.members(h.group)
			}
			o.report.Holders = append(o.report.Holders, holder)
		}
	}
}

// members returns the functions of a group, or nil if they cannot be determined (Linux,
// Documentation/ABI/testing/sysfs-kernel-iommu_groups).
func (o *observer) members(group int) []pci.Address {
	dir := path.Join(groupsFolder, strconv.Itoa(group), "devices")
	names, err := o.root.ReadDir(dir)
	if err == nil && len(names) == 0 {
		err = host.OfFile(dir, errors.New("is empty although a process has the group open"))
	}
	if err != nil {
		o.access(sourceGroups).failf("%w", err)
		return nil
	}
	members := []pci.Address{}
	for _, name := range names {
		a, err := pci.ParseAddress(name)
		if err != nil {
			// A mediated device is a directory below its function.
			if a, err = o.below(path.Join(dir, name)); err != nil {
				o.access(sourceGroups).failf("%w", err)
				return nil
			}
		}
		members = append(members, a)
	}
	return sorted(members)
}

// function returns the function of a VFIO device, or nil if it cannot be determined (Linux,
// Documentation/ABI/testing/sysfs-devices-vfio-dev).
func (o *observer) function(device string) []pci.Address {
	a, err := o.below(path.Join(vfioDevices, device, "device"))
	if err != nil {
		o.access(sourceGroups).failf("%w", err)
		return nil
	}
	return []pci.Address{a}
}

// below returns the function that a sysfs path resolves to, or below which it resolves.
func (o *observer) below(name string) (pci.Address, error) {
	ok, err := o.root.Exists(name)
	if err != nil {
		return pci.Address{}, err
	}
	place, err := o.root.Resolve(name)
	if err != nil {
		return pci.Address{}, err
	}
	if a, found := pci.LastOn(place); found && ok {
		return a, nil
	}
	return pci.Address{}, fmt.Errorf("%s: not a path of a PCI function", name)
}

// sorted sorts addresses and removes duplicates.
func sorted(addresses []pci.Address) []pci.Address {
	slices.SortFunc(addresses, pci.Address.Compare)
	return slices.Compact(addresses)
}
