package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// otherNamespaces adds file systems that are mounted in mount namespaces other than that of this
// process, and not in it (mount_namespaces(7), proc_pid_mountinfo(5)). One process of each
// namespace is asked. Users without permission to read a namespace read the table of each process.
func (g *guard) otherNamespaces() error {
	pids, err := host.PIDs(g.root)
	if host.IsAbsent(err) {
		return nil
	}
	if err != nil {
		return g.cause(host.ProcDir, err)
	}
	own, err := g.link("/proc/self/ns", "mnt")
	if err != nil {
		return err
	}
	seen := map[string]bool{own: true}
	named := map[string]bool{} // file systems, by number and source
	for _, pid := range pids {
		namespace, err := g.namespaceOf(pid, "mnt")
		if err != nil {
			return err
		}
		if namespace != "" && seen[namespace] {
			continue
		}
		table, err := g.mountsOf(pid)
		if host.HasEnded(err) || errors.Is(err, unix.EINVAL) { // a zombie has no namespace
			continue
		}
		if err != nil {
			return err
		}
		seen[namespace] = true
		for _, m := range table {
			if err := g.elsewhere(m, pid, named); err != nil {
				return err
			}
		}
	}
	return nil
}

// numberedMount is a mounted file system with the number of its disk, which a name in another
// namespace does not tell.
type numberedMount struct {
	mount
	number string // MAJOR:MINOR
}

// mountsOf returns the file systems on disks that are mounted in the namespace of a process.
func (g *guard) mountsOf(pid int) ([]numberedMount, error) {
	name := host.ProcessFile(pid, "mountinfo")
	data, err := g.root.ReadTable(name)
	if err != nil {
		return nil, g.cause(name, err)
	}
	var table []numberedMount
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		fields, of := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(of) < 3 {
			return nil, fmt.Errorf("%s: not a mount: %q", name, strings.TrimSpace(line))
		}
		m := mount{unescape(of[1]), unescape(fields[4]), of[0], strings.Split(of[2], ",")}
		if m.onDisk() {
			table = append(table, numberedMount{m, fields[2]})
		}
	}
	return table, nil
}

// elsewhere adds a file system that is mounted in the namespace of a process, once.
func (g *guard) elsewhere(m numberedMount, pid int, named map[string]bool) error {
	key := m.number + " " + m.source
	if named[key] {
		return nil
	}
	named[key] = true
	var o origin
	var name string
	var err error
	// File systems of several disks have no number of a disk: their sources name one.
	if strings.HasPrefix(m.number, "0:") {
		name, err = g.block(m.source)
	} else {
		name, err = g.numbered(m.number)
	}
	if err != nil || name != "" && g.carried[name] || m.kind == "zfs" && g.isMounted(m.mount) {
		return err
	}
	if strings.HasPrefix(m.number, "0:") || name == "" {
		o, err = g.originOf(m.mount)
	} else {
		o, err = g.below(name, map[string]bool{})
	}
	if err != nil {
		return err
	}
	of := subject{UseMountNamespace, host.ProcessFile(pid, "mountinfo"), m.String() + " in the mount namespace of " + g.command(pid)}
	if name != "" {
		of.what = node(name) + ", mounted at " + m.place + " in the mount namespace of " + g.command(pid)
	}
	return g.need(o, false, of, nil)
}

// isMounted reports whether a file system is mounted in the process's own namespace too.
func (g *guard) isMounted(m mount) bool {
	return slices.ContainsFunc(g.mounts, func(own mount) bool { return own.kind == m.kind && own.source == m.source })
}

// namespaceOf returns the namespace of a process, or "" if the process has ended or the user may
// not read it (namespaces(7)).
func (g *guard) namespaceOf(pid int, kind string) (string, error) {
	namespace, err := g.link(host.ProcessFile(pid, "ns"), kind)
	if errors.Is(err, unix.EACCES) || host.HasEnded(err) {
		return "", nil
	}
	return namespace, err
}
