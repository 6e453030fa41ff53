package rdmacheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/memlock"
	"gpustack/host/rdma"
)

// enough is the locked memory below which a check warns: a job registers all buffers that it sends
// from.
const enough = 64 << 20

// memlock finds container and batch services, and users, whose processes may lock too little memory
// for RDMA.
func (v view) memlock() []host.Finding {
	if v.Stack.Seen() && !slices.ContainsFunc(v.Stack.Value.Adapters, usable) {
		return checklist.NA("no adapter that processes of this host can use")
	}
	findings := host.Map(v.Limits.Errs, func(err error) host.Finding { return host.Finding{Status: host.NA, Seen: err.Error()} })
	const effect = `registering memory fails: "RLIMIT_MEMLOCK is 16384 bytes. This will severely limit memory registrations." ` +
		`(root is not warned), then "Couldn't register MR"`
	checked := 0
	for _, u := range v.Limits.Units {
		checked++
		f := host.Finding{Status: host.Warn, File: u.File, Effect: effect, Remedy: host.Textf(
			"mkdir -p /etc/systemd/system/%[1]s.d && printf '[Service]\\nLimitMEMLOCK=infinity\\n' > /etc/systemd/system/%[1]s.d/zz-memlock.conf && "+
				"systemctl daemon-reload && systemctl restart %[1]s; for one container: --ulimit memlock=-1", u.Unit)}
		switch {
		case u.Limit == nil:
			f.Seen = u.Unit + " sets no LimitMEMLOCK: systemd's default is 8 MiB or less"
		case u.Limit.Bytes < enough:
			f.File, f.Line = u.Limit.File, u.Limit.Line
			f.Seen = fmt.Sprintf("%s may lock %s of memory", u.Unit, size(u.Limit.Bytes))
			if u.Overrides() {
				f.Remedy = host.Textf("change or remove the limit in %s, then: systemctl daemon-reload && systemctl restart %s", u.Limit.Place(), u.Unit)
			}
		default:
			continue
		}
		findings = append(findings, f)
	}
	for _, d := range v.Limits.Domains {
		checked++
		if d.Bytes >= enough {
			continue
		}
		findings = append(findings, host.Finding{
			Status: host.Warn, File: d.File, Line: d.Line, Seen: fmt.Sprintf("processes of %s may lock %s of memory", d.Domain, size(d.Bytes)), Effect: effect,
			Remedy: host.Textf("printf '%%s soft memlock unlimited\\n%%s hard memlock unlimited\\n' '%[1]s' '%[1]s' >> %s/zz-rdma.conf, then log in again",
				d.Domain, memlock.UsersDir),
		})
	}
	if !slices.ContainsFunc(v.Limits.Domains, func(d memlock.UserLimit) bool { return d.Domain == "*" }) {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: memlock.UsersFile, Seen: "users have no memlock limit of their own: the kernel's default is 8 MiB, before 5.16 64 KiB", Effect: effect,
			Remedy: host.Textf("printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' >> %s/zz-rdma.conf, then log in again", memlock.UsersDir),
		})
	}
	return checklist.OrPass(findings, "%s with at least %s", host.Numbered(checked, "limit"), size(enough))
}

// size returns a number of bytes in the largest unit of which it is a multiple.
func size(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for n >= 1024 && n%1024 == 0 && unit < len(units)-1 {
		n /= 1024
		unit++
	}
	return fmt.Sprintf("%d %s", n, units[unit])
}

// usable reports whether processes of the host can open an adapter.
func usable(a rdma.Adapter) bool {
	return a.Verbs != nil
}
