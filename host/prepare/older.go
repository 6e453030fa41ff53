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
		wrote := slices.IndexFunc(e.Files, func(f change.File) bool { return f.Name == machine.ContractFile })
		if f.Before == nil || wrote < 0 {
			return nil, nil
		}
		now, err := edit.Read(root, machine.ContractFile)
		if err != nil || now == nil || e.Files[wrote].After == nil || e.Files[wrote].After.Hash != now.Hash() {
			return nil, err
		}
		contract, err := machine.ReadContract(root)
		if err != nil {
			return nil, err
		}
		length := 0
		for _, piece := range f.Back {
			length += piece.Length
		}
		return boot.Older(f.Name, f.Replaced(), length, contract.Arguments), nil
	}
}
