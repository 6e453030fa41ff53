package guard

import (
	"cmp"
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

// Holder is a process, or the kernel's console, that has a device of a function open. Unbinding the
// function from its driver may block until the device is closed. It is an error that names both.
type Holder struct {
	Address pci.Address `json:"address"` // the function that the process has open
	// File is the device node, by the kernel's name. One that serves all GPUs of the driver, such
	// as /dev/nvidia-uvm, counts for each of them.
	File string `json:"file"`
	As   string // the name by which the process has it, if that is another one
	PID  int    `json:"pid"` // its process id; 0 for the kernel's console
	// its name as the kernel has it, or the virtual console's in sysfs
	Command string `json:"command"`
	Unit    string `json:"unit"` // its systemd unit, or ""
	// Service reports whether Unit is a service of the host's own systemd: neither a user's, nor
	// one inside a container.
	Service   bool
	Container string // "container 0123456789ab", in which the process runs, or ""
	// Shared means that File is a node of NVIDIA's driver that serves all its GPUs.
	Shared bool
}

// IsClock reports whether the process has only the function's clock open, as chronyd and ptp4l do:
// the kernel does not wait for it.
func (h Holder) IsClock() bool { return strings.HasPrefix(h.File, "/dev/ptp") }

func (h Holder) Error() string {
	return h.Address.String() + ": " + h.Who()
}

// Who returns which process has the function open, and how.
func (h Holder) Who() string {
	if h.PID == 0 {
		return fmt.Sprintf("the framebuffer console (%s) uses %s", h.Command, h.File)
	}
	who := h.process() + " has " + host.Descriptor{Name: cmp.Or(h.As, h.File), Node: h.File}.String() + " open"
	if h.Shared {
		who += ", through which it may use any GPU of the nvidia driver"
	}
	return who
}

// process returns the name of the process, and where it runs.
func (h Holder) process() string {
	if where := cmp.Or(h.Container, h.Unit); where != "" {
		return fmt.Sprintf("%s (pid %d, %s)", h.Command, h.PID, where)
	}
	return fmt.Sprintf("%s (pid %d)", h.Command, h.PID)
}

// Refusal returns the code of the error: no option lifts it.
func (Holder) Refusal() (code host.Code, allow string) { return host.CodeInUse, "" }

// Hint returns how to end the use. nvidia-persistenced and DCGM keep GPUs open for as long as they
// run.
func (h Holder) Hint() string {
	switch {
	case h.PID == 0:
		return "write 0 to /sys/class/vtconsole/" + h.Command + "/bind: the console has no picture until 1 is written"
	case h.Container != "":
		return "stop the " + h.Container
	case h.Service:
		return "systemctl stop " + h.Unit + ", and start it again afterwards if GPUs remain with the host"
	case strings.HasSuffix(h.Unit, ".scope"):
		return "end it: it runs in " + h.Unit + ", a container or a session"
	}
	return fmt.Sprintf("end process %d", h.PID)
}

// Holders returns the processes that have devices open, ordered by address. A process that ends
// during the call is left out; a process whose files cannot be read is an error. A tree without
// /proc has no holders.
//
// What NVIDIA's driver waits for is its usage count of the GPU (open-gpu-kernel-modules,
// nv_pci_remove_helper in kernel-open/nvidia/nv-pci.c). It counts open nodes /dev/nvidiaN, and GPUs
// that a process has registered through /dev/nvidia-uvm (nvUvmInterfaceRegisterGpu) or attached
// through /dev/nvidiactl (NV_ESC_ATTACH_GPUS_TO_FD), which neither /proc nor sysfs shows. So a
// process with a shared node open holds every GPU of the driver, but one with only /dev/nvidiactl
// and nodes /dev/nvidiaN, as programs that read GPUs have, only those. Memory that is mapped from a
// node keeps the node open after its descriptor is closed.
func Holders(root host.Root, devices pci.Devices) ([]Holder, error) {
	h := holders{guard: guard{root: root, devices: devices}, known: map[string][]pci.Address{}}
	pids, err := host.PIDs(root)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if h.classes, err = h.list("/sys/class"); err != nil {
		return nil, err
	}
	if h.minors, err = h.nvidiaMinors(); err != nil {
		return nil, err
	}
	h.driven = h.drivenBy("nvidia")
	for _, pid := range pids {
		if err := h.process(pid); err != nil {
			return nil, err
		}
	}
	if err := h.console(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(h.found, func(a, b Holder) int { return a.Address.Compare(b.Address) })
	return h.found, nil
}

type holders struct {
	guard
	classes []string
	minors  map[string]pci.Address   // of /dev/nvidiaN
	driven  []pci.Address            // bound to nvidia
	known   map[string][]pci.Address // by name of a device node
	found   []Holder
}

// process adds the functions whose devices a process has open (proc_pid_fd(5)).
func (h *holders) process(pid int) error {
	opened, err := h.opened(pid)
	if err != nil {
		return err
	}
	if len(h.driven) > 0 {
		_, err := host.ReadThreads(h.root, pid, func(thread int) error {
			mapped, err := host.MappedDevices(h.root, thread)
			opened = append(opened, host.Map(mapped, func(file string) host.Descriptor { return host.Descriptor{Name: file} })...)
			return err
		})
		if err != nil {
			return err
		}
	}
	var files []host.Descriptor
	listed := map[string]bool{}
	ownGPU := false
	found := map[pci.Address]bool{}
	for _, d := range opened {
		file := d.File()
		if strings.HasPrefix(file, "/dev/") && !listed[file] {
			listed[file] = true
			files = append(files, d)
			_, minor := nvidiaMinor(file)
			ownGPU = ownGPU || minor
		}
	}
	slices.SortStableFunc(files, func(a, b host.Descriptor) int { // the node of one GPU says more than one of all
		switch shared := sharedByGPUs(a.File()); {
		case shared == sharedByGPUs(b.File()):
			return 0
		case shared:
			return 1
		}
		return -1
	})
	for _, d := range files {
		file := d.File()
		if file == nvidiaControl && ownGPU {
			continue
		}
		addresses, err := h.of(file)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			if found[a] {
				continue
			}
			cgroup := h.text(pid, "cgroup")
			unit, service := unit(cgroup)
			holder := Holder{
				Address: a, File: file, As: d.As(), PID: pid, Command: strings.TrimSuffix(h.text(pid, "comm"), "\n"),
				Unit: unit, Service: service, Container: container(cgroup), Shared: sharedByGPUs(file),
			}
			h.found, found[a] = append(h.found, holder), !holder.IsClock()
		}
	}
	return nil
}

// The nodes of NVIDIA's driver (its README, "Device nodes"; open-gpu-kernel-modules,
// nvidia-modprobe/modprobe-utils).
const (
	nvidiaNode    = "/dev/nvidia"
	nvidiaControl = "/dev/nvidiactl"
	nvidiaSwitch  = "/dev/nvidia-nvswitch" // followed by a number, or "ctl"
)

// nvidiaMinor returns the number of a node /dev/nvidiaN.
func nvidiaMinor(file string) (minor string, ok bool) {
	minor, ok = strings.CutPrefix(file, nvidiaNode)
	if _, err := strconv.ParseUint(minor, 10, 32); err != nil {
		return "", false
	}
	return minor, ok
}

// sharedByGPUs reports whether a node serves all GPUs of NVIDIA's driver: a process that has it
// open may use any of them. Capabilities (/dev/nvidia-caps/...) and NVLink's node are opened to
// prove a permission, and switches are functions of their own.
func sharedByGPUs(file string) bool {
	if file == nvidiaControl {
		return true
	}
	rest, ok := strings.CutPrefix(file, nvidiaNode+"-")
	return ok && !strings.HasPrefix(rest, "caps") && rest != "nvlink" && !strings.HasPrefix(file, nvidiaSwitch)
}

// of returns the functions of a device node. It looks for the node's name in every device class;
// NVIDIA's nodes belong to no class and are matched by their names.
func (h *holders) of(file string) ([]pci.Address, error) {
	if addresses, ok := h.known[file]; ok {
		return addresses, nil
	}
	var addresses []pci.Address
	name := path.Base(file)
	minor, numbered := nvidiaMinor(file)
	a, known := h.minors[minor]
	switch {
	case numbered && known:
		addresses = append(addresses, a)
	case numbered, sharedByGPUs(file): // a number of no known GPU may be any GPU's
		addresses = append(addresses, h.driven...)
	case strings.HasPrefix(file, nvidiaSwitch):
		addresses = h.drivenBy("nvidia-nvswitch")
	}
	if strings.HasPrefix(file, vdpaNode) {
		var err error
		if addresses, err = h.vdpa(name); err != nil {
			return nil, err
		}
	}
	if mapped, ok := strings.CutPrefix(file, "/dev/mapper/"); ok { // without udev, no link to dm-N
		var err error
		if name, err = h.mapped(mapped); err != nil || name == "" {
			return nil, err
		}
	}
	for _, class := range h.classes {
		dir := path.Join("/sys/class", class)
		ok, err := h.root.Exists(path.Join(dir, name))
		if err != nil && !errors.Is(err, unix.ENOTDIR) {
			return nil, err
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
		s, err := h.stack(name)
		return s.functions, err
	}
	target, err := h.device(class, name)
	if err != nil {
		return nil, err
	}
	return h.hardware(target)
}

// vdpaNode begins the name of the node of a vDPA device, through which QEMU or another program has
// it. The driver's removal waits until the node is closed (Linux, vhost_vdpa_remove in
// drivers/vhost/vdpa.c).
const vdpaNode = "/dev/vhost-vdpa-"

// vdpa returns the functions of the node of a vDPA device, which belongs to no class: it is a
// folder of the device, whose parent is a function or a subfunction (Linux since 5.7,
// vhost_vdpa_probe in drivers/vhost/vdpa.c; mlx5v_probe in drivers/vdpa/mlx5/net/mlx5_vnet.c).
func (h *holders) vdpa(node string) ([]pci.Address, error) {
	const dir = "/sys/bus/vdpa/devices"
	names, err := h.list(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if ok, err := h.exists(path.Join(dir, name, node)); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		target, err := h.device(dir, name)
		if err != nil {
			return nil, err
		}
		return h.functions(target)
	}
	return nil, nil
}

func (h *holders) drivenBy(driver string) []pci.Address {
	return h.devices.Where(func(d *pci.Device) bool { return d.DriverName() == driver })
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

// console adds the kernel's console on framebuffers of functions bound to nvidia. Which framebuffer
// a virtual console is on is not shown, so that each counts (Linux,
// Documentation/fb/fbcon.rst).
func (h *holders) console() error {
	for _, a := range h.driven {
		buffers, err := h.list(path.Join("/sys/bus/pci/devices", a.String(), "graphics"))
		if err != nil {
			return err
		}
		if len(buffers) == 0 {
			continue
		}
		const dir = "/sys/class/vtconsole"
		consoles, err := h.list(dir)
		if err != nil {
			return err
		}
		for _, name := range consoles {
			kind, err := h.attribute(path.Join(dir, name, "name"))
			if err != nil {
				return err
			}
			bound, err := h.attribute(path.Join(dir, name, "bind"))
			if err != nil {
				return err
			}
			if strings.Contains(kind, "frame buffer") && bound == "1" {
				h.found = append(h.found, Holder{Address: a, File: "/dev/" + buffers[0], Command: name})
			}
		}
	}
	return nil
}

// unit returns the systemd unit that a process belongs to by its control group (cgroups(7)): the
// innermost service or scope. Containers run in scopes. service reports whether only slices are
// above the unit, so that it is the host's own.
func unit(cgroup string) (name string, service bool) {
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 || parts[1] != "" && parts[1] != "name=systemd" {
			continue
		}
		elements := strings.Split(strings.TrimPrefix(parts[2], "/"), "/")
		for i, e := range slices.Backward(elements) {
			if !strings.HasSuffix(e, ".service") && !strings.HasSuffix(e, ".scope") {
				continue
			}
			inner := slices.ContainsFunc(elements[:i], func(above string) bool { return !strings.HasSuffix(above, ".slice") })
			return e, strings.HasSuffix(e, ".service") && !inner
		}
	}
	return "", false
}
