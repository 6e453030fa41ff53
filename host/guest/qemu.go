package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// guests lists the processes that run guests, and the processes of nova-compute.
func (o *observer) guests(processes []process) {
	for _, p := range processes {
		if command, ok := p.runs(novaCompute); ok {
			n := NovaCompute{p.pid, o.started(p.ticks), command, o.age(p.ticks)}
			o.report.NovaCompute = append(o.report.NovaCompute, n)
		}
		q, err := parseQEMU(p.argv)
		if q.uuid == nil && !isQEMU(p.comm) && !isQEMU(p.program()) {
			continue
		}
		if err != nil {
			o.access(sourceProcesses).failf("%s/cmdline: %w", p.dir(), err)
		}
		o.functionsOf(q.nodes, p.dir()+"/cmdline") // records unknown nodes
		g := Guest{p.pid, p.comm, q.uuid, q.name, o.started(p.ticks), o.asked(q)}
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
	nodes      []string      // names of the nodes of vDPA devices
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
			errs = append(errs, q.add("-device", value, "driver"))
		case "-netdev", "--netdev":
			errs = append(errs, q.add("-netdev", value, "type"))
		case "-blockdev", "--blockdev":
			errs = append(errs, q.add("-blockdev", value, "driver"))
		}
	}
	return q, errors.Join(errs...)
}

// add adds the function of a vfio-pci device, and the nodes of vDPA devices that the value of an
// argument names. libvirt opens a node itself and names only its file descriptor, which the open
// files of the process show.
func (q *qemu) add(argument, value, first string) error {
	options, err := parseDevice(value, first)
	if err != nil {
		return fmt.Errorf("%s %.80q: %w", argument, value, err)
	}
	for _, option := range options {
		if node, ok := parseNode(option); ok && !slices.Contains(q.nodes, node) {
			q.nodes = append(q.nodes, node)
		}
	}
	slices.Sort(q.nodes)
	a, err := vfioFunction(options)
	if err != nil {
		return fmt.Errorf("%s %.80q: %w", argument, value, err)
	}
	if a != nil {
		q.asked = append(q.asked, *a)
	}
	return nil
}

// parseDevice parses the value of an argument: a JSON object, of which it returns the texts, or
// QEMU's own form.
func parseDevice(value, first string) (map[string]string, error) {
	if !strings.HasPrefix(value, "{") {
		return parseOptions(value, first), nil
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(value), &object); err != nil {
		return nil, err
	}
	options := map[string]string{}
	for key, v := range object {
		if text, ok := v.(string); ok {
			options[key] = text
		}
	}
	return options, nil
}

// vfioFunction returns the function of a vfio-pci device, or nil for any other device.
func vfioFunction(options map[string]string) (*pci.Address, error) {
	if !strings.HasPrefix(options["driver"], "vfio-pci") { // or vfio-pci-nohotplug
		return nil, nil
	}
	if place, ok := options["host"]; ok {
		a, err := pci.ParseAddress(place)
		if err != nil {
			return nil, err
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
