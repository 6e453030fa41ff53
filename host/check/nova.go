package check

import (
	"gpustack/host"
)

// nova reports selected functions that nova-compute of the machine does not offer, and GPUs that it
// offers although a host driver has them; it never fails, and is absent without a nova-compute, and
// if nothing is prepared or offered.
func (v view) nova() []host.Finding {
	if !v.Nova.Seen() {
		return unread(v.Nova)
	}
	return v.Nova.Value
}
