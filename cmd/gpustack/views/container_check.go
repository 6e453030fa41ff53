package views

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/operate/node"
)

// ContainerCheck is the output of container check (docs/json.md).
type ContainerCheck struct {
	Check
	// the version of NVIDIA's kernel module that is loaded; null if none is, or if it cannot be
	// read
	Driver string `json:"loaded_driver" null:"zero"`
}

// NewContainerCheck returns the report of a check of the machine below root.
func NewContainerCheck(root host.Root, c node.ContainersChecked) ContainerCheck {
	r := ContainerCheck{
		newCheck("container", host.Value(host.ReadHostname(root)), c.Verdict, c.Findings, c.Warnings),
		string(host.Value(c.Machine.Driver.Value.Loaded).Version),
	}
	if r.Verdict == checklist.Ready {
		r.Line = host.Plain("nothing was started: only a container that runs CUDA proves the rest")
	}
	return r
}
