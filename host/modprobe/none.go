package modprobe

import (
	"gpustack/host"
	"gpustack/host/edit"
)

// PlanNone plans to remove gpustack's files.
func PlanNone(root host.Root) (edit.Plan, error) {
	var plan edit.Plan
	for _, name := range append(OwnFiles(), loadFile) {
		c, err := edit.Remove(root, name)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}
