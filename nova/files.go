package nova

import (
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// The programs of Nova's services. oslo.config looks for files with the name of a program.
const (
	programAPI       = "nova-api"
	programScheduler = "nova-scheduler"
	programConductor = "nova-conductor"
	programCompute   = "nova-compute"
)

// Programs returns the programs that a machine with the role runs.
func (r Role) Programs() []string {
	var programs []string
	if r.Controls() {
		programs = append(programs, programAPI, programScheduler, programConductor)
	}
	if r.Computes() {
		programs = append(programs, programCompute)
	}
	return programs
}

// distDir contains files of RDO's packages, which oslo.config as RDO packages it reads before all
// others: nova-dist.conf and, for each program, PROGRAM-dist.conf (oslo-config-distgit of
// rdo-packages, 0001-add-usr-share-project-dist.conf-to-the-default-confi.patch).
const distDir = "/usr/share/nova"

// isPackaged reports whether a file belongs to a package, which replaces it.
func isPackaged(name string) bool {
	return path.Dir(name) == distDir
}

// dropInDir is the folder with additional configuration files of all programs (oslo.config).
const dropInDir = "nova.conf.d"

// Files returns the configuration files that the services of a role read when main is their
// nova.conf, in the order in which oslo.config reads those that it finds itself (cfg.py,
// find_config_files, find_config_dirs and _parse_config_files): nova-dist.conf and
// PROGRAM-dist.conf of RDO, main, PROGRAM.conf, nova.conf.d and PROGRAM.conf.d. [ReadBy] says which
// program reads a file. Files outside the folder of main are not among them; see [Elsewhere].
func Files(root host.Root, main string, role Role) ([]string, error) {
	dir := path.Dir(main)
	s := search{root: root}
	if main == DefaultConf {
		s.file(distDir, "nova-dist.conf")
		for _, p := range role.Programs() {
			s.file(distDir, p+"-dist.conf")
		}
	}
	s.names = append(s.names, main)
	for _, p := range role.Programs() {
		if path.Base(main) != p+".conf" {
			s.file(dir, p+".conf")
		}
	}
	s.folder(path.Join(dir, dropInDir))
	for _, p := range role.Programs() {
		s.folder(path.Join(dir, p+".conf.d"))
	}
	return s.names, s.err
}

// search collects the names of files that exist, until an error.
type search struct {
	root  host.Root
	names []string
	err   error
}

// exists reports whether a file or folder exists.
func (s *search) exists(name string) bool {
	if s.err != nil {
		return false
	}
	ok, err := s.root.Exists(name)
	if err != nil {
		s.err = err
	}
	return ok
}

func (s *search) file(dir, base string) {
	if name := path.Join(dir, base); s.exists(name) {
		s.names = append(s.names, name)
	}
}

// folder adds the files of a folder that oslo.config reads: *.conf, which does not match hidden
// files.
func (s *search) folder(dir string) {
	if s.err != nil {
		return
	}
	entries, err := s.root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		s.err = err
	}
	s.names = append(s.names, host.Map(host.Filter(entries, func(e string) bool { return path.Ext(e) == ".conf" && e[0] != '.' }),
		func(e string) string { return path.Join(dir, e) })...)
}

// ReadBy returns the only program that reads a file, or "" if every program of Nova does. Files of
// one program are PROGRAM.conf, PROGRAM-dist.conf, the files of PROGRAM.conf.d, and the files that
// kolla mounts into the container of one service. main is the nova.conf of the services, which all
// of them read whatever its name is.
func ReadBy(name, main string) string {
	for _, p := range All.Programs() {
		switch {
		case path.Base(path.Dir(name)) == p+".conf.d", strings.HasPrefix(name, kollaDir+p+"/"):
			return p
		case name != main && (path.Base(name) == p+".conf" || path.Base(name) == p+"-dist.conf"):
			return p
		}
	}
	return ""
}

// FileGroup is ".conf.d" for the files of nova.conf.d and PROGRAM.conf.d, and "" for others. Which
// group is read first depends on how a service is started: files of the folders come before the
// others where the command line names files, and after them where oslo.config finds them itself
// (oslo.config, cfg.py, _parse_config_files). Within a group the order is always that of [Files].
func FileGroup(name string) string {
	if path.Ext(path.Dir(name)) == ".d" && strings.HasSuffix(path.Dir(name), ".conf.d") {
		return ".conf.d"
	}
	return ""
}

// Stray is a file outside /etc/nova that oslo.config finds by itself, because it searches the home
// of the service's user and /etc too (oslo.config, cfg.py, _get_config_dirs).
type Stray struct {
	Name  string
	Hides string   // the file or folder of /etc/nova that is not read because of it; "" for none
	Files []string // Name, or the files of that folder
}

// Elsewhere returns the files and folders outside /etc/nova that services of the role read unless
// they are started with --config-file: of each name only the first that is found counts, in
// ~/.nova, in ~, in /etc/nova and in /etc. A service reads a folder, PROGRAM.conf.d or nova.conf.d,
// unless it is started with --config-dir.
func Elsewhere(root host.Root, role Role) ([]Stray, error) {
	const etc = "/etc/nova"
	home, err := homeOf(root, "nova")
	if err != nil {
		return nil, err
	}
	var before []string
	if home != "" {
		before = []string{path.Join(home, ".nova"), home}
	}
	s := search{root: root}
	var strays []Stray
	for _, base := range append([]string{"nova"}, role.Programs()...) {
		for _, extension := range []string{".conf", ".conf.d"} {
			name := base + extension
			there := s.exists(path.Join(etc, name))
			var stray Stray
			i := slices.IndexFunc(before, func(dir string) bool { return s.exists(path.Join(dir, name)) })
			switch {
			case i >= 0 && there:
				stray = Stray{Name: path.Join(before[i], name), Hides: path.Join(etc, name)}
			case i >= 0:
				stray.Name = path.Join(before[i], name)
			case !there && s.exists(path.Join("/etc", name)):
				stray.Name = path.Join("/etc", name)
			default:
				continue
			}
			if extension == ".conf" {
				s.names = append(s.names, stray.Name)
			} else {
				s.folder(stray.Name)
			}
			stray.Files, s.names = s.names, nil
			strays = append(strays, stray)
		}
	}
	return strays, s.err
}

// homeOf returns the home of a user below root, or "" if there is no such user (passwd(5)).
func homeOf(root host.Root, user string) (string, error) {
	const passwd = "/etc/passwd"
	text, err := host.IfPresent(root.ReadFile(passwd))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSpace(line), ":"); fields[0] == user && len(fields) > 5 && path.IsAbs(fields[5]) {
			return path.Clean(fields[5]), nil
		}
	}
	return "", nil
}
