package containercheck

import (
	"path"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
)

const toolkitKind = "nvidia.com/gpu"

// toolkit shows whether NVIDIA Container Toolkit writes the specs of nvidia.com/gpu, and finds
// those that no program writes again after an upgrade of the driver.
func (v view) toolkit() []host.Finding {
	switch {
	case !v.Toolkit.Seen():
		return checklist.Unread(v.Toolkit.File, v.Toolkit.Err)
	}
	t := v.Toolkit.Value
	var written, others []string
	for _, f := range v.Specs.Files {
		switch {
		case f.Spec == nil || f.Spec.Kind != toolkitKind:
		case t.Refresh != "" && (f.Path == t.Output || path.Dir(t.Output) == path.Dir(f.Path)):
			written = append(written, f.Path)
		default:
			others = append(others, f.Path)
		}
	}
	switch {
	case t.Refresh != "" && len(written) == 0 && v.Driver.Seen() && v.Driver.Value.Loaded != nil:
		return []host.Finding{{
			Status: host.Warn, File: t.Refresh, Seen: container.RefreshUnit + " is installed, and " + t.Output + ", which it writes, is missing",
			Effect: `the unit is disabled or ran before the driver was loaded: "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"`,
			Remedy: host.Plain("systemctl restart " + container.RefreshUnit + ", and see journalctl -u " + container.RefreshUnit),
		}}
	case t.Refresh != "" && len(others) > 0:
		return []host.Finding{{
			Status: host.Warn, File: others[0],
			Seen:   others[0] + " has the kind " + toolkitKind + ", which " + container.RefreshUnit + " writes to " + t.Output,
			Effect: "of two files runtimes use one, or neither; the other stands in when that is missing", Remedy: host.Plain("rm " + others[0]),
		}}
	case t.Refresh == "" && len(others) > 0:
		return []host.Finding{{
			Status: host.Warn, File: others[0], Seen: others[0] + " has the kind " + toolkitKind + ", and nothing writes it again: " + container.RefreshUnit + " is not installed",
			Effect: "after the next upgrade of the driver containers do not start, because libraries in it have another version in their names",
			Remedy: host.Textf("run nvidia-ctk cdi generate after each upgrade, install NVIDIA Container Toolkit 1.18 or later, or use %s, whose specs stay right",
				v.prepare()),
		}}
	case t.Refresh != "":
		return checklist.Pass("%s writes the specs of %s", container.RefreshUnit, toolkitKind)
	}
	return checklist.NA("no unit of NVIDIA Container Toolkit writes specs; %s needs none", v.prepare())
}
