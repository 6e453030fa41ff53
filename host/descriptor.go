package host

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Descriptor is an open file of a process.
type Descriptor struct {
	// Name is the target of the descriptor's link: the name that the file has for the process, such
	// as "/dev/xvdc (deleted)", or of another file "socket:[7]".
	Name string
	// Node is the kernel's name of a device node, such as "/dev/nvme0n1", whatever the name is by
	// which a container or a pod has it. It is "" for other files, for nodes of which the kernel
	// shows no name, and below a root without a running kernel.
	Node string
}

// File returns the kernel's name of a device node where that is known, and otherwise the name that
// the file has for the process.
func (d Descriptor) File() string {
	if d.Node != "" {
		return d.Node
	}
	return strings.TrimSuffix(d.Name, " (deleted)")
}

// As returns the name of a device node for the process, if it differs from the kernel's.
func (d Descriptor) As() string {
	if name := strings.TrimSuffix(d.Name, " (deleted)"); name != d.File() {
		return name
	}
	return ""
}

// String returns the kernel's name of a device node and, in parentheses, that for the process.
func (d Descriptor) String() string {
	if as := d.As(); as != "" {
		return d.File() + " (as " + as + ")"
	}
	return d.File()
}

// Descriptors returns the open files of a process (proc_pid_fd(5)), each once. A descriptor that is
// closed meanwhile is left out. An error names the file; HasEnded reports whether it says that the
// process has ended, or its first thread, for which see [ReadThreads]. Files read before the error
// are returned with it.
func Descriptors(root Root, pid int) (files []Descriptor, err error) {
	name := ProcessFile(pid, "fd")
	numbers, err := root.ReadDir(name)
	if err != nil {
		return nil, err
	}
	if len(numbers) == 0 {
		return nil, emptyBecauseEnded(root, pid, name)
	}
	dir, err := root.OpenDir(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // only read from
	seen := map[Descriptor]bool{}
	var system unix.Statfs_t
	if err := unix.Fstatfs(dir.fd, &system); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	nodes := nodes{dir: dir, live: system.Type == unix.PROC_SUPER_MAGIC, known: map[device]string{}}
	for _, number := range numbers {
		d, err := nodes.descriptor(number)
		switch {
		case err == nil && !seen[d]:
			seen[d] = true
			files = append(files, d)
		case err != nil && !HasEnded(err): // reading the others would fail, too
			return files, fmt.Errorf("%s: %w", path.Join(name, number), err)
		}
	}
	return files, nil
}

// nodes names the device nodes of a process.
type nodes struct {
	dir   *Dir // with its descriptors
	live  bool // the folder is a kernel's: the links of a tree lead to files of this machine
	known map[device]string
}

// device is the number of a device node.
type device struct {
	block        bool
	major, minor uint32
}

func (n *nodes) descriptor(number string) (Descriptor, error) {
	target, err := n.dir.Readlink(number)
	d := Descriptor{Name: target}
	if err != nil || !path.IsAbs(target) || !n.live {
		return d, err
	}
	// The link leads to the open file itself, of which the kernel has the type: neither a server nor
	// a daemon of FUSE is asked, which may not answer.
	var info unix.Statx_t
	err = unix.Statx(n.dir.fd, number, unix.AT_STATX_DONT_SYNC|unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE, &info)
	switch {
	case HasEnded(err), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return d, err
	case err != nil: // by a file system of another user or of a server that is gone: it has no devices
		return d, nil
	}
	kind := info.Mode & unix.S_IFMT
	if kind == unix.S_IFBLK || kind == unix.S_IFCHR {
		d.Node, err = n.node(device{kind == unix.S_IFBLK, info.Rdev_major, info.Rdev_minor})
	}
	return d, err
}

// Character devices by major number (Linux, Documentation/admin-guide/devices.txt).
const (
	majorMemory       = 1 // /dev/null
	majorTerminals    = 136
	majorTerminalsEnd = 143
	majorNVIDIA       = 195
)

// node returns the kernel's name of a device, or "".
func (n *nodes) node(d device) (string, error) {
	if name, ok := n.known[d]; ok {
		return name, nil
	}
	name, err := n.dir.root.nodeOf(d)
	if err == nil {
		n.known[d] = name
	}
	return name, err
}

// nodeOf returns the kernel's name of a device by its number: DEVNAME in sysfs (Linux, dev_uevent
// in drivers/base/core.c). The nodes of NVIDIA's driver are not in sysfs. It is not recorded:
// snapshots have no processes.
func (r Root) nodeOf(d device) (string, error) {
	folder := "char"
	switch {
	case d.block:
		folder = "block"
	case d.major == majorMemory, d.major >= majorTerminals && d.major <= majorTerminalsEnd:
		return "", nil // of no hardware, and many
	case d.major == majorNVIDIA:
		switch d.minor {
		case 255:
			return "/dev/nvidiactl", nil
		case 254:
			return "/dev/nvidia-modeset", nil
		}
		return "/dev/nvidia" + strconv.Itoa(int(d.minor)), nil
	}
	name := fmt.Sprintf("/sys/dev/%s/%d:%d/uevent", folder, d.major, d.minor)
	data, err := r.readFile(name, MaxAttribute)
	if IsAbsent(err) || errors.Is(err, unix.ENODEV) { // removed meanwhile, or of no class
		return "", nil
	}
	if err != nil {
		return "", OfFile(name, err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
			return "/dev/" + value, nil
		}
	}
	return "", nil
}
