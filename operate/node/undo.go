package node

import (
	"context"
	"slices"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/machine"
	"gpustack/host/prepare"
)

// FilesBack is the planned undo of a change of files.
type FilesBack struct {
	change.UndoPlan
	Warnings []string
	Reboot   host.Bool // whether the machine has to be rebooted before the undo
	contract *machine.Contract
}

// PlanFilesBack completes the plan of the undo of a change of files. It observes the machine, once.
func (n Node) PlanFilesBack(ctx context.Context, plan change.UndoPlan) (FilesBack, error) {
	if len(plan.Programs) > 0 {
		if err := n.Runner.Ready(plan.Programs); err != nil {
			return FilesBack{}, err
		}
	}
	contract, err := machine.ReadContract(n.Root)
	if err != nil {
		return FilesBack{}, err
	}
	m, reboot := Observe(ctx, n.Root, true)
	warnings := slices.Concat(ofLeaving(n.Root, m.Devices.Value, plan.Files), ofReturned(n.Root, m.Devices, plan.Files), offeredBack(n.Root, m.Devices.Value, plan.Files))
	return FilesBack{UndoPlan: plan, Warnings: warnings, Reboot: reboot, contract: contract}, nil
}

// Leftovers returns what remains of host prepare after the undo on the machine below root, as
// warnings.
func (b FilesBack) Leftovers(root host.Root) []string { return prepare.Leftovers(root, b.contract) }
