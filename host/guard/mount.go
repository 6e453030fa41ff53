package guard

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// mount is a mounted file system (proc_pid_mounts(5)).
type mount struct {
	source, place, kind string
	options             []string // as the kernel writes them: a comma in a value is \054
}

func (m mount) String() string {
	return cmp.Or(m.source, m.kind) + ", mounted at " + m.place
}

// values returns all values of a mount option, unescaped.
func (m mount) values(key string) []string {
	var values []string
	for _, o := range m.options {
		if k, value, ok := strings.Cut(o, "="); ok && k == key {
			values = append(values, host.UnescapeOctal(value))
		}
	}
	return values
}

// overNetwork are file system types whose mounts do not name all servers that have the data. A
// source of IBM Storage Scale is named /dev/gpfs0.
var overNetwork = []string{
	"ceph", "fuse.ceph", "fuse.ceph-fuse", "glusterfs", "fuse.glusterfs", "lustre", "gpfs", "beegfs", "afs",
}

// onDisk reports whether a file system lies on block devices.
func (m mount) onDisk() bool {
	if slices.Contains(overNetwork, m.kind) {
		return false
	}
	return m.kind == "zfs" || m.kind == "btrfs" || strings.HasPrefix(m.source, "/dev/") && m.source != "/dev/fuse"
}

// inMemory reports whether a file system is in memory or, as an automount point, has no content.
// It knows the types that can be mounted at the directories that the host needs.
func (m mount) inMemory() bool {
	return slices.Contains([]string{"autofs", "ramfs", "rootfs", "tmpfs"}, m.kind)
}

// isLocal reports whether a file system can be read without waiting for a server and without
// triggering an automount.
func (m mount) isLocal() bool {
	return m.onDisk() || m.kind == "overlay" || m.inMemory() && m.kind != "autofs"
}

// above reports whether a file is below the mount point of m.
func (m mount) above(name string) bool {
	return m.place == "/" || name == m.place || strings.HasPrefix(name, m.place+"/")
}

// mountsFile shows the file systems of the process's own mount namespace.
const mountsFile = "/proc/mounts"

// mounted returns what depends on the disk of a mounted file system.
func mounted(m mount) subject {
	return subject{UseMount, mountsFile, m.String()}
}

func (g *guard) readMounts() error {
	data, err := g.root.ReadTable(mountsFile)
	if host.IsAbsent(err) {
		return nil
	}
	mounts, parseErr := host.ParseMounts(string(data))
	for _, m := range mounts {
		g.mounts = append(g.mounts, mount{m.Source, m.Place, m.Kind, m.Options})
	}
	return host.OfFile(mountsFile, cmp.Or(err, parseErr))
}

// mountOf returns the index of the file system that a file lies on, or -1: the one with the
// deepest mount point, and of several there the one mounted last.
func (g *guard) mountOf(name string) int {
	found := -1
	for i, m := range g.mounts {
		if m.above(name) && (found < 0 || len(m.place) >= len(g.mounts[found].place)) {
			found = i
		}
	}
	return found
}

// fileSystems adds the needs of mounted file systems: of every one on block devices, and of others
// where the host or nova-compute needs them. File systems at /, at /usr and at or below /boot are
// absolute needs.
func (g *guard) fileSystems() error {
	for i, m := range g.mounts {
		if m.onDisk() {
			if err := g.fileSystem(i, false, mounted(m), nil); err != nil {
				return err
			}
		}
	}
	const boot = "/boot"
	absolute := []string{"/", "/usr", boot}
	for _, name := range slices.Concat(absolute, []string{"/var", "/home", g.instances()}) {
		resolved, err := g.follow(name)
		// Only root and nova can read nova-compute's directory in most distributions. For other
		// users, the file system of the last directory that they can read counts.
		if err != nil && (slices.Contains(absolute, name) || !errors.Is(err, unix.EACCES)) {
			return err
		}
		held := g.mountOf(resolved)
		for i, m := range g.mounts {
			if i == held || m.place == resolved || name == boot && strings.HasPrefix(m.place, resolved+"/") {
				if err := g.fileSystem(i, slices.Contains(absolute, name), mounted(m), nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// fileSystem adds the needs of the mounted file system with index i. above are the indexes of the
// file systems that lie on it.
func (g *guard) fileSystem(i int, absolute bool, of subject, above []int) error {
	m := g.mounts[i]
	key := m.kind + " " + m.source
	o, ok := g.origins[key]
	if !ok || !m.onDisk() {
		var err error
		if o, err = g.originOf(m); err != nil {
			return err
		}
		g.origins[key] = o
	}
	return g.need(o, absolute, of, append(slices.Clone(above), i))
}

// originOf returns the origin of a mounted file system.
func (g *guard) originOf(m mount) (origin, error) {
	switch {
	case m.kind == "zfs":
		return g.zfsMembers()
	case m.kind == "btrfs":
		return g.btrfs(m.source)
	case m.onDisk():
		o, err := g.disk(m.source)
		// Further devices of XFS (Linux, fs/xfs/xfs_super.c).
		for _, dev := range slices.Concat(m.values("logdev"), m.values("rtdev")) {
			more, moreErr := g.disk(dev)
			o.join(more)
			err = errors.Join(err, moreErr)
		}
		return o, err
	case slices.Contains(overNetwork, m.kind):
		return origin{servers: []server{{}}}, nil
	case m.inMemory():
		return origin{}, nil
	}
	switch m.kind {
	case "overlay":
		return origin{places: layers(m)}, nil
	case "nfs", "nfs4", "cifs", "smb3": // fs/nfs/super.c, fs/smb/client/cifsfs.c
		return origin{servers: serversOf(slices.Concat(m.values("addr"), m.values("ip")))}, nil
	case "9p":
		switch transport := m.values("trans"); { // net/9p/client.c
		case slices.Contains(transport, "virtio"):
			return g.virtio("9pnet_virtio")
		case slices.Contains(transport, "tcp"), slices.Contains(transport, "rdma"):
			return origin{servers: serversOf([]string{m.source})}, nil
		}
	case "virtiofs":
		return g.virtio("virtiofs")
	}
	return anywhere(), nil
}

// serversOf parses the addresses of servers. Without an address it returns one server that is not
// determined.
func serversOf(addresses []string) []server {
	if len(addresses) == 0 {
		return []server{{}}
	}
	var servers []server
	for _, a := range addresses {
		servers = append(servers, parseServer(a))
	}
	return servers
}

// virtio returns the functions of all devices that are bound to a virtio driver.
func (g *guard) virtio(driver string) (origin, error) {
	dir := path.Join("/sys/bus/virtio/drivers", driver)
	names, err := g.list(dir)
	if err != nil {
		return origin{}, err
	}
	var o origin
	for _, name := range names {
		target, err := g.device(dir, name)
		if err != nil {
			return origin{}, err
		}
		functions, err := g.functions(target)
		if err != nil {
			return origin{}, err
		}
		o.functions = append(o.functions, functions...)
	}
	if len(o.functions) == 0 {
		return anywhere(), nil
	}
	return o, nil
}

// layers returns the directories of an overlay. lowerdir lists several, separated by colons; \: is
// a colon in a name (Linux, Documentation/filesystems/overlayfs.rst and fs/overlayfs/params.c).
func layers(m mount) []place {
	var folders []string
	for _, value := range m.values("lowerdir") {
		const colon = "\x00"
		for folder := range strings.SplitSeq(strings.ReplaceAll(value, `\:`, colon), ":") {
			if folder != "" { // two colons precede data-only layers
				folders = append(folders, strings.ReplaceAll(folder, colon, ":"))
			}
		}
	}
	folders = slices.Concat(folders, m.values("lowerdir+"), m.values("datadir+"), m.values("upperdir"))
	var places []place
	for _, folder := range folders {
		if !path.IsAbs(folder) {
			folder = "" // relative to the unknown working directory of the mounting program
		}
		places = append(places, place{"layer", folder})
	}
	return places
}

// need adds the functions of an origin, with what depends on it, such as a file system or swap, in
// their reasons. above are the indexes of the file systems that lie on the origin.
func (g *guard) need(o origin, absolute bool, of subject, above []int) error {
	g.add(host.CodeDisk, o.functions, absolute, "carries ", of, "")
	if o.unknown {
		g.add(host.CodeDisk, g.storage(), absolute, "may carry ", of, ": its disk is not determined")
	}
	for _, s := range o.servers {
		if err := g.served(s, absolute, of); err != nil {
			return err
		}
	}
	for _, p := range o.places {
		part := "a " + p.kind + " of " + of.what
		if p.name != "" {
			part = "the " + p.kind + " " + p.name + " of " + of.what
		}
		if err := g.file(p.name, absolute, of.named(part), above); err != nil {
			return err
		}
	}
	return nil
}

// file adds the functions that a file depends on. For a file on a disk it adds them only if they
// are absolute: fileSystems has added the other needs of that disk. If the file's path leads to
// one of the file systems above, an initramfs mounted it from a file system that is hidden now,
// and the origin is unknown.
func (g *guard) file(name string, absolute bool, of subject, above []int) error {
	if len(g.mounts) == 0 {
		return nil // callers warn that no mounts are known
	}
	held := -1
	if name != "" {
		held = g.mountOf(name)
	}
	// Linux allows fewer stacked file systems (FILESYSTEM_MAX_STACK_DEPTH in include/linux/fs.h).
	const deepest = 8
	if held < 0 || slices.Contains(above, held) || len(above) > deepest {
		return g.need(anywhere(), absolute, of, above)
	}
	if g.mounts[held].onDisk() && !absolute {
		return nil
	}
	return g.fileSystem(held, absolute, of, above)
}

// swaps adds the needs of swap areas and swap files (proc_swaps(5)).
func (g *guard) swaps() error {
	const table = "/proc/swaps"
	swaps, err := g.lines(table)
	if err != nil {
		return err
	}
	for _, s := range swaps[min(1, len(swaps)):] {
		name := host.UnescapeOctal(s[0])
		if !strings.HasPrefix(name, "/dev/") {
			if err := g.file(name, false, subject{UseSwap, table, "the swap file " + name}, nil); err != nil {
				return err
			}
			continue
		}
		o, err := g.disk(name)
		if err != nil {
			return err
		}
		if err := g.need(o, false, subject{UseSwap, table, "the swap area " + name}, nil); err != nil {
			return err
		}
	}
	return nil
}

// follow resolves the symbolic links in a name. It stops at network file systems, because reading
// them may block for as long as their server is down.
func (g *guard) follow(name string) (string, error) {
	for range 40 { // Linux, MAXSYMLINKS in include/linux/namei.h
		next, err := g.followOnce(name)
		if err != nil || next == name {
			return name, err
		}
		name = next
	}
	return name, nil
}

func (g *guard) followOnce(name string) (string, error) {
	elements := strings.Split(name, "/")
	for i := 2; i <= len(elements); i++ {
		at := strings.Join(elements[:i], "/")
		if held := g.mountOf(at); held >= 0 && !g.mounts[held].isLocal() {
			return name, nil
		}
		dir, err := g.root.OpenDir(path.Dir(at))
		if err != nil {
			if host.IsAbsent(err) || errors.Is(err, unix.ENOTDIR) {
				return name, nil
			}
			return name, err
		}
		target, err := dir.Readlink(path.Base(at))
		dir.Close() //nolint:errcheck // only read from
		switch {
		case errors.Is(err, unix.EINVAL):
			continue // not a link
		case host.IsAbsent(err):
			return name, nil
		case err != nil:
			return name, host.OfFile(at, err)
		case !path.IsAbs(target):
			target = path.Join(path.Dir(at), target)
		}
		return path.Join(target, strings.Join(elements[i:], "/")), nil
	}
	return name, nil
}

// instances returns the directory of guests' disks: instances_path of nova.conf, by default
// $state_path/instances (nova/conf/compute.py, nova/conf/paths.py). If nova.conf cannot be read,
// or the value refers to other options, it returns the default.
func (g *guard) instances() string {
	state, instances, section := "/var/lib/nova", "", ""
	for line := range strings.Lines(g.novaConf()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section != "[DEFAULT]" {
			continue
		}
		switch strings.TrimSpace(key) {
		case "state_path":
			state = strings.TrimSpace(value)
		case "instances_path":
			instances = strings.TrimSpace(value)
		}
	}
	name := strings.ReplaceAll(instances, "$state_path", state)
	if !path.IsAbs(name) || strings.Contains(name, "$") {
		name = path.Join(state, "instances")
	}
	if !path.IsAbs(name) || strings.Contains(name, "$") {
		name = "/var/lib/nova/instances"
	}
	return path.Clean(name)
}

// novaConf returns the content of nova.conf, or "" if it cannot be read: only root and nova can.
func (g *guard) novaConf() string {
	data, err := g.root.ReadFile("/etc/nova/nova.conf")
	if err != nil {
		return ""
	}
	return string(data)
}
