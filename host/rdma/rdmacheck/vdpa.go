package rdmacheck

import (
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
)

// vdpa names vDPA devices and subfunctions, and never fails.
func (v view) vdpa() []host.Finding {
	if len(v.VDPA)+len(v.Subfunctions) == 0 {
		return checklist.NA("no vDPA devices or subfunctions")
	}
	f := checklist.Pass("vDPA devices and subfunctions: %s", strings.Join(append(append([]string{}, v.VDPA...), v.Subfunctions...), ", "))
	f[0].Effect = "gpustack does not configure them; a guest with a vDPA device has a virtio network, without verbs"
	return f
}
