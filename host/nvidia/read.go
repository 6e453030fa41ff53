package nvidia

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Files of the driver in procfs and sysfs (NVIDIA, open-gpu-kernel-modules,
// kernel-open/nvidia/nv-procfs.c and nv-caps.c).
const (
	procDir         = "/proc/driver/nvidia"
	versionFile     = procDir + "/version"
	gpusDir         = procDir + "/gpus"
	capabilitiesDir = procDir + "/capabilities"
	devicesFile     = "/proc/devices"
	releaseFile     = "/proc/sys/kernel/osrelease"

	// fabricManagerPID is PIDFile of its unit.
	fabricManagerPID = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"

	// containerRoot is where a driver container mounts its root (NVIDIA, gpu-driver-container,
	// nvidia-driver: RUN_DIR).
	containerRoot = "/run/nvidia/driver"
)

// ToolkitFolder is where the GPU operator's container of NVIDIA's toolkit installs it.
const ToolkitFolder = "/usr/local/nvidia/toolkit"

// ofContainer matches the root of the driver in a configuration of NVIDIA's toolkit, table
// nvidia-container-cli (nvidia-container-toolkit, cmd/nvidia-ctk-installer/toolkit/toolkit.go).
var ofContainer = host.LazyRegexp(`(?m)^\s*root\s*=\s*["']?` + containerRoot + `["']?`)

// moduleName matches the names that the driver's main module has in sysfs and on disk: nvidia, and
// with Debian's packages nvidia-current, nvidia-current-open or nvidia-tesla-470, but not
// nvidia-current-uvm.
var moduleName = host.LazyRegexp(`^nvidia(_current|_tesla|_legacy)?(_[0-9]+[a-z]*)?(_open)?$`)

// Read reads the driver. devices are all functions of the machine. Without a driver it returns an
// empty one. It returns an error if what is loaded cannot be determined; everything else that
// cannot be read or is malformed is a warning.
func Read(root host.Root, devices pci.Devices) (Driver, error) {
	r := reader{root: root}
	var d Driver
	var err error
	if d.Loaded, err = r.loaded(); err != nil {
		return Driver{}, err
	}
	d.OnDisk = r.onDisk()
	d.GPUs = r.gpus(devices)
	if d.Loaded == nil && slices.ContainsFunc(devices, func(f pci.Device) bool { return f.IsGPU() && IsDriver(f.DriverName()) }) {
		d.Loaded = &Module{} // a driver that has a function is loaded, whatever else a tree lacks
		r.warnings = append(r.warnings, "GPUs are bound to NVIDIA's driver, but "+versionFile+" does not show its version")
	}
	d.Majors = r.majors()
	d.Nodes = r.nodes()
	if r.exists(containerRoot + "/usr") {
		r.container = containerRoot
	}
	d.Libraries = r.libraries()
	if r.container == "" && r.startsContainer(len(d.OnDisk) > 0 || d.cuda() != nil) {
		r.container = containerRoot
	}
	d.Container = r.container
	d.MIG = r.divided(d.GPUs)
	if slices.ContainsFunc(devices, func(f pci.Device) bool { return f.IsNVSwitch() }) {
		d.FabricManager = r.fabricManager()
	}
	d.SMI = r.smi(d)
	d.Warnings = r.warnings
	return d, nil
}

// smi returns the path of nvidia-smi beside the libcuda that containers get.
func (r *reader) smi(d Driver) string {
	file := "/usr/bin/nvidia-smi"
	if cuda := d.cuda(); cuda != nil && d.InContainer(*cuda) {
		file = d.Container + file
	}
	if !r.exists(file) {
		return ""
	}
	return file
}

// fabricManager reports whether Fabric Manager runs: its pid file names a process, or a process has
// its name, as one in a driver container has. The kernel keeps 15 bytes of a name
// (proc_pid_comm(5)). A snapshot has the process that shows it.
func (r *reader) fabricManager() bool {
	pids, err := host.PIDs(r.root)
	if err != nil && !host.IsAbsent(err) {
		r.warn(host.ProcDir, err)
	}
	text, _ := r.text(fabricManagerPID)
	for _, pid := range pids {
		const name = "nv-fabricmanage"
		f, err := r.root.Open(host.ProcessFile(pid, "comm"))
		if err != nil {
			continue // it has ended
		}
		comm, err := io.ReadAll(io.LimitReader(f, int64(len(name))))
		if f.Close() == nil && err == nil && (string(comm) == name || text == strconv.Itoa(pid)) {
			r.root.Record(host.ProcessFile(pid, "comm"), append(comm, '\n'))
			return true
		}
	}
	return false
}

// startsContainer reports whether a driver container is going to run, which after a boot has not
// started yet: NVIDIA's toolkit takes the driver from it; or the toolkit's container has been here,
// and the machine has no driver of its own.
func (r *reader) startsContainer(own bool) bool {
	for _, file := range []string{ToolkitFolder + "/.config/nvidia-container-runtime/config.toml", "/etc/nvidia-container-runtime/config.toml"} {
		if text, _ := r.text(file); ofContainer().MatchString(text) {
			return true
		}
	}
	return !own && r.exists(ToolkitFolder)
}

// IsDriver reports whether a driver of PCI functions is NVIDIA's.
func IsDriver(name string) bool {
	name = modprobe.Normal(name)
	return name == "nvidia" || name == "nvidia_current"
}

// reader reads one machine's driver.
type reader struct {
	root      host.Root
	container string // the root of a driver container, or ""
	warnings  []string
}

func (r *reader) warn(file string, err error) {
	r.warnings = append(r.warnings, host.OfFile(file, err).Error())
}

// text returns the content of a file without space around it, or "" with a warning unless the file
// is absent.
func (r *reader) text(file string) (string, bool) {
	data, err := r.root.ReadFile(file)
	if err != nil {
		if !host.IsAbsent(err) {
			r.warn(file, err)
		}
		return "", false
	}
	return strings.TrimSpace(string(data)), true
}

// names returns the names in a folder, none with a warning unless it is absent.
func (r *reader) names(dir string) []string {
	names, err := r.root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		r.warn(dir, err)
	}
	return names
}

func (r *reader) exists(file string) bool {
	ok, err := r.root.Exists(file)
	if err != nil {
		r.warn(file, err)
	}
	return ok
}

// loaded returns the loaded module, or nil.
func (r *reader) loaded() (*Module, error) {
	data, err := r.root.ReadFile(versionFile)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := new(Module)
	if m.Version, m.Open, err = parseVersionFile(string(data)); err != nil {
		r.warn(versionFile, err)
	}
	return m, nil
}

var errVersionFile = errors.New("no version of a kernel module in the line that begins with NVRM version")

// parseVersionFile parses the first line of the file "version", which has one of two forms:
//
//	NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024
//	NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.58.02  Release Build  (…)  Tue …
//
// The version is the first word of two or three numbers after "Module".
func parseVersionFile(text string) (v Version, open bool, err error) {
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(line, "NVRM version:")
		if !ok {
			continue
		}
		before, after, _ := strings.Cut(line, "Module")
		for word := range strings.FieldsSeq(after) {
			if v, ok := ParseVersion(word); ok {
				return v, slices.Contains(strings.Fields(before), "Open"), nil
			}
		}
	}
	return "", false, errVersionFile
}

// onDisk returns the modules of the installed kernels.
func (r *reader) onDisk() (modules []DiskModule) {
	kernels, err := host.Kernels(r.root)
	if err != nil {
		r.warnings = append(r.warnings, err.Error())
	}
	running, _ := r.text(releaseFile)
	for _, kernel := range kernels {
		has, err := modprobe.HasModule(r.root, kernel, func(name string) bool { return moduleName().MatchString(name) })
		if err != nil {
			r.warnings = append(r.warnings, err.Error())
		}
		if has {
			modules = append(modules, DiskModule{kernel, kernel == running})
		}
	}
	return modules
}

// gpus returns the functions that are bound to the driver: those with a folder in procfs, and GPUs
// that sysfs shows as bound.
func (r *reader) gpus(devices pci.Devices) []GPU {
	byAddress := map[pci.Address]GPU{}
	for i := range devices {
		if d := &devices[i]; d.IsGPU() && IsDriver(d.DriverName()) {
			byAddress[d.Address] = GPU{Address: d.Address}
		}
	}
	for _, name := range r.names(gpusDir) {
		dir := path.Join(gpusDir, name)
		a, err := pci.ParseAddress(name)
		if err != nil {
			r.warn(dir, err)
			continue
		}
		g := GPU{Address: a}
		if text, ok := r.text(path.Join(dir, "information")); ok {
			if err := g.parse(text); err != nil {
				r.warn(path.Join(dir, "information"), err)
			}
		}
		byAddress[a] = g
	}
	gpus := make([]GPU, 0, len(byAddress))
	for _, g := range byAddress {
		gpus = append(gpus, g)
	}
	slices.SortFunc(gpus, func(a, b GPU) int { return a.Address.Compare(b.Address) })
	if len(gpus) == 0 {
		return nil
	}
	return gpus
}

// maxMinor is the largest minor of a GPU. NV_MINOR_DEVICE_NUMBER_REGULAR_MAX is 247; 248 to 255
// are nvidia-modeset, nvidiactl and others (kernel-open/common/inc/nv-chardev-numbers.h).
const maxMinor = 247

// parse parses the file "information" of a GPU. Lines that it does not have are not an error.
func (g *GPU) parse(text string) error {
	var errs []error
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if value = strings.TrimSpace(value); !ok || value == "" || strings.Contains(value, "??") {
			continue // a UUID is question marks before the GPU is first used
		}
		switch strings.TrimSpace(key) {
		case "Model":
			g.Model = &value
		case "GPU UUID":
			g.UUID = &value
		case "Device Minor":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > maxMinor {
				errs = append(errs, fmt.Errorf("device minor: not 0 to %d: %q", maxMinor, value))
				continue
			}
			g.Minor = &n
		}
	}
	return errors.Join(errs...)
}

// majors returns the character devices of the driver in /proc/devices.
func (r *reader) majors() map[string]int {
	text, ok := r.text(devicesFile)
	if !ok {
		return nil
	}
	majors, err := parseDevices(text)
	if err != nil {
		r.warn(devicesFile, err)
	}
	return majors
}

// parseDevices parses /proc/devices: lines "195 nvidia" below "Character devices:".
func parseDevices(text string) (majors map[string]int, err error) {
	character := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, ":") {
			character = line == "Character devices:"
			continue
		}
		number, name, _ := strings.Cut(line, " ")
		if !character || !strings.HasPrefix(name, "nvidia") {
			continue
		}
		n, convErr := strconv.Atoi(number)
		if convErr != nil {
			err = errors.Join(err, fmt.Errorf("not a major and a name: %q", line))
			continue
		}
		if majors == nil {
			majors = map[string]int{}
		}
		majors[name] = n
	}
	if n, ok := majors["nvidia-frontend"]; ok { // the name of nvidia before driver 550
		majors["nvidia"] = n
	}
	return majors, err
}

// divided returns the GPUs that have MIG instances, nil for none. The driver numbers the folders gpuN
// by the GPUs' minors.
func (r *reader) divided(gpus []GPU) (divided map[pci.Address]bool) {
	for i := range gpus {
		if gpus[i].Minor == nil {
			continue
		}
		dir := path.Join(capabilitiesDir, fmt.Sprintf("gpu%d", *gpus[i].Minor), "mig")
		if slices.ContainsFunc(r.names(dir), func(name string) bool { return strings.HasPrefix(name, "gi") }) {
			if divided == nil {
				divided = map[pci.Address]bool{}
			}
			divided[gpus[i].Address] = true
		}
	}
	return divided
}
