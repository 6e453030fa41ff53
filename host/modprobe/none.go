package modprobe

import (
	"gpustack/host"
	"gpustack/host/edit"
)

// PlanNone plans that none of our files is there.
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
