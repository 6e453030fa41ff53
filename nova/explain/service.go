package explain

import (
	"gpustack/host"
)

// service judges nova-compute of a host.
func (j *judge) service(h Host) Judged {
	result := Judged{Link: Service, From: "compute services"}
	s := h.Service
	if s == nil {
		why, known := j.facts.Unread[Services]
		switch {
		case known:
			result.From = ""
			result.notChecked(why, host.Plain("use an administrator's credentials"))
		default:
			result.fail("has no nova-compute", "Nova has no nova-compute service of the host", host.Textf("start nova-compute on %s; "+
				"if it runs: nova-manage cell_v2 discover_hosts", h.Name))
		}
		return result
	}
	switch {
	case s.ForcedDown:
		result.fail("is forced down", "nova-compute is forced down", host.Textf("if the host is well: openstack compute service set --up %s nova-compute", h.Name))
	case !s.Up:
		result.fail("is down", "nova-compute does not report", host.Textf("on %s: %s, and journalctl -u nova-compute", h.Name,
			host.NewCommand("host check").Elsewhere()))
	case !s.Enabled:
		seen := "nova-compute is disabled"
		if s.Reason != "" {
			seen += ": " + s.Reason
		}
		result.fail("is disabled", seen, host.Textf("openstack compute service set --enable %s nova-compute", h.Name))
	default:
		result.Status, result.Seen = Pass, "nova-compute is up and enabled"
	}
	return result
}
