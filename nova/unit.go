package nova

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// unitsOf are the systemd units that run a program, without their suffix: of Debian, Ubuntu and
// openstack-ansible; of RDO and SUSE; of devstack; of the containers of kolla-ansible, TripleO
// and RHOSO (kolla-ansible, ansible/module_utils/kolla_systemd_worker.py; tripleo-ansible,
// tripleo_container_manage; edpm-ansible, edpm_container_manage); and of Sunbeam's snap
// (snap-openstack-hypervisor, snap/snapcraft.yaml). Those of packages come first.
var unitsOf = map[string][]string{
	programCompute: {"nova-compute", "openstack-nova-compute", "devstack@n-cpu",
		"kolla-nova_compute-container", "tripleo_nova_compute", "edpm_nova_compute", "snap.openstack-hypervisor.nova-compute"},
	programConductor: {"nova-conductor", "openstack-nova-conductor", "devstack@n-super-cond", "devstack@n-cond-cell1",
		"kolla-nova_conductor-container", "kolla-nova_super_conductor-container", "tripleo_nova_conductor"},
	programScheduler: {"nova-scheduler", "openstack-nova-scheduler", "devstack@n-sch",
		"kolla-nova_scheduler-container", "tripleo_nova_scheduler"},
	programAPI: {"nova-api", "nova-api-os-compute", "openstack-nova-api", "openstack-nova-os-compute-api", "devstack@n-api",
		"kolla-nova_api-container", "tripleo_nova_api"},
}

// units returns the units below root that run a program of Nova, without their suffix .service and
// those that are masked.
func units(root host.Root, program string) ([]string, error) {
	var found []string
	for _, unit := range unitsOf[program] {
		file, err := root.FindUnit(unit + ".service")
		if err != nil {
			return nil, err
		}
		if file != "" && !slices.ContainsFunc(host.UnitDirs(), func(dir string) bool { return root.IsMask(path.Join(dir, unit+".service")) }) {
			found = append(found, unit)
		}
	}
	return found, nil
}

// packagedUnits returns the units of programs that read /etc/nova/nova.conf.
func packagedUnits(root host.Root, programs ...string) (found []string, err error) {
	for _, p := range programs {
		units, err := units(root, p)
		if err != nil {
			return nil, err
		}
		found = append(found, host.Filter(units, func(u string) bool { return !ofTool().MatchString(u) })...)
	}
	return found, nil
}

// ofTool matches units of deployment tools, whose services have files of their own.
var ofTool = host.LazyRegexp(`^(kolla-|tripleo_|edpm_|snap\.)`)

// ErrNamed says that a unit starts a service with configuration files that nothing else names.
// ErrUnnamed says that it names others than those that a service without options finds itself.
var (
	ErrNamed   = errors.New("names files that are not read")
	ErrUnnamed = host.WithHint(errors.New("does not name files that the service reads only if they are named there"),
		"name the files in ExecStart too, or remove them; without --drop-in, no file is made in nova.conf.d")
)

// hintNamed returns what an operator can do about files that the unit of a program names.
func hintNamed(program string) host.Text {
	role := Controller
	if program == programCompute {
		role = Compute
	}
	return host.Textf("where the unit names one file, give it with --conf; of several, %s judges all of them, "+
		"in the order of the unit, and %s prints the lines to write into them",
		host.NewCommand("nova check").Flag("conf", string(role)+"=FILE,FILE"), Configure(role).Flag("render", "ini"))
}

// namesConf matches the options of a command line that name configuration (oslo_config/cfg.py), in
// quotes too.
var namesConf = host.LazyRegexp(`--config-(file|dir)["']?[= ]\s*["']?([^\s"']+)`)

// refuseNamed returns an error for each unit of the role's programs whose command line names files
// or folders that [Files] of the place does not find, or that names some and not those that it
// finds or that a plan writes: a service that is started with --config-file finds no other file
// itself, and with --config-dir no other folder (oslo_config/cfg.py, default_config_files,
// default_config_dirs).
//
// nova-conductor, which may have a file for each cell, reads options of Placement alone.
func refuseNamed(root host.Root, place Place, role Role, placement bool) error {
	names, err := Files(root, place.File, role)
	errs := []error{err}
	if place.DropIn {
		names = append(names, place.ours())
	}
	for _, program := range role.Programs() {
		units, err := packagedUnits(root, program)
		errs = append(errs, err)
		if program == programConductor && !placement {
			continue
		}
		for _, unit := range units {
			file, err := root.FindUnit(unit + ".service")
			if err != nil {
				return err
			}
			lines, err := startLines(root, unit, file)
			if err != nil {
				return err
			}
			read := host.Filter(names, func(name string) bool {
				by := ReadBy(name, place.File)
				return (by == "" || by == program) && !isPackaged(name)
			})
			errs = append(errs, refuseLines(root, program, file, lines, names, read))
		}
	}
	return errors.Join(errs...)
}

// refuseLines returns an error if lines ExecStart of a file of a program's unit name a file that is
// not among names, or name files or folders but not those of read. What variables and specifiers
// stand for is not known: it may be these.
func refuseLines(root host.Root, program, file string, lines, names, read []string) error {
	named, text := map[string][]string{}, strings.Join(lines, "\n")
	for _, found := range namesConf().FindAllStringSubmatch(text, -1) {
		named[found[1]] = append(named[found[1]], path.Clean(found[2]))
	}
	files, dirs := named["file"], named["dir"]
	s := search{root: root, names: files}
	for _, dir := range dirs {
		s.folder(dir)
	}
	unread := host.Filter(s.names, func(name string) bool { return s.exists(name) && !slices.Contains(names, name) })
	unnamed := host.Filter(read, func(name string) bool {
		if FileGroup(name) != "" {
			return dirs != nil && !slices.Contains(dirs, path.Dir(name))
		}
		return files != nil && !slices.Contains(files, name)
	})
	switch {
	case s.err != nil:
		return s.err
	case unread != nil:
		return host.WithHint(fmt.Errorf("%s: ExecStart %w: %s", file, ErrNamed, strings.Join(unread, ", ")), hintNamed(program))
	case unnamed != nil && !strings.ContainsAny(text, "$%"):
		return fmt.Errorf("%s: ExecStart %w: %s", file, ErrUnnamed, strings.Join(unnamed, ", "))
	}
	return nil
}

// comments matches the lines of a unit's file that are comments.
var comments = host.LazyRegexp(`(?m)^[ \t]*[#;].*\n?`)

// startLines returns the lines ExecStart of a unit, whose file and drop-ins a manager reads in this
// order: an empty one in a drop-in removes those before it (systemd.service(5), systemd.unit(5)). A
// drop-in that is a link to /dev/null or to nowhere, or a folder, has none, and masks those of its
// name in other folders.
func startLines(root host.Root, unit, file string) (lines []string, err error) {
	files := map[string]string{} // by base name: the first folder takes precedence
	for _, dir := range slices.Backward(host.UnitDirs()) {
		found := search{root: root}
		found.folder(path.Join(dir, unit+".service.d"))
		if found.err != nil {
			return nil, found.err
		}
		for _, name := range found.names {
			files[path.Base(name)] = name
		}
	}
	names := []string{file}
	names = append(names, host.Map(slices.Sorted(maps.Keys(files)), func(base string) string { return files[base] })...)
	for _, name := range names {
		text, err := root.ReadFile(name)
		if err != nil && !host.IsAbsent(err) && !errors.Is(err, host.ErrNotRegular) {
			return nil, err
		}
		// A line that ends in a backslash goes on, and comments between are left out
		// (systemd.syntax(7)).
		whole := strings.ReplaceAll(comments().ReplaceAllString(string(text), ""), "\\\n", " ")
		for line := range strings.Lines(whole) {
			switch key, value, _ := strings.Cut(line, "="); {
			case strings.TrimSpace(key) != "ExecStart":
			case strings.TrimSpace(value) == "":
				lines = nil
			default:
				lines = append(lines, line)
			}
		}
	}
	return lines, nil
}

// NewService returns a service with the units that run it below root, and the command that restarts
// them: of kolla without units, that of its container. Both are empty where neither is found.
func NewService(root host.Root, program string) (Service, error) {
	units, err := units(root, program)
	service := Service{Name: program, Units: append([]string{}, units...)}
	if err != nil {
		return service, err
	}
	s := search{root: root}
	switch {
	case len(units) > 0:
		service.Command = new("systemctl restart " + strings.Join(units, " "))
	case s.exists(kollaDir + program + "/config.json"):
		for _, engine := range []string{"podman", "docker"} {
			if s.exists("/usr/bin/" + engine) {
				service.Command = new(engine + " restart " + strings.ReplaceAll(program, "-", "_"))
			}
		}
	}
	return service, s.err
}

// Names returns the names by which an operator restarts the service: those of its units, that of
// its container, or its own where neither was found.
func (s Service) Names() []string {
	switch {
	case len(s.Units) > 0:
		return s.Units
	case s.Command != nil: // "docker restart nova_compute"
		return []string{(*s.Command)[strings.LastIndex(*s.Command, " ")+1:]}
	}
	return []string{s.Name}
}

// RestartNames returns the names by which an operator restarts programs of the journal on the
// machine below root: of their units where any are found. It is never nil without an error.
func RestartNames(root host.Root, programs []string) ([]string, error) {
	names := []string{}
	for _, program := range programs {
		service, err := NewService(root, program)
		if err != nil {
			return nil, err
		}
		names = append(names, service.Names()...)
	}
	return names, nil
}
