package steps

import (
	"errors"
	"strings"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/rdma"
)

// State is what a check needs to know of the steps of every boot.
type State struct {
	Wanted  []Step
	Result  *Result  // of this boot; nil if no step was carried out
	Missing []string // files of the unit that do not exist
	Masked  bool     // the unit is a link to /dev/null (systemctl(1), mask)
	// Unordered are units of containers that may start before the steps are done.
	Unordered []string
	Err       error // what cannot be read
}

// Observe reads the state of the steps for what is recorded on an observed machine. It asks no
// kernel interface but files.
func Observe(root host.Root, m machine.Machine) State {
	var s State
	adapters, recordErr := rdma.ReadRecord(root)
	s.Wanted = Of(gate.Records{Guests: m.Contract.Value, Containers: m.Containers, RDMA: adapters})
	result, resultErr := ReadResult(root)
	unordered, orderErr := Unordered(root)
	s.Result = result
	if s.Unordered = unordered; len(s.Wanted) == 0 {
		orderErr = nil
	}
	s.Err = errors.Join(m.Contract.Err, recordErr, resultErr, orderErr)
	for _, name := range []string{UnitFile, WantsFile} {
		if root.IsMask(name) {
			s.Masked = true
			continue
		}
		ok, err := root.Exists(name)
		if err != nil {
			s.Err = errors.Join(s.Err, err)
		} else if !ok {
			s.Missing = append(s.Missing, name)
		}
	}
	return s
}

// Recorded returns the steps for what is recorded on a machine.
func Recorded(root host.Root) ([]Step, error) {
	r, err := gate.ReadRecords(root)
	return Of(r), err
}

// BootFile contains an id that differs for each boot (proc_sys_kernel(5)).
const BootFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the id of the running boot, or "" if the root is not a running machine.
func BootID(root host.Root) (string, error) {
	data, err := host.IfPresent(root.ReadFile(BootFile))
	return strings.TrimSpace(string(data)), err
}
