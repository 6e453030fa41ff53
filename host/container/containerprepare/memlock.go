package containerprepare

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"gpustack/host"
	"gpustack/host/docker"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/host/memlock"
	"gpustack/templates"
)

// memlockFile is the drop-in of a service whose containers may lock any amount of memory, by which
// RDMA programs register their buffers. It sorts after override.conf, which "systemctl edit"
// writes: of several files the last one counts (systemd.unit(5)).
func memlockFile(unit string) string {
	return path.Join("/etc/systemd/system", unit+".d", "zz-gpustack-memlock.conf")
}

// memlockFiles returns the drop-ins of all services.
func memlockFiles() (files []string) {
	return host.Map(memlock.Services(), memlockFile)
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
		if wanted && limited && overrides(limits.Units[at]) {
			s := *limits.Units[at].Limit
			limited = false
			warnings = append(warnings,
				fmt.Sprintf("%s limits the locked memory of %s to %d bytes, which overrides a drop-in of gpustack: "+
					"change or remove it, then run %s again", place(s), unit, s.Bytes, host.NewCommand("container prepare")))
		}
		c, err := m.Files.Remove(memlockFile(unit))
		if err == nil && wanted && limited {
			c, err = m.Files.Put(memlockFile(unit), []byte(templates.Memlock), 0o644, false)
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

// overrides reports whether the limit of a service holds in spite of gpustack's drop-in: that of
// docker's configuration, or a drop-in that is read later.
func overrides(u memlock.UnitLimit) bool {
	if u.Limit == nil {
		return false
	}
	dir, name := path.Split(u.Limit.File)
	ofUnit := slices.Contains([]string{u.Unit + ".d", "service.d"}, path.Base(dir))
	return u.Limit.File == docker.ConfFile || ofUnit && name > path.Base(memlockFile(u.Unit))
}

// place names where a limit is set: its line, where the file has lines.
func place(s memlock.Setting) string {
	if s.Line == 0 {
		return s.File
	}
	return fmt.Sprintf("%s:%d", s.File, s.Line)
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
