package check

import (
	"gpustack/host"
)

// nova reports what nova-compute of the machine offers to guests. It is not listed where there is
// nothing to say: without a nova-compute, with one that offers no GPU on a machine that is not
// prepared, and until the boot that gives it the functions.
func (v view) nova() []host.Finding {
	switch {
	case v.phase == pending:
		return nil
	case !v.Nova.Seen():
		return unread(v.Nova)
	}
	return v.Nova.Value
}
