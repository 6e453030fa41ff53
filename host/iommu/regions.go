package iommu

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Region is a region of memory that the firmware wants mapped 1:1 for the devices of a group.
type Region struct {
	Group  int
	Memory string // its first and last address
	// Refuses is set if the kernel attaches the group to no domain of VFIO; otherwise the firmware may
	// rely on the region while a guest has the group.
	Refuses bool
}

// File returns the file that shows the region.
func (r Region) File() string { return regionsOf(r.Group) }

func regionsOf(group int) string {
	return path.Join("/"+groupsDir, strconv.Itoa(group), "reserved_regions")
}

// Regions are the first region of each group that has one.
type Regions map[int]Region

// Of returns the region of a function's group, nil for none.
func (r Regions) Of(d *pci.Device) *Region {
	if d == nil || d.IOMMUGroup == nil {
		return nil
	}
	if region, ok := r[*d.IOMMUGroup]; ok {
		return &region
	}
	return nil
}

// ReadRegions reads the regions of the groups of devices (Linux, Documentation/ABI/testing/
// sysfs-kernel-iommu_groups). A kernel of a release refuses those of type "direct", not those of
// type "direct-relaxable", which USB controllers and displays have: Intel's driver always
// (drivers/iommu/intel/iommu.c: "Device is ineligible for IOMMU domain attach due to platform RMRR
// requirement"), all others since 6.6 (drivers/iommu/iommu.c: "Firmware has requested this device have
// a 1:1 IOMMU mapping"). While the IOMMU is off, there are no groups.
func ReadRegions(root host.Root, devices pci.Devices, release string) (Regions, error) {
	regions, read := Regions{}, map[int]bool{}
	var errs []error
	dir, err := root.OpenDir(groupsDir)
	if host.IsAbsent(err) {
		return regions, nil
	} else if err != nil {
		return regions, err
	}
	defer dir.Close() //nolint:errcheck // only read from
	buf := make([]byte, host.MaxAttribute+1)
	for i := range devices {
		g := devices[i].IOMMUGroup
		if g == nil || read[*g] {
			continue
		}
		read[*g] = true
		data, err := readOf(dir, strconv.Itoa(*g), "reserved_regions", buf)
		if err != nil && !host.IsAbsent(err) {
			errs = append(errs, host.OfFile(regionsOf(*g), err))
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) == 3 && f[2] == "direct" {
				regions[*g] = Region{Group: *g, Memory: f[0] + "-" + f[1]}
				break
			}
		}
	}
	if len(regions) == 0 {
		return regions, errors.Join(errs...)
	}
	units, err := root.ReadDir(unitsDir)
	if err != nil && !host.IsAbsent(err) {
		errs = append(errs, err)
	}
	var major, minor int
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor)
	older := n == 2 && (major < 6 || major == 6 && minor < 6)
	for g, r := range regions {
		r.Refuses = !older || len(units) > 0 && strings.HasPrefix(units[0], "dmar")
		regions[g] = r
	}
	return regions, errors.Join(errs...)
}
