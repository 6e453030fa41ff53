package guard

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// otherNamespaces adds file systems that are mounted in mount namespaces other than that of this
// process, and not in it (mount_namespaces(7), proc_pid_mountinfo(5)).
func (g *guard) otherNamespaces() error {
	own, err := g.link("/proc/self/ns", "mnt")
	if err != nil {
		return err
	}
	tables := map[int][]numberedMount{} // by process
	var pids []int
	err = g.eachNamespace(own, func(pid int) error {
		table, err := g.mountsOf(pid)
		if err == nil {
			tables[pid], pids = table, append(pids, pid)
		}
		return err
	})
	if err != nil {
		return err
	}
	named := map[string]bool{} // file systems, by number and source
	for _, pid := range pids {
		for _, m := range tables[pid] {
			if err := g.elsewhere(m, pid, named); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachNamespace calls read for one process of each mount namespace, but not of own. If the process
// ends before it is read, read is called for the next one in its namespace.
func (g *guard) eachNamespace(own string, read func(pid int) error) error {
	pids, err := host.PIDs(g.root)
	if host.IsAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	seen := map[string]bool{own: own != "", g.firstMount("/proc/self/mountinfo"): true}
	for _, pid := range pids {
		namespace, err := g.namespaceOf(pid)
		if err == nil && namespace != "" && seen[namespace] {
			continue
		}
		ended, err := host.ReadThreads(g.root, pid, func(thread int) error {
			if thread == pid && err != nil {
				return err
			}
			return read(thread)
		})
		if err != nil {
			return err
		}
		seen[namespace] = seen[namespace] || !ended
	}
	return nil
}

// numberedMount is a mounted file system with the number of its disk, which a name in another
// namespace does not tell.
type numberedMount struct {
	mount
	number string // MAJOR:MINOR
}

// hasDisk reports whether the number is that of a disk. A file system may be on one whatever its
// source: that is the name with which it was mounted, in the folder of that program. File systems
// of several disks have no such number: their sources name one.
func (m numberedMount) hasDisk() bool { return !strings.HasPrefix(m.number, "0:") }

// mountsOf returns the file systems on disks that are mounted in the namespace of a process.
func (g *guard) mountsOf(pid int) ([]numberedMount, error) {
	name := host.ProcessFile(pid, "mountinfo")
	data, err := g.root.ReadTable(name)
	if err != nil {
		return nil, err
	}
	mounts, err := host.ParseMountInfo(string(data))
	var table []numberedMount
	for _, m := range mounts {
		if of := (numberedMount{mount{m.Source, m.Place, m.Kind, m.Options}, m.Number}); of.hasDisk() || of.onDisk() {
			table = append(table, of)
		}
	}
	return table, host.OfFile(name, err)
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
	if m.hasDisk() {
		name, err = g.numbered(m.number)
	} else {
		name, err = g.block(m.source)
	}
	if err != nil || name != "" && g.carried[name] || m.kind == "zfs" && g.isMounted(m.mount) {
		return err
	}
	if !m.hasDisk() || name == "" {
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

// namespaceOf returns what identifies the mount namespace of a process: its link (namespaces(7)),
// or the first mount in it if the user may not read the link. Else a user without permission would
// read the same mounts again for each process. It returns "" if the process has ended.
func (g *guard) namespaceOf(pid int) (string, error) {
	namespace, err := g.link(host.ProcessFile(pid, "ns"), "mnt")
	if errors.Is(err, unix.EACCES) || host.HasEnded(err) {
		namespace, err = "", nil
	}
	if namespace == "" && err == nil {
		namespace = g.firstMount(host.ProcessFile(pid, "mountinfo"))
	}
	return namespace, err
}

// firstMount returns the number of the first mount in a file of mounts, or "". No other mount of
// the machine has the number, and each mount is in one namespace (Linux, struct mount).
func (g *guard) firstMount(name string) string {
	head, err := g.root.ReadHead(name, 16)
	if err != nil {
		return "" // the caller reads the whole file and gets the error too
	}
	number, _, ok := strings.Cut(string(head), " ")
	if !ok {
		return ""
	}
	return number
}
