package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"gpustack/host/pci"
)

// guests lists the processes that run guests, and those of nova-compute.
func (o *observer) guests(processes []process) {
	for _, p := range processes {
		if command, ok := p.novaCompute(); ok {
			o.report.NovaCompute = append(o.report.NovaCompute, NovaCompute{p.pid, o.started(p.ticks), command})
		}
		q, err := parseQEMU(p.argv)
		if q.uuid == nil && !isQEMU(p.comm) && !isQEMU(p.program()) {
			continue
		}
		if err != nil {
			o.look(sourceProcesses).faultf("%s/cmdline: %v", p.dir(), err)
		}
		o.report.Guests = append(o.report.Guests, Guest{p.pid, p.comm, q.uuid, q.name, o.started(p.ticks), q.asked})
	}
}

// isQEMU tells whether a program's name is QEMU's, or a process's, of which the kernel
// keeps fifteen characters: QEMU's own, Red Hat's, Debian's old one.
func isQEMU(program string) bool {
	return strings.HasPrefix(program, "qemu-system-") || program == "qemu-kvm" || program == "kvm"
}

// qemu is what the arguments of QEMU say (qemu-system(1), as libvirt writes them:
// src/qemu/qemu_command.c).
type qemu struct {
	uuid, name *string
	asked      []pci.Address
}

// parseQEMU reads arguments. It returns what it can, and what is wrong with the rest.
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

// parseDevice returns the function that a device takes from the host, nil for none.
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
	if !strings.HasPrefix(options["driver"], "vfio-pci") { // vfio-pci-nohotplug is one too
		return nil, nil
	}
	if place, ok := options["host"]; ok {
		a, err := pci.ParseAddress(place)
		if err != nil {
			return nil, fmt.Errorf("-device %.80q: %w", value, err)
		}
		return &a, nil
	}
	// The path of a function, or of a mediated device, which is none.
	a, err := pci.ParseAddress(path.Base(options["sysfsdev"]))
	if err != nil {
		return nil, nil //nolint:nilerr // so it is none
	}
	return &a, nil
}

// parseOptions reads QEMU's list of KEY=VALUE, with a comma written as two and a first
// value that may stand without its key (util/qemu-option.c).
func parseOptions(text, first string) map[string]string {
	const comma = "\x00" // no argument can hold it
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

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// parseUUID returns a uuid as Nova writes it.
func parseUUID(text string) (string, error) {
	uuid := strings.ToLower(strings.TrimSpace(text))
	if !uuidForm.MatchString(uuid) {
		return "", fmt.Errorf("not a uuid: %.40q", text)
	}
	return uuid, nil
}
