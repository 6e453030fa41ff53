package containerprepare

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/machine"
)

// NVIDIA Container Toolkit since 1.18.0 writes the specs of nvidia.com/gpu itself, by a unit that
// reads an environment file.
const (
	refreshUnit = "nvidia-cdi-refresh.service"
	refreshEnv  = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
	refreshKey  = "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS"
	refreshMark = "# Written by gpustack container prepare: only the GPUs that are for containers."
)

// readRefreshes reports whether that unit is installed.
func readRefreshes(root host.Root) machine.Look[bool] {
	unit, err := root.FindUnit(refreshUnit)
	if err != nil {
		return machine.Saw(unit, false, err)
	}
	return machine.Saw(refreshUnit, unit != "", nil)
}

// planToolkit plans the environment file of NVIDIA Container Toolkit, where its unit is installed:
// its specs have only the GPUs that are for containers, none of a guest and none of the host's.
// Other lines of the file stay, and so does a value that an operator has set, which is a warning.
func (m Machine) planToolkit(w Want) (plan edit.Plan, warning string, err error) {
	installed := m.Refreshes.Value
	if !m.Refreshes.Seen() {
		return nil, "", m.Refreshes.Err
	}
	before, err := m.Files.Read(refreshEnv)
	if err != nil {
		return nil, "", err
	}
	var data []byte
	if before != nil {
		data = before.Content
	}
	var kept []string
	others, ours, marked := false, false, false
	for line := range strings.Lines(string(data)) {
		sets := strings.HasPrefix(strings.TrimSpace(line), refreshKey+"=")
		switch {
		case strings.TrimSpace(line) == refreshMark:
			ours, marked = true, true
			continue
		case sets && marked: // only the line below the mark is ours
			marked = false
			continue
		case sets:
			others = true
		}
		marked = false
		kept = append(kept, line)
	}
	var ids, without []string
	for _, f := range w.Record.Functions {
		gpu := m.Driver.GPU(f.Address)
		switch {
		case f.HCA:
		case gpu == nil || gpu.UUID == nil:
			without = append(without, f.Address.String())
		default:
			ids = append(ids, *gpu.UUID)
		}
	}
	if others {
		if installed && len(ids) > 0 {
			warning = fmt.Sprintf("%s sets %s already, and is left as it is: it has to name the GPUs for containers only", refreshEnv, refreshKey)
		}
		return nil, warning, nil
	}
	switch {
	case !installed || len(without) == 0:
	case len(ids) == 0: // an empty list would name every GPU
		return nil, fmt.Sprintf("%s is left as it is: the driver does not show the UUID of %s", refreshEnv, strings.Join(without, ", ")), nil
	default:
		warning = fmt.Sprintf("%s lacks %s: the driver does not show the UUID", refreshEnv, strings.Join(without, ", "))
	}
	if installed && len(ids) > 0 {
		slices.Sort(ids)
		if n := len(kept); n > 0 && !strings.HasSuffix(kept[n-1], "\n") {
			kept[n-1] += "\n"
		}
		kept = append(kept, refreshMark+"\n", refreshKey+"="+strings.Join(ids, ",")+"\n")
	}
	var c edit.Change
	if text := strings.Join(kept, ""); text == "" && (before == nil || ours) {
		c, err = m.Files.Remove(refreshEnv)
	} else {
		c, err = m.Files.Put(refreshEnv, []byte(text), 0o644, false)
	}
	return edit.Plan{c}, warning, err
}
