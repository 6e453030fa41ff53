package iommu

import (
	"fmt"
	"strconv"

	"gpustack/host"
	"gpustack/host/pci"
)

// State tells whether the IOMMU is on, in the form that docs/json.md describes.
type State struct {
	Enabled *bool `json:"enabled"` // nil where the files do not say
	Groups  int   `json:"groups"`
}

// Any kernel that can use an IOMMU has both folders, and leaves both empty when
// there is none or it is off: one for its groups (Linux,
// Documentation/ABI/testing/sysfs-kernel-iommu_groups), one for its units
// (Documentation/ABI/testing/sysfs-class-iommu).
const (
	groupsDir = "sys/kernel/iommu_groups"
	unitsDir  = "sys/class/iommu"
)

// ReadState tells whether the IOMMU is on, and counts its groups, those among
// them that only devices name. A tree that lacks the folders cannot say that it
// is off. Warnings name what could not be read.
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
		state.Enabled = &on
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
			r.warnings = append(r.warnings, fmt.Sprintf("/%s: %v", dir, host.Cause(err)))
		}
	}
	return names
}
