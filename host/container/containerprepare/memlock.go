package containerprepare

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/host/memlock"
	"gpustack/templates"
)

// memlockFiles returns the drop-ins of all services.
func memlockFiles() (files []string) {
	return host.Map(memlock.Services(), memlock.DropIn)
}

// planMemlock plans the drop-ins of the installed services that start containers or jobs: one for
// each that has a limit of its own or systemd's, while an adapter is for containers, and else none.
// restart are the services that take them at their next start. A limit that overrides a drop-in is
// a warning, and the drop-in is not planned.
//
// podman has no such file: its default_ulimits hold for rootless containers too, which then do not
// start, because an ordinary user cannot raise the limit (setrlimit(2)).
func (m Observed) planMemlock(record machine.Containers) (plan edit.Changes, restart, warnings []string, err error) {
	wanted := slices.ContainsFunc(record.Functions, func(f machine.ContainerFunction) bool { return f.HCA })
	limits := m.Limits
	if wanted && len(limits.Errs) > 0 {
		return nil, nil, nil, errors.Join(limits.Errs...)
	}
	for _, unit := range memlock.Services() {
		at := slices.IndexFunc(limits.Units, func(u memlock.UnitLimit) bool { return u.Unit == unit })
		limited := at >= 0 && (limits.Units[at].Limit == nil || limits.Units[at].Limit.Bytes != memlock.Unlimited)
		if wanted && limited && limits.Units[at].Overrides() {
			s := *limits.Units[at].Limit
			limited = false
			warnings = append(warnings,
				fmt.Sprintf("%s limits the locked memory of %s to %d bytes, which overrides a drop-in of gpustack: "+
					"change or remove it, then run %s again", s.Place(), unit, s.Bytes, host.NewCommand("container prepare")))
		}
		c, err := m.Files.Remove(memlock.DropIn(unit))
		if err == nil && wanted && limited {
			c, err = m.Files.Put(memlock.DropIn(unit), []byte(templates.Memlock), 0o644, false)
			c.Purpose = "permits locked memory"
		}
		if err != nil {
			return nil, nil, nil, err
		}
		if plan = append(plan, c); c.Action() != edit.None {
			restart = append(restart, unit)
		}
	}
	return plan, restart, warnings, nil
}

// memlockNote says what the drop-ins need to take effect, which gpustack leaves to the operator: a
// restart ends containers, and systemctl daemon-reload takes GPUs from running ones where the
// runtime uses the systemd cgroup driver without links in /dev/char (NVIDIA Container Toolkit,
// issue 48).
func memlockNote(restart []string) string {
	isOrAre := " are"
	if len(restart) == 1 {
		isOrAre = " is"
	}
	return fmt.Sprintf("the limit of locked memory holds once %s restarted, after systemctl daemon-reload: '%s' says before (cgroups) "+
		"whether running containers lose GPUs by that", host.Listed(restart, "and")+isOrAre, host.NewCommand("container check"))
}
