package containercheck

import (
	"errors"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// Toolkit is what NVIDIA Container Toolkit has installed below a root.
type Toolkit struct {
	Refresh string // the path of nvidia-cdi-refresh.service, "" before 1.18.0
	CTK     string // the path of nvidia-ctk, "" if it is not installed
	EnvFile bool   // its configuration, nvidia-cdi-refresh.env, exists
}

const (
	refreshUnit = "nvidia-cdi-refresh.service"
	refreshEnv  = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
	toolkitKind = "nvidia.com/gpu"
)

// readToolkit finds the programs and the unit of NVIDIA Container Toolkit.
func readToolkit(root host.Root) machine.Look[Toolkit] {
	var t Toolkit
	var failed error
	first := func(files ...string) string {
		for _, file := range files {
			ok, err := root.Exists(file)
			failed = errors.Join(failed, err)
			if ok {
				return file
			}
		}
		return ""
	}
	unit, err := root.FindUnit(refreshUnit)
	if err != nil {
		failed = err
	} else {
		t.Refresh = unit
	}
	t.CTK = first("/usr/bin/nvidia-ctk", "/usr/local/bin/nvidia-ctk")
	t.EnvFile = first(refreshEnv) != ""
	return sawFiles("/usr/bin/nvidia-ctk", t, failed)
}

// toolkit shows whether NVIDIA Container Toolkit writes the specs of nvidia.com/gpu, and finds
// those that no program writes again after an upgrade of the driver.
func (v view) toolkit() []host.Finding {
	switch {
	case !v.Toolkit.Seen():
		return checklist.Unread(v.Toolkit.File, v.Toolkit.Err)
	case !v.Specs.Seen():
		return checklist.Unread(v.Specs.File, v.Specs.Err)
	}
	t := v.Toolkit.Value
	var static, dynamic []string
	for _, f := range v.Specs.Value.Files {
		switch {
		case f.Spec == nil || f.Spec.Kind != toolkitKind:
		case strings.HasPrefix(f.Path, "/etc/"):
			static = append(static, f.Path)
		default:
			dynamic = append(dynamic, f.Path)
		}
	}
	switch {
	case t.Refresh != "" && len(dynamic) == 0 && v.Driver.Seen() && v.Driver.Value.Loaded != nil:
		return []host.Finding{{
			Status: host.Warn, File: t.Refresh, Seen: refreshUnit + " is installed, but no spec of " + toolkitKind + " is in /run/cdi",
			Effect: `the unit is disabled or ran before the driver was loaded: "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"`,
			Remedy: "systemctl restart " + refreshUnit + ", and see journalctl -u " + refreshUnit,
		}}
	case t.Refresh != "" && len(static) > 0:
		return []host.Finding{{
			Status: host.Warn, File: static[0], Seen: static[0] + " has the kind " + toolkitKind + ", which " + refreshUnit + " writes to /run/cdi",
			Effect: "its devices are shadowed by those in /run/cdi, and stand in again when that file is missing", Remedy: host.Text("rm " + static[0]),
		}}
	case t.Refresh == "" && len(static)+len(dynamic) > 0:
		file := slices.Concat(static, dynamic)[0]
		return []host.Finding{{
			Status: host.Warn, File: file, Seen: file + " has the kind " + toolkitKind + ", and nothing writes it again: " + refreshUnit + " is not installed",
			Effect: "after the next upgrade of the driver containers do not start, because libraries in it have another version in their names",
			Remedy: host.Textf("run nvidia-ctk cdi generate after each upgrade, install NVIDIA Container Toolkit 1.18 or later, or use %s, whose specs stay right",
				v.prepare()),
		}}
	case t.Refresh != "":
		return checklist.Pass("%s writes the specs of %s", refreshUnit, toolkitKind)
	case t.CTK != "":
		return checklist.Pass("%s is installed and has written no spec", t.CTK)
	}
	return checklist.NA("NVIDIA Container Toolkit is not installed; %s needs none", v.prepare())
}
