package containerprepare

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/templates"
)

// planToolkit plans the drop-in by which the unit of NVIDIA Container Toolkit, where it is installed,
// writes specs with the GPUs for containers alone, none of a guest and none of the host's. What an
// operator has set stays. Why the specs have other GPUs too is a warning.
func (m Observed) planToolkit(w Want) (c edit.Change, warning string, err error) {
	if !m.Toolkit.Seen() {
		return c, "", m.Toolkit.Err
	}
	t := m.Toolkit.Value
	isGPU := func(f machine.ContainerFunction) bool { return !f.HCA }
	switch every := "so specs of nvidia.com/gpu have every GPU that is bound to NVIDIA's driver"; {
	case t.Refresh == "" || !slices.ContainsFunc(w.Record.Functions, isGPU):
	case t.Limited:
		warning = fmt.Sprintf("%s sets %s already, and is left as it is: it has to name the GPUs for containers only", container.RefreshEnv, container.RefreshKey)
	case t.Version != "" && t.Version.Compare(container.RefreshReads) < 0:
		warning = fmt.Sprintf("NVIDIA Container Toolkit %s does not read %s, %s: %s or later does", t.Version, container.RefreshKey, every, container.RefreshReads)
	case w.Record.Options.Static:
		warning = fmt.Sprintf("with %s no boot lists the GPUs for %s, %s", host.NewCommand("container prepare").Flag("static"), container.RefreshUnit, every)
	default:
		c, err = m.Files.Put(container.RefreshDropIn, []byte(templates.Refresh), 0o644, false)
		c.Purpose = "NVIDIA's specs have the GPUs for containers only"
		return c, "", err
	}
	c, err = m.Files.Remove(container.RefreshDropIn)
	return c, warning, err
}
