package prepare

import (
	"slices"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/machine"
)

// Older returns a function that determines the meaning of the change of a boot file which an
// earlier release recorded without it (change.Files). It knows the kernel arguments from the record
// of the machine, which must be the one that the entry wrote.
func Older(root host.Root) func(e change.Entry, f change.File) (*edit.Meaning, error) {
	return func(e change.Entry, f change.File) (*edit.Meaning, error) {
		now, err := edit.Read(root, machine.ContractFile)
		if err != nil {
			return nil, err
		}
		return older(now, e, f)
	}
}

// older is [Older] for the record as it is now, nil if there is none.
func older(now *edit.File, e change.Entry, f change.File) (*edit.Meaning, error) {
	wrote := slices.IndexFunc(e.Files, func(f change.File) bool { return f.Name == machine.ContractFile })
	if f.Before == nil || wrote < 0 {
		return nil, nil
	}
	if now == nil || e.Files[wrote].After == nil || e.Files[wrote].After.Hash != now.Hash() {
		return nil, nil
	}
	contract, _, err := machine.ParseRecord(now.Content)
	if err != nil || contract == nil {
		return nil, err
	}
	length := 0
	for _, piece := range f.Back {
		length += piece.Length
	}
	return boot.Older(f.Name, f.Replaced(), length, contract.Arguments), nil
}
