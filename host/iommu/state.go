package iommu

import (
	"fmt"
	"strconv"

	"gpustack/host"
	"gpustack/host/pci"
)

// State is whether the IOMMU is on, in the form that docs/json.md describes.
type State struct {
	// whether the IOMMU is on; null if the file tree does not show it
	Enabled host.Bool `json:"enabled"`
	Groups  int       `json:"group_count"` // all groups of the machine, listed or not
}

// Directories of groups (Linux, Documentation/ABI/testing/sysfs-kernel-iommu_groups) and IOMMUs
// (Documentation/ABI/testing/sysfs-class-iommu). Every kernel with IOMMU support has both. They are
// empty if there is no IOMMU or it is off.
const (
	groupsDir = "sys/kernel/iommu_groups"
	unitsDir  = "sys/class/iommu"
)

// ReadState returns whether the IOMMU is on and the number of its groups, including groups that
// only a device names. In a tree without the directories, an IOMMU without groups is unknown, not
// off. Warnings name the files that cannot be read.
func ReadState(root host.Root, devices []pci.Device) (State, []string) {
	r := stateReader{root: root, complete: true}
	numbers := map[int]bool{}
	for i := range devices {
		if g := devices[i].IOMMUGroup; g != nil {
			numbers[*g] = true
		}
	}
	for _, name := range r.list(groupsDir) {
		number, err := strconv.Atoi(name)
		if err != nil || number < 0 {
			r.warnings = append(r.warnings, fmt.Sprintf("/%s/%s: not a group number", groupsDir, name))
			continue
		}
		numbers[number] = true
	}
	units := r.list(unitsDir)
	state := State{Groups: len(numbers)}
	if on := len(numbers) > 0 || len(units) > 0; on || r.complete {
		state.Enabled = host.BoolOf(on)
	}
	return state, r.warnings
}

type stateReader struct {
	root     host.Root
	complete bool
	warnings []string
}

func (r *stateReader) list(dir string) []string {
	names, err := r.root.ReadDir(dir)
	if err != nil {
		r.complete = false
		if !host.IsAbsent(err) {
			r.warnings = append(r.warnings, err.Error())
		}
	}
	return names
}
