package nova

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/host/edit"
	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// DefaultConf is the main configuration file of Nova's services.
const DefaultConf = "/etc/nova/nova.conf"

// ComputeNode is what the configuration of a compute node depends on.
type ComputeNode struct {
	Name       string                 // its hostname; "" if it is unknown
	Devices    []pci.Device           // its PCI functions; nil: unknown
	Interfaces map[string]pci.Address // the functions of its network interfaces; see [devspec.Interfaces]
	Written    []string               // see [Written]
	Recorded
}

// Has reports whether the machine has a function at an address.
func (m ComputeNode) Has(a pci.Address) bool {
	return slices.ContainsFunc(m.Devices, func(d pci.Device) bool { return d.Address == a })
}

// Wrote reports whether nova configure has written a device_spec on the machine, for an alias.
func (m ComputeNode) Wrote(l devspec.Line) bool {
	return len(l.Specs) == 1 && IsOwn(l.Specs[0]) &&
		(path.Base(l.File) == dropInName || slices.Contains(m.Written, onOneLine(l.Option.Value)))
}

// Recorded are the functions of a machine that have a role.
type Recorded struct {
	Given      []pci.Address // recorded by host prepare, nil without a record
	Selected   []pci.Address // those of Given that the operator selected; the others are their companions
	Returning  bool          // the last boot was with another record: GPUs that are bound and not among Given return
	Containers []pci.Address // recorded by container prepare
	VFs        []pci.Address // recorded by rdma prepare for guests; they may not exist before the next boot
	Left       []pci.Address // VFs that this boot has made for guests, and that are not recorded for them any more
	Needed     []pci.Address // those that the host needs, or whose interface is a port of another one; nil: unknown
}

// Awaits reports whether a device_spec selects a VF that may not exist before the next boot.
func (r Recorded) Awaits(s devspec.Spec) bool {
	return slices.ContainsFunc(r.VFs, func(a pci.Address) bool { return a.String() == s.Single })
}

// Observe reads the functions of the machine below root, and takes over their roles. A machine
// without PCI devices is no error.
func Observe(root host.Root, recorded Recorded) (ComputeNode, error) {
	devices, _, scanErr := pci.Scan(root, pci.Options{})
	if errors.Is(scanErr, pci.ErrNoPCI) {
		scanErr = nil
	}
	interfaces, err := devspec.Interfaces(root)
	written := Written(change.Machine(root).Observe().Entries)
	return ComputeNode{Devices: devices, Interfaces: interfaces, Written: written, Recorded: recorded}, errors.Join(scanErr, err)
}

// Side is the configuration of one machine, or of several machines with the same files.
type Side struct {
	Role     Role          `json:"role"`                  // which services read the files
	RoleFrom string        `json:"role_from" null:"zero"` // what the role was inferred from; null if it was given
	Files    []conf.Source `json:"files"`                 // in the order in which the services read them
	ComputeNode
	Hypervisor Hypervisor
}

// ReadSide reads configuration files below root: those that are named, in the order in which the
// services read them. The role "" is inferred from the options in the files.
//
// Errors: ErrUnset for a file that does not exist; all errors of all files at once.
func ReadSide(root host.Root, role Role, names []string) (Side, error) {
	return SideFiles{role, names}.read(func(name string) (*conf.File, error) { return readConf(root, name) })
}

// SideFiles names the configuration files of one machine.
type SideFiles struct {
	Role  Role     // "" to infer it from the options in the files
	Names []string // in the order in which the services read them
}

// readPresent reads those of the files of services of a role that exist, as far as they can be read.
func readPresent(root host.Root, role Role, names []string) (Side, error) {
	return SideFiles{role, names}.read(func(name string) (*conf.File, error) {
		file, err := readConf(root, name)
		if errors.Is(err, ErrUnset) {
			err = nil
		}
		return file, err
	})
}

// read reads the files, each with the given function. Files that cannot be read are left out.
func (f SideFiles) read(file func(name string) (*conf.File, error)) (Side, error) {
	side := Side{Role: f.Role}
	var errs []error
	for _, name := range f.Names {
		file, err := file(name)
		errs = append(errs, err)
		if file != nil {
			side.Files = append(side.Files, conf.Source{Name: document.Name(name), File: file})
		}
	}
	if f.Role == "" {
		side.Role, side.RoleFrom = inferRole(side.Files)
	}
	return side, errors.Join(errs...)
}

// ParseSideFiles parses [ROLE=]FILE[,FILE]. Files without a role get the given one. It returns the
// files with an error too.
func ParseSideFiles(value string, otherwise Role) (SideFiles, error) {
	role, list, ok := strings.Cut(value, "=")
	if !ok {
		return SideFiles{otherwise, strings.Split(value, ",")}, nil
	}
	side := SideFiles{Role(role), strings.Split(list, ",")}
	if !slices.Contains([]Role{Controller, Compute, All}, side.Role) {
		return side, fmt.Errorf("unknown role %q", role)
	}
	return side, nil
}

// ErrNoDocument means that there is no document at an ordinary path.
var ErrNoDocument = host.WithHint(errors.New("no such file"), "these paths are ordinary ones, not below --root")

// ErrUnset says that a configuration file does not exist.
var ErrUnset = host.WithHint(errors.New("no such file"), "--conf FILE names another one below --root")

// errNoConf is ErrUnset of nova configure.
var errNoConf = host.WithHint(ErrUnset, "--conf FILE names another one below --root; where no Nova is installed, --render ini prints the options")

// errNotGiven is ErrUnset of a command that reads copies too.
var errNotGiven = host.WithHint(ErrUnset, "--conf FILE names another one: an absolute path is below --root, a relative one a copy from another machine")

// ReadSides reads the configuration files of several machines: absolute paths below root, and
// copies that the operator hands over, which are relative paths and [document.Stdin]. The error
// holds all errors of all files.
func ReadSides(root host.Root, from document.Source, machines []SideFiles) ([]Side, error) {
	var sides []Side
	var errs []error
	for _, m := range machines {
		side, err := m.read(func(name string) (*conf.File, error) { return readGiven(root, from, name) })
		sides, errs = append(sides, side), append(errs, err)
	}
	return sides, errors.Join(errs...)
}

// readGiven reads a configuration file that the operator names: below root, or a copy.
func readGiven(root host.Root, from document.Source, name string) (*conf.File, error) {
	read := from.ReadFile
	if path.IsAbs(name) {
		read = root.ReadFile
	}
	text, err := read(name)
	if host.IsAbsent(err) {
		err = fmt.Errorf("%s: %w", name, errNotGiven)
	}
	if err != nil {
		return nil, err
	}
	if is := document.Recognize(text).Kind; is != document.Unknown {
		return nil, document.Kinds{document.NovaConf}.Expected(document.Name(name), is)
	}
	return parseConf(document.Name(name), text)
}

// parseConf parses a configuration file, which errors name.
func parseConf(name string, text []byte) (*conf.File, error) {
	file, err := conf.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

// ownDirs are the folders in which services of a machine read their configuration.
var ownDirs = []string{path.Dir(DefaultConf), distDir, path.Clean(kollaDir), path.Clean(tripleoDir), rhosoDir, snapDir}

// isOwnFile reports whether a configuration file that the operator names is one of the machine
// itself, and no copy of another machine's.
func isOwnFile(name string) bool {
	return slices.ContainsFunc(ownDirs, func(dir string) bool { return strings.HasPrefix(path.Clean(name), dir+"/") })
}

// ObserveSides reads everything of the machine below root that the checks need: the files of its
// services of a role, as [ReadServices] does, its devices and the versions of its hypervisor.
// recorded is as for [Observe].
func ObserveSides(root host.Root, role Role, from string, recorded Recorded) (sides []Side, warnings []string, err error) {
	sides, warnings, err = ReadServices(root, role, from, recorded)
	if err != nil && sides == nil {
		return nil, nil, err
	}
	hypervisor, hypervisorErr := InstalledHypervisor(root)
	hardware, hardwareErr := Observe(root, recorded)
	for i := range sides {
		sides[i].Hypervisor, sides[i].ComputeNode = hypervisor, hardware
	}
	return sides, warnings, errors.Join(err, hypervisorErr, hardwareErr)
}

// ReadServices reads the files of the services of a role that the machine below root runs. from is
// what the role was inferred from, "" if it was given. The role "" is inferred from the units of
// the machine, or else from the options in the files; then functions that are recorded for guests
// tell that nova-compute runs there. There are several sides where a deployment tool runs each
// service in a container with files of its own.
//
// The warnings name files that a service may read instead of those that were read, or besides. The
// error joins those of all files; without sides, the services are unknown.
func ReadServices(root host.Root, role Role, from string, recorded Recorded) (sides []Side, warnings []string, err error) {
	known := role // of the services that packages installed; "" if only their options tell it
	if role == "" {
		role = All
		if known, from, err = installedRole(root); err != nil {
			return nil, nil, err
		}
	}
	installations, err := installationsOf(root, role)
	if err != nil {
		return nil, nil, err
	}
	var all []error
	for _, in := range installations {
		side := Side{Role: known, RoleFrom: from}
		if in.Generated {
			side.Role, side.RoleFrom = in.Role, "the files are in "+path.Dir(in.Files[0])
		} else {
			names, more, err := withStrays(root, in.Files, role)
			all = append(all, err)
			warnings = append(warnings, more...)
			in.Files = names
		}
		read, err := ReadSide(root, side.Role, in.Files)
		all = append(all, err)
		if side.Role == "" {
			read = read.guestsTell(recorded)
			side.Role, side.RoleFrom = read.Role, read.RoleFrom
		}
		side.Files = read.Files
		sides = append(sides, side.Of(side.Role.Programs()...)) // files of others were read to infer the role
	}
	placement := slices.ContainsFunc(sides, func(s Side) bool { return s.IsOn(PCIInPlacement) })
	all = append(all, refuseNamed(root, Place{File: DefaultConf}, role, placement))
	return sides, warnings, errors.Join(all...)
}

// Of returns the side as some programs read it: without files that only other programs read.
func (s Side) Of(programs ...string) Side {
	s.Files = filesOf(s.Files, s.Name(), programs)
	return s
}

// filesOf returns those of the files that one of the programs reads. main is as for [ReadBy].
func filesOf(files []conf.Source, main string, programs []string) []conf.Source {
	return slices.DeleteFunc(slices.Clone(files), func(f conf.Source) bool {
		by := ReadBy(f.Name, main)
		return by != "" && !slices.Contains(programs, by)
	})
}

// API returns the side as nova-api reads it, which needs the aliases.
func (s Side) API() Side { return s.Of(programAPI) }

// Scheduler returns the side as nova-scheduler reads it, which needs the filters.
func (s Side) Scheduler() Side { return s.Of(programScheduler) }

// Compute returns the side as nova-compute reads it, which needs aliases and device specs.
func (s Side) Compute() Side { return s.Of(programCompute) }

// withStrays adds the files outside /etc/nova that services of a role find by themselves to the
// names of the others. Warnings say which files of /etc/nova they hide.
func withStrays(root host.Root, names []string, role Role) (all, warnings []string, err error) {
	strays, err := Elsewhere(root, role)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range strays {
		names = append(names, s.Files...)
		text := s.Name + ": Nova's services read it too, unless they are started with --config-file"
		if s.Hides != "" {
			text = fmt.Sprintf("%s: Nova's services read it instead of %s, unless they are started with --config-file", s.Name, s.Hides)
		}
		warnings = append(warnings, text)
	}
	return names, warnings, nil
}

// readConf reads one configuration file below root.
//
// Errors: ErrUnset if there is no such file; [conf.SyntaxError].
func readConf(root host.Root, name string) (*conf.File, error) {
	f, err := edit.Read(root, name)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("%s: %w", name, ErrUnset)
	}
	return parseConf(name, f.Content)
}

// Name returns the name of the first file that is not a package's, by which messages call the
// machine, or "" if there is none.
func (s Side) Name() string {
	for _, f := range s.Files {
		if !isPackaged(f.Name) {
			return f.Name
		}
	}
	return ""
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
		found = append(found, host.Map(f.File.Find(names...), func(o conf.Option) Placed { return Placed{o, f.Name} })...)
	}
	return found
}

// IsOn reports whether a boolean option is true. Of several values the last counts.
func (s Side) IsOn(n conf.Name) bool {
	o, _ := s.last([]conf.Name{n})
	return conf.IsTrue(o.Value)
}

// HostNames returns the possible names of the host of a side: the option host, or else the names of
// the files and of their folders.
func (s Side) HostNames() (names []string) {
	if found := s.Find(conf.Name{Section: "DEFAULT", Key: "host"}); len(found) > 0 {
		return []string{found[len(found)-1].Value}
	}
	for _, f := range s.Files {
		names = append(names, strings.TrimSuffix(path.Base(f.Name), ".conf"), path.Base(path.Dir(f.Name)))
	}
	return names
}
