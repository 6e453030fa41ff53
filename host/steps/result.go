package steps

import (
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"gpustack/host"
	"gpustack/host/pci"
)

// ResultFile is the path of the result of this boot's steps. It ends with the boot, as their
// effects do.
const ResultFile = "/run/gpustack/boot.json"

// Result is the result of the steps of one boot.
type Result struct {
	Schema  int          `json:"schema"`
	BootID  string       `json:"boot_id"`
	Version string       `json:"version"` // of gpustack
	Started time.Time    `json:"started"`
	Ended   *time.Time   `json:"ended"` // nil while the steps run, and after a run that was killed
	Steps   []StepResult `json:"steps"` // in their order
}

// StepResult is the result of one step.
type StepResult struct {
	ID      string       `json:"id"`   // "vfs 0000:0c:00.0", unique
	Kind    string       `json:"kind"` // "vfs", "identity", "driver", …
	Address *pci.Address `json:"address"`
	Needs   []string     `json:"needs"` // ids of steps that must have succeeded
	Status  Status       `json:"status"`
	Error   string       `json:"error"` // "" unless the status is failed or skipped
	Seconds float64      `json:"seconds"`
	// Before is what the first run of this boot found before it changed anything: boot --revert
	// restores it. It is null while nothing was changed.
	Before json.RawMessage `json:"before"`
}

// OfContainers reports whether a step is for what containers are given.
func (s StepResult) OfContainers() bool { return s.Kind == KindNodes || s.Kind == KindCDI }

// HasBefore reports whether the step has changed the machine in this boot, or has begun to.
func (s StepResult) HasBefore() bool {
	return len(s.Before) > 0 && string(s.Before) != "null"
}

// Status is the outcome of a step.
type Status string

// The outcomes. Pending steps were not reached, running ones were being carried out when the
// result was written; of a run that was killed, they stay so.
const (
	Pending   Status = "pending"
	Running   Status = "running"
	Done      Status = "done"
	Unchanged Status = "unchanged" // the machine was so already
	Failed    Status = "failed"
	Skipped   Status = "skipped" // a step that it needs failed, or the kernel has gpustack=off
)

// Made returns the functions that the steps of this boot have changed, or have begun to: VFs are
// gpustack's if they or their physical function are among them.
func Made(root host.Root) ([]pci.Address, error) {
	r, err := ReadResult(root)
	changed := host.Filter(host.Value(r).Steps, func(s StepResult) bool { return s.Address != nil && s.HasBefore() })
	return host.Map(changed, func(s StepResult) pci.Address { return *s.Address }), err
}

// ReadResult returns the result of this boot's steps, or nil if none ran: the file may be of another
// boot in a copy of a machine, or where /run did not end with its boot.
func ReadResult(root host.Root) (*Result, error) {
	data, err := root.ReadFile(ResultFile)
	if host.IsAbsent(err) {
		return nil, nil
	}
	var r Result
	if err == nil {
		err = host.DecodeSchema(ResultFile, "", data, &r)
	}
	switch {
	case err == nil:
		id, err := BootID(root)
		if id != "" && id != r.BootID {
			return nil, err
		}
		return &r, err
	case errors.Is(err, fs.ErrPermission):
		return nil, host.OfFile(ResultFile, err)
	}
	return nil, host.WithHint(host.OfFile(ResultFile, err),
		"reboot: the file ends with the boot; without it, what this boot has made cannot be reverted")
}
