package prepare

import (
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// forBoth returns an error for each function that is recorded for containers although a record of
// adapters has it for guests.
func forBoth(containers *machine.Containers, record *rdma.Record) (errs []error) {
	for _, f := range containers.All() {
		if p := record.Of(f.Address); p != nil && p.Use == rdma.ForGuests {
			errs = append(errs, ofContainers(f.Address, "is for containers"))
		}
	}
	return errs
}

// lost returns an error for each VF that is recorded for containers and that a change of the record
// takes away.
func lost(containers *machine.Containers, before, after *rdma.Record) (errs []error) {
	for _, f := range containers.All() {
		if p := before.Of(f.Address); p != nil && p.Address != f.Address && after.Of(f.Address) == nil {
			errs = append(errs, ofContainers(f.Address, fmt.Sprintf("is for containers, and a VF of %s that would not be made any more", p.Address)))
		}
	}
	return errs
}

func ofContainers(a pci.Address, why string) error {
	err := host.WithHint(errors.New(why), fmt.Sprintf("take it from containers first: gpustack container prepare --remove %s", a))
	return gate.Refuse(a, host.WithCode(err, host.CodeRole, ""))
}

// PermitRoles returns an error if a plan of files, such as that of an undo, leaves a function with
// two roles, or without a VF that is recorded for containers.
func PermitRoles(root host.Root, plan edit.Plan) error {
	before, err := rdma.ReadRecord(root)
	after := before
	containers, containersErr := machine.ReadContainers(root)
	concerned := false
	for _, c := range plan {
		switch c.Name {
		case rdma.RecordFile:
			concerned = true
			before, after, err = Records(plan)
		case machine.ContractFile:
			concerned = true
			containers, containersErr = nil, nil
			if c.After != nil {
				containers, containersErr = machine.ParseContainers(c.After.Content)
			}
		}
	}
	if !concerned {
		return nil
	}
	if err := errors.Join(err, containersErr); err != nil {
		return err
	}
	return errors.Join(append(forBoth(containers, after), lost(containers, before, after)...)...)
}
