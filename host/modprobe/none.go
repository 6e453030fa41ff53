package modprobe

import (
	"gpustack/host/edit"
)

// PlanNone plans to remove gpustack's files.
func PlanNone(files edit.Files) (edit.Changes, error) {
	var plan edit.Changes
	for _, name := range PlanFiles() {
		c, err := files.Remove(name)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}
