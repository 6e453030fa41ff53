package views

import (
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/operate/node"
)

// ContainerCheck is the output of container check (docs/json.md).
type ContainerCheck struct {
	Schema int     `json:"schema"`
	Host   *string `json:"host"`
	// what the checks amount to: "ready", "not ready" or "unknown" only
	Verdict checklist.Verdict `json:"verdict"`
	Passed  bool              `json:"passed"` // whether no check has failed
	// the version of NVIDIA's kernel module that is loaded; null if none is, or if it cannot be
	// read
	Driver   *string        `json:"loaded_driver"`
	Findings []host.Finding `json:"findings"` // at least one of each check
	Warnings []string       `json:"warnings"` // files that cannot be read or parsed
	Next     *host.Next     `json:"next"`     // the next step; null for none
}

// NewContainerCheck returns the report of a check of the machine below root.
func NewContainerCheck(root host.Root, c node.ContainersChecked) ContainerCheck {
	r := ContainerCheck{
		Schema: 1, Host: host.ReadHostname(root), Verdict: c.Verdict, Passed: !host.Failed(c.Findings), Findings: c.Findings, Warnings: c.Warnings,
		Next: nextOf(c.Verdict, host.NewCommand("container check")),
	}
	if loaded := c.Machine.Driver.Value.Loaded; loaded != nil && loaded.Version != "" {
		r.Driver = Optional(string(loaded.Version))
	}
	return r
}

// Checked returns what is printed for people.
func (r ContainerCheck) Checked(*term.UI) Checked {
	c := Checked{Machine: nameOf(r.Host), Verdict: r.Verdict, Findings: r.Findings, Warnings: r.Warnings, Next: r.Next}
	if r.Verdict == checklist.Ready {
		c.Line = "nothing was started: only a container that runs CUDA proves the rest"
	}
	return c
}
