package check

import (
	"gpustack/host"
)

// nova reports selected functions that nova-compute of the machine does not offer, and GPUs that it
// offers although a host driver has them; it never fails, and is absent without a nova-compute, and
// if nothing is prepared or offered. Until the boot that gives a nova-compute the functions there
// is nothing to say either.
func (v view) nova() []host.Finding {
	switch {
	case v.phase == pending:
		return nil
	case !v.Nova.Seen():
		return unread(v.Nova)
	}
	return v.Nova.Value
}
