package guard

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Holder is a process that has a device of a function open. Unbinding the function from its driver
// may block until the process closes it.
type Holder struct {
	Address pci.Address
	File    string // "/dev/nvidia0"
	PID     int
	Command string // as the kernel names the process
	Unit    string // its systemd unit, or ""
}

// Holders returns the processes that have devices open, ordered by address. A process that ends
// during the call is left out; a process whose files cannot be read is an error. A tree without
// /proc has no holders.
func Holders(root host.Root, devices []pci.Device) ([]Holder, error) {
	h := holders{guard: guard{root: root, devices: devices}, known: map[string][]pci.Address{}}
	pids, err := host.PIDs(root)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, h.cause(host.ProcDir, err)
	}
	if h.classes, err = h.list("/sys/class"); err != nil {
		return nil, err
	}
	if h.minors, err = h.nvidiaMinors(); err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if err := h.process(pid); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(h.found, func(a, b Holder) int { return a.Address.Compare(b.Address) })
	return h.found, nil
}

type holders struct {
	guard
	classes []string
	minors  map[string]pci.Address   // of /dev/nvidiaN
	known   map[string][]pci.Address // by name of a device node
	found   []Holder
}

// process adds the functions whose devices a process has open (proc_pid_fd(5)).
func (h *holders) process(pid int) error {
	targets, err := host.Descriptors(h.root, pid)
	if host.HasEnded(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, target := range targets {
		file := strings.TrimSuffix(target, " (deleted)")
		if !strings.HasPrefix(file, "/dev/") {
			continue
		}
		addresses, err := h.of(file)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			if slices.ContainsFunc(h.found, func(f Holder) bool { return f.PID == pid && f.Address == a }) {
				continue
			}
			h.found = append(h.found, Holder{
				Address: a, File: file, PID: pid,
				Command: h.line(pid, "comm"), Unit: unit(h.text(pid, "cgroup")),
			})
		}
	}
	return nil
}

// text returns the content of a file of a process, for messages, or "" if it cannot be read.
func (h *holders) text(pid int, name string) string {
	data, err := h.root.ReadFile(host.ProcessFile(pid, name))
	if err != nil {
		return ""
	}
	return string(data)
}

func (h *holders) line(pid int, name string) string {
	line, _, _ := strings.Cut(h.text(pid, name), "\n")
	return line
}

// of returns the functions of a device node. It looks for the node's name in every device class;
// NVIDIA's nodes belong to no class and are matched by their minor numbers. The control nodes that
// all NVIDIA GPUs share belong to no function.
func (h *holders) of(file string) ([]pci.Address, error) {
	if addresses, ok := h.known[file]; ok {
		return addresses, nil
	}
	var addresses []pci.Address
	name := path.Base(file)
	if minor, ok := strings.CutPrefix(file, "/dev/nvidia"); ok {
		if a, ok := h.minors[minor]; ok {
			addresses = append(addresses, a)
		} else if _, err := strconv.Atoi(minor); err == nil {
			// The minor belongs to an unknown GPU: count every GPU bound to the driver.
			addresses = h.drivenBy("nvidia")
		}
	}
	for _, class := range h.classes {
		dir := path.Join("/sys/class", class)
		ok, err := h.root.Exists(path.Join(dir, name))
		if err != nil && !errors.Is(err, unix.ENOTDIR) {
			return nil, h.cause(path.Join(dir, name), err)
		}
		if !ok {
			continue
		}
		more, err := h.behind(dir, name)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, more...)
	}
	h.known[file] = addresses
	return addresses, nil
}

// behind returns the functions of a device of a class. A disk over the network has none: unbinding
// its network interface does not wait for the process.
func (h *holders) behind(class, name string) ([]pci.Address, error) {
	if class == blockDir {
		o, err := h.below(name, map[string]bool{})
		return o.functions, err
	}
	target, err := h.device(class, name)
	if err != nil {
		return nil, err
	}
	addresses, err := h.functions(target)
	if m := subsystemDir.FindStringSubmatch(target); m != nil && err == nil && len(addresses) == 0 {
		o, err := h.subsystem(m[1])
		return o.functions, err
	}
	return addresses, err
}

func (h *holders) drivenBy(driver string) (addresses []pci.Address) {
	for i := range h.devices {
		if d := &h.devices[i]; d.Driver != nil && *d.Driver == driver {
			addresses = append(addresses, d.Address)
		}
	}
	return addresses
}

// nvidiaMinors returns the function of each /dev/nvidiaN by its number (NVIDIA's driver, README,
// "The /proc interface": driver/nvidia/gpus/ADDRESS/information).
func (h *holders) nvidiaMinors() (map[string]pci.Address, error) {
	const dir = "/proc/driver/nvidia/gpus"
	names, err := h.list(dir)
	if err != nil {
		return nil, err
	}
	minors := map[string]pci.Address{}
	for _, name := range names {
		a, err := pci.ParseAddress(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		lines, err := h.lines(path.Join(dir, name, "information"))
		if err != nil {
			return nil, err
		}
		for _, l := range lines {
			if len(l) == 3 && l[0] == "Device" && l[1] == "Minor:" {
				minors[l[2]] = a
			}
		}
	}
	return minors, nil
}

// unit returns the systemd unit that a process belongs to by its control group (cgroups(7)): the
// innermost service or scope. Containers run in scopes.
func unit(cgroup string) string {
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 || parts[1] != "" && parts[1] != "name=systemd" {
			continue
		}
		elements := strings.Split(parts[2], "/")
		for _, e := range slices.Backward(elements) {
			if strings.HasSuffix(e, ".service") || strings.HasSuffix(e, ".scope") {
				return e
			}
		}
	}
	return ""
}
