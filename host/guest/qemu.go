package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// guests lists the processes that run guests, and the processes of nova-compute.
func (o *observer) guests(processes []process) {
	for _, p := range processes {
		if command, ok := p.novaCompute(); ok {
			n := NovaCompute{p.pid, o.started(p.ticks), command}
			o.report.NovaCompute = append(o.report.NovaCompute, n)
		}
		q, err := parseQEMU(p.argv)
		if q.uuid == nil && !isQEMU(p.comm) && !isQEMU(p.program()) {
			continue
		}
		if err != nil {
			o.access(sourceProcesses).failf("%s/cmdline: %v", p.dir(), err)
		}
		g := Guest{p.pid, p.comm, q.uuid, q.name, o.started(p.ticks), q.asked}
		o.report.Guests = append(o.report.Guests, g)
	}
}

// isQEMU reports whether the name of a program, or of a process, which the kernel cuts to fifteen
// characters, is QEMU's own, Red Hat's, or Debian's former name.
func isQEMU(program string) bool {
	return strings.HasPrefix(program, "qemu-system-") || program == "qemu-kvm" || program == "kvm"
}

// qemu is the part of QEMU's arguments that is used here (qemu-system(1); libvirt writes them in
// src/qemu/qemu_command.c).
type qemu struct {
	uuid, name *string
	asked      []pci.Address // functions of vfio-pci devices
}

// parseQEMU parses arguments. Next to an error for malformed arguments it returns what it parsed.
func parseQEMU(argv []string) (qemu, error) {
	q := qemu{asked: []pci.Address{}}
	var errs []error
	for i := 1; i < len(argv)-1; i++ {
		value := argv[i+1]
		switch argv[i] {
		case "-uuid", "--uuid":
			uuid, err := parseUUID(value)
			errs = append(errs, err)
			if err == nil {
				q.uuid = &uuid
			}
		case "-name", "--name":
			if name := parseOptions(value, "guest")["guest"]; name != "" {
				q.name = &name
			}
		case "-device", "--device":
			a, err := parseDevice(value)
			errs = append(errs, err)
			if a != nil {
				q.asked = append(q.asked, *a)
			}
		}
	}
	return q, errors.Join(errs...)
}

// parseDevice returns the function of a vfio-pci device, or nil for any other device.
func parseDevice(value string) (*pci.Address, error) {
	options := map[string]string{}
	if strings.HasPrefix(value, "{") {
		var object map[string]any
		if err := json.Unmarshal([]byte(value), &object); err != nil {
			return nil, fmt.Errorf("-device %.80q: %w", value, err)
		}
		for key, v := range object {
			if text, ok := v.(string); ok {
				options[key] = text
			}
		}
	} else {
		options = parseOptions(value, "driver")
	}
	if !strings.HasPrefix(options["driver"], "vfio-pci") { // or vfio-pci-nohotplug
		return nil, nil
	}
	if place, ok := options["host"]; ok {
		a, err := pci.ParseAddress(place)
		if err != nil {
			return nil, fmt.Errorf("-device %.80q: %w", value, err)
		}
		return &a, nil
	}
	// sysfsdev is the path of a function or of a mediated device.
	a, err := pci.ParseAddress(path.Base(options["sysfsdev"]))
	if err != nil {
		return nil, nil //nolint:nilerr // a mediated device, not a function
	}
	return &a, nil
}

// parseOptions parses QEMU's list of KEY=VALUE, in which ",," is a comma of a value and the first
// value may lack its key, which is first (util/qemu-option.c).
func parseOptions(text, first string) map[string]string {
	const comma = "\x00" // cannot occur in an argument
	options := map[string]string{}
	for i, option := range strings.Split(strings.ReplaceAll(text, ",,", comma), ",") {
		key, value, ok := strings.Cut(option, "=")
		if !ok && i == 0 {
			key, value = first, option
		}
		options[key] = strings.ReplaceAll(value, comma, ",")
	}
	return options
}

var uuidForm = host.LazyRegexp(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// parseUUID returns a UUID in lower case, as Nova writes it.
func parseUUID(text string) (string, error) {
	uuid := strings.ToLower(strings.TrimSpace(text))
	if !uuidForm().MatchString(uuid) {
		return "", fmt.Errorf("not a uuid: %.40q", text)
	}
	return uuid, nil
}
