package views

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/operate/node"
)

// ContainerCheck is the output of container check (docs/json.md).
type ContainerCheck struct {
	Schema   int               `json:"schema"`
	Host     *string           `json:"host"`
	Verdict  checklist.Verdict `json:"verdict"`
	Passed   bool              `json:"passed"`
	Driver   *string           `json:"loaded_driver"`
	Findings []host.Finding    `json:"findings"`
	Warnings []string          `json:"warnings"`
}

// NewContainerCheck returns the report of a check of the machine below root.
func NewContainerCheck(root host.Root, c node.ContainersChecked) ContainerCheck {
	r := ContainerCheck{
		Schema: 1, Host: host.ReadHostname(root), Verdict: c.Verdict, Passed: !host.Failed(c.Findings), Findings: c.Findings, Warnings: c.Warnings,
	}
	if loaded := c.Machine.Driver.Value.Loaded; loaded != nil && loaded.Version != "" {
		r.Driver = Optional(string(loaded.Version))
	}
	return r
}

// Checked returns what is printed for people. line returns a command as it is to be run.
func (r ContainerCheck) Checked(line func(host.Command) string) Checked {
	c := Checked{
		Machine: nameOf(r.Host), Verdict: r.Verdict, Findings: r.Findings, Warnings: r.Warnings,
		Check: line(host.NewCommand("container check")),
	}
	if r.Verdict == checklist.Ready {
		c.Next = "nothing was started: only a container that runs CUDA proves the rest"
	}
	return c
}
