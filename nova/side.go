package nova

import (
	"errors"
	"fmt"
	"io/fs"

	"gpustack/host"
	"gpustack/host/document"
	"gpustack/host/edit"
	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// DefaultConf is the main configuration file of Nova's services.
const DefaultConf = "/etc/nova/nova.conf"

// Machine is what the configuration of a compute node depends on.
type Machine struct {
	Devices    []pci.Device           // its PCI functions; nil: unknown
	Interfaces map[string]pci.Address // the functions of its network interfaces; see [devspec.Interfaces]
	Given      []pci.Address          // the functions that are prepared for guests; nil: unknown
}

// Observe reads the functions of the machine below root. given are the functions that host prepare
// has recorded for guests, nil without a record. A machine without PCI devices is no error.
func Observe(root host.Root, given []pci.Address) (Machine, error) {
	devices, _, scanErr := pci.Scan(root, pci.Options{})
	if errors.Is(scanErr, pci.ErrNoPCI) {
		scanErr = nil
	}
	interfaces, err := devspec.Interfaces(root)
	return Machine{devices, interfaces, given}, errors.Join(scanErr, err)
}

// Side is the configuration of one machine, or of several machines with the same files.
type Side struct {
	Role  Role
	Files []conf.Source // in the order in which the services read them
	Machine
	Hypervisor Hypervisor
}

// ReadSide reads configuration files below root: those that are named, in the order in which the
// services read them.
//
// Errors: ErrUnset for a file that does not exist; all errors of all files at once.
func ReadSide(root host.Root, role Role, names []string) (Side, error) {
	side := Side{Role: role}
	var errs []error
	for _, name := range names {
		file, err := ReadConf(root, name)
		errs = append(errs, err)
		side.Files = append(side.Files, conf.Source{Name: name, File: file})
	}
	return side, errors.Join(errs...)
}

// SideFiles names the configuration files of one machine.
type SideFiles struct {
	Role  Role
	Names []string // in the order in which the services read them
}

// ErrNoDocument means that there is no configuration file at an ordinary path.
var ErrNoDocument = host.WithHint(errors.New("no such file"), "these paths are ordinary ones, not below --root")

// ReadSides reads the configuration files of several machines, which the operator hands over: they
// are ordinary paths, and [document.Stdin]. The error holds all errors of all files.
func ReadSides(from document.Source, machines []SideFiles) ([]Side, error) {
	var sides []Side
	var errs []error
	for _, m := range machines {
		side := Side{Role: m.Role}
		for _, path := range m.Names {
			file, err := readHandedOver(from, path)
			errs = append(errs, err)
			side.Files = append(side.Files, conf.Source{Name: document.Name(path), File: file})
		}
		sides = append(sides, side)
	}
	return sides, errors.Join(errs...)
}

// readHandedOver reads a configuration file that the operator hands over.
func readHandedOver(from document.Source, path string) (*conf.File, error) {
	text, err := from.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: %w", path, ErrNoDocument)
	}
	if err != nil {
		return nil, err
	}
	if is := document.Recognize(text); is != document.Unknown {
		return nil, document.Expected(document.Name(path), document.NovaConf, is)
	}
	file, err := conf.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", document.Name(path), err)
	}
	return file, nil
}

// ObserveSide reads everything of the machine below root that the checks need: the files of all its
// services, its devices and the versions of its hypervisor. given is as for [Observe].
func ObserveSide(root host.Root, given []pci.Address) (Side, error) {
	names, err := Files(root, DefaultConf, All)
	if err != nil {
		return Side{}, err
	}
	side, err := ReadSide(root, All, names)
	var hypervisorErr, machineErr error
	side.Hypervisor, hypervisorErr = InstalledHypervisor(root)
	side.Machine, machineErr = Observe(root, given)
	return side, errors.Join(err, hypervisorErr, machineErr)
}

// ReadConf reads one configuration file below root.
//
// Errors: ErrUnset if there is no such file; [conf.SyntaxError].
func ReadConf(root host.Root, name string) (*conf.File, error) {
	f, err := edit.Read(root, name)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("%s: %w", name, ErrUnset)
	}
	file, err := conf.Parse(f.Content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

// Name returns the name of the first file, by which messages call the machine.
func (s Side) Name() string {
	return s.Files[0].Name
}

// Placed is an option together with the name of its file.
type Placed struct {
	conf.Option
	File string
}

// Find returns the options that have one of the names, file by file.
func (s Side) Find(names ...conf.Name) []Placed {
	var found []Placed
	for _, f := range s.Files {
		for _, o := range f.File.Find(names...) {
			found = append(found, Placed{o, f.Name})
		}
	}
	return found
}

// IsOn reports whether a boolean option is true. Of several values the last counts.
func (s Side) IsOn(n conf.Name) bool {
	found := s.Find(n)
	return len(found) > 0 && conf.IsTrue(found[len(found)-1].Value)
}
