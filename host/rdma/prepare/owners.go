package prepare

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Owner is a line of a file that sets VFs at boot: a second owner of the same adapter would undo
// what gpustack boot does, or the other way round.
type Owner struct {
	File string // on the machine
	Line int    // 0 for the whole file
	Text string // of the line
	// Functions and Names are the functions and the network interfaces that the line is about. None
	// of both means that it may be about any.
	Functions []pci.Address
	Names     []string
	Driver    string // the only driver that the line is about, or ""
}

// ErrOwner is the error of an adapter whose VFs another program sets.
var ErrOwner = host.WithHint(errors.New("already sets VFs at boot"),
	"one program has to own an adapter's VFs: remove that setting, or leave the adapter to that program")

// mayOwn reports whether a line may be about the adapter at an address with these interfaces. all
// are those of the machine: a name that none has may become that of any.
func (o Owner) mayOwn(a pci.Address, driver string, names, all []string) bool {
	if o.Driver != "" && o.Driver != driver {
		return false
	}
	if slices.Contains(o.Functions, a) || slices.ContainsFunc(o.Names, func(n string) bool { return slices.Contains(names, n) }) {
		return true
	}
	known := len(o.Functions) > 0 || slices.ContainsFunc(o.Names, func(n string) bool { return slices.Contains(all, n) })
	return !known
}

func (o Owner) String() string {
	if o.Line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

// vfFile is the attribute that sets the number of VFs (Linux,
// Documentation/ABI/testing/sysfs-bus-pci), as rules, units and scripts write to it.
const vfFile = "sriov_numvfs"

// source is a kind of files that may set VFs.
type source struct {
	dirs   []string
	suffix string // of the names of its files, "" for all
	// owns reports whether a line sets VFs; section is that of an INI file, in brackets.
	owns func(line, section string) bool
	// subject, if it is not nil, returns the interfaces that a line is about, by the file's lines and
	// its index.
	subject func(lines []string, at int) []string
	// starts, if it is not nil, reports whether a line starts programs: scripts among its words are
	// read too.
	starts func(line string) bool
	// programs are the folders of programs that are named without one.
	programs []string
}

func writesVFs(line, _ string) bool { return strings.Contains(line, vfFile) }

func hasKey(line string, keys ...string) bool {
	name, _, ok := strings.Cut(line, ":")
	name = strings.Trim(strings.TrimPrefix(strings.TrimSpace(name), "- "), `"' {`)
	return ok && slices.Contains(keys, name)
}

func folders(name string, tops ...string) (dirs []string) {
	for _, top := range tops {
		dirs = append(dirs, path.Join(top, name))
	}
	return dirs
}

func anyLine(string) bool { return true }

// sources are the files that set VFs: rules of udev(7) and the scripts that they run,
// tmpfiles.d(5), sysfsutils, netplan(5), os-net-config, the SR-IOV network operator, and those of
// the functions below.
func sources() []source {
	return slices.Concat([]source{
		{dirs: folders("udev/rules.d", "/etc", "/run", "/usr/lib", "/lib"), suffix: ".rules", owns: writesVFs, starts: runsPrograms, programs: folders("udev", "/usr/lib", "/lib")},
		{dirs: folders("tmpfiles.d", "/etc", "/run", "/usr/lib"), suffix: ".conf", owns: writesVFs},
		{dirs: []string{"/etc/sysfs.d"}, suffix: ".conf", owns: writesVFs},
		{dirs: folders("netplan", "/etc", "/run", "/lib", "/usr/lib"), suffix: ".yaml", owns: func(line, _ string) bool {
			return hasKey(line, "virtual-function-count", "embedded-switch-mode", "delay-virtual-functions-rebind")
		}, subject: mapping},
		{dirs: []string{"/etc/os-net-config", "/var/lib/os-net-config"}, owns: func(line, _ string) bool {
			return hasKey(line, "numvfs") || strings.Contains(line, "sriov_pf")
		}},
		{dirs: []string{"/etc/sriov-operator", "/etc/sriov-operator/pci"}, owns: func(line, _ string) bool {
			return strings.Contains(strings.ToLower(line), "numvfs")
		}},
	}, ifupdown(), linkFiles(), networkManager(), dispatchers(), cron(), initScripts(), nmstate())
}

// runsPrograms reports whether a rule of udev(7) starts a program.
func runsPrograms(line string) bool {
	return strings.Contains(line, "RUN") || strings.Contains(line, "PROGRAM") || strings.Contains(line, "IMPORT{program}")
}

// ifupdown are the options of interfaces(5) that run commands, and its scripts for all interfaces.
func ifupdown() []source {
	commands := []string{"up", "pre-up", "post-up", "down", "pre-down", "post-down"}
	starts := func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 1 && slices.Contains(commands, fields[0])
	}
	// An interface's options stand below iface NAME; $IFACE is its name.
	stanza := func(lines []string, at int) []string {
		for _, line := range slices.Backward(lines[:at]) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "iface" && strings.Contains(lines[at], "IFACE") {
				return fields[1:2]
			}
		}
		return nil
	}
	return []source{
		{dirs: []string{"/etc/network", "/etc/network/interfaces.d"}, owns: writesVFs, subject: stanza, starts: starts},
		{dirs: []string{"/etc/network/if-pre-up.d", "/etc/network/if-up.d", "/etc/network/if-down.d", "/etc/network/if-post-down.d"}, owns: writesVFs},
	}
}

// linkFiles are those of systemd.link(5).
func linkFiles() []source {
	return []source{{
		dirs: folders("systemd/network", "/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"), suffix: ".link",
		owns: func(line, section string) bool {
			return section == "[Link]" && strings.HasPrefix(line, "SR-IOVVirtualFunctions")
		},
		subject: func(lines []string, _ int) []string { return matched(valuesOf(lines, "OriginalName")) },
	}}
}

// matched returns the names of a match, none if one is a pattern.
func matched(values []string) (names []string) {
	for _, value := range values {
		names = append(names, strings.Fields(value)...)
	}
	if slices.ContainsFunc(names, func(n string) bool { return strings.ContainsAny(n, "*?[!") }) {
		return nil
	}
	return names
}

// networkManager are connections (nm-settings-keyfile(5), [sriov]; ifcfg files, SRIOV_TOTAL_VFS)
// and devices (NetworkManager.conf(5), sriov-num-vfs).
func networkManager() []source {
	device := func(lines []string, at int) (names []string) {
		for _, line := range slices.Backward(lines[:at]) {
			if strings.HasPrefix(strings.TrimSpace(line), "[") {
				break
			}
			for _, value := range valuesOf([]string{line}, "match-device") {
				for spec := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ';' }) {
					name, ok := strings.CutPrefix(spec, "interface-name:")
					if !ok {
						return nil // by driver, type or hardware address
					}
					names = append(names, strings.TrimPrefix(name, "="))
				}
			}
		}
		return matched(names)
	}
	devices := func(line, _ string) bool { return strings.HasPrefix(line, "sriov-num-vfs") }
	return []source{
		{dirs: folders("NetworkManager/system-connections", "/etc", "/run", "/usr/lib"), suffix: ".nmconnection", owns: func(line, section string) bool {
			return section == "[sriov]" && !strings.HasPrefix(line, "[")
		}, subject: func(lines []string, at int) []string { return valuesOf(lines[:at], "interface-name") }},
		{dirs: []string{"/etc/sysconfig/network-scripts"}, owns: func(line, _ string) bool {
			name, value, _ := strings.Cut(line, "=")
			return strings.HasPrefix(name, "SRIOV_") && strings.Trim(value, `"'`) != ""
		}, subject: func(lines []string, at int) []string { return valuesOf(lines[:at], "DEVICE") }},
		{dirs: folders("NetworkManager/conf.d", "/etc", "/run", "/usr/lib"), suffix: ".conf", owns: devices, subject: device},
		{dirs: []string{"/etc/NetworkManager"}, suffix: "NetworkManager.conf", owns: devices, subject: device},
	}
}

// dispatchers are scripts of NetworkManager-dispatcher(8) and networkd-dispatcher(8).
func dispatchers() []source {
	var dirs []string
	for _, dir := range folders("NetworkManager/dispatcher.d", "/etc", "/usr/lib") {
		dirs = append(dirs, dir, dir+"/pre-up.d", dir+"/pre-down.d", dir+"/no-wait.d")
	}
	for _, dir := range folders("networkd-dispatcher", "/etc", "/usr/lib") {
		for _, state := range []string{"carrier", "configured", "configuring", "degraded", "dormant", "no-carrier", "off", "routable"} {
			dirs = append(dirs, dir+"/"+state+".d")
		}
	}
	return []source{{dirs: dirs, owns: writesVFs}}
}

// cron are tables of crontab(5), and the scripts that they start at boot.
func cron() []source {
	atBoot := func(line string) bool { return strings.HasPrefix(line, "@reboot") }
	return []source{
		{dirs: []string{"/etc/cron.d", "/var/spool/cron", "/var/spool/cron/crontabs", "/var/spool/cron/tabs"}, owns: writesVFs, starts: atBoot},
		{dirs: []string{"/etc"}, suffix: "crontab", owns: writesVFs, starts: atBoot},
	}
}

// initScripts are scripts of System V's init (init-d-script(5)).
func initScripts() []source {
	return []source{{dirs: []string{"/etc/init.d", "/etc/rc.d/init.d"}, owns: writesVFs}}
}

// nmstate are the files that nmstate.service(8) applies. An interface's name may stand below.
func nmstate() []source {
	item := func(lines []string, at int) []string {
		indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
		begin := at
		for begin > 0 && (!strings.HasPrefix(strings.TrimSpace(lines[begin]), "- ") || indent(lines[begin]) >= indent(lines[at])) {
			begin--
		}
		for i := begin; i < len(lines); i++ {
			line := strings.TrimSpace(lines[i])
			if i > begin && strings.HasPrefix(line, "- ") && indent(lines[i]) <= indent(lines[begin]) {
				break
			}
			key, value, _ := strings.Cut(strings.TrimPrefix(line, "- "), ":")
			// A name below another key is that of something else.
			if own := indent(lines[i]); key == "name" && (i == begin || own == indent(lines[begin])+len("- ")) {
				return []string{strings.Trim(strings.TrimSpace(value), `"'`)}
			}
		}
		return nil
	}
	owns := func(line, _ string) bool { return hasKey(line, "total-vfs") }
	return []source{
		{dirs: []string{"/etc/nmstate"}, suffix: ".yml", owns: owns, subject: item},
		{dirs: []string{"/etc/nmstate"}, suffix: ".yaml", owns: owns, subject: item},
	}
}

// singleFiles are single files that may set VFs, of rc.local, sysfsutils and RHEL's rdma-core.
func singleFiles() map[string]func(line, section string) bool {
	return map[string]func(line, section string) bool{
		"/etc/rc.local": writesVFs, "/etc/rc.d/rc.local": writesVFs, "/etc/init.d/boot.local": writesVFs, "/etc/sysfs.conf": writesVFs,
		"/etc/rdma/sriov-vfs": func(string, string) bool { return true },
		"/etc/infiniband/openib.conf": func(line, _ string) bool {
			name, value, _ := strings.Cut(line, "=")
			return strings.Contains(name, "SRIOV") && !slices.Contains([]string{"", "0", "no", "n"}, strings.ToLower(strings.Trim(value, `"' `)))
		},
	}
}

// ownFile reports whether gpustack wrote a file.
func ownFile(name string) bool { return strings.HasPrefix(path.Base(name), "gpustack") }

// ReadOwners returns the lines that set VFs at boot, without gpustack's own. conf is the
// configuration of modprobe without gpustack's file. A file that cannot be read is an error: it may
// set VFs.
func ReadOwners(root host.Root, conf modprobe.Conf) ([]Owner, error) {
	r := ownerReader{root: root, seen: map[string]bool{}}
	for _, s := range sources() {
		for _, dir := range s.dirs {
			for _, name := range r.list(dir) {
				if strings.HasSuffix(name, s.suffix) {
					r.read(path.Join(dir, name), s)
				}
			}
		}
	}
	for _, name := range sorted(singleFiles()) {
		r.read(name, source{owns: singleFiles()[name], starts: anyLine})
	}
	r.units()
	r.modprobe(conf)
	for _, parameter := range []string{"num_vfs", "probe_vf"} {
		for _, option := range conf.Options(mlx4, parameter) {
			o := Owner{File: option.File, Line: option.Number, Driver: mlx4, Text: "options " + mlx4 + " " + parameter + "=" + option.Value}
			o.addressesIn(option.Value, shortAddress())
			r.found = append(r.found, o)
		}
	}
	return r.found, errors.Join(r.errs...)
}

// modprobe adds the commands of modprobe.d(5) that set VFs, and the scripts that they start.
func (r *ownerReader) modprobe(conf modprobe.Conf) {
	for _, line := range conf {
		if line.Command != "install" && line.Command != "remove" {
			continue
		}
		text := strings.Join(append([]string{line.Command, line.Module}, line.Rest...), " ")
		if writesVFs(text, "") {
			o := Owner{File: line.File, Line: line.Number, Text: text}
			o.about(text)
			r.found = append(r.found, o)
		}
		r.scripts(text)
	}
}

type ownerReader struct {
	root  host.Root
	seen  map[string]bool // files by their path without links, as /lib and /usr/lib are often one
	found []Owner
	errs  []error
}

func (r *ownerReader) fail(name string, err error) {
	r.errs = append(r.errs, fmt.Errorf("%s: %w", name, host.Cause(err)))
}

func (r *ownerReader) list(dir string) []string {
	names, err := r.root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) && !errors.Is(err, unix.ENOTDIR) {
		r.fail(dir, err)
	}
	return names
}

// text returns the lines of a file, none if it is absent, a folder, or was read before.
func (r *ownerReader) text(name string) []string {
	place, err := r.root.Resolve(name)
	if err == nil && r.seen[place] {
		return nil
	}
	r.seen[place] = true
	data, err := r.root.ReadFile(name)
	switch {
	case host.IsAbsent(err):
		return nil
	case err != nil:
		if _, dirErr := r.root.ReadDir(name); dirErr == nil {
			return nil
		}
		r.fail(name, err)
		return nil
	}
	return strings.Split(string(data), "\n")
}

// read adds the lines of a file that set VFs.
func (r *ownerReader) read(name string, s source) {
	if ownFile(name) {
		return
	}
	section := ""
	lines := r.text(name)
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if s.starts != nil && s.starts(line) {
			r.scripts(line, s.programs...)
		}
		if !s.owns(line, section) {
			continue
		}
		o := Owner{File: name, Line: i + 1, Text: line}
		if s.subject != nil {
			o.Names = s.subject(lines, i)
		}
		o.about(line + " " + path.Base(name) + " " + strings.Join(matched(valuesOf(lines, "Path")), " "))
		r.found = append(r.found, o)
	}
}

// about adds the functions and interfaces that a text names.
func (o *Owner) about(text string) {
	o.addressesIn(text, fullAddress())
	for _, m := range netPath().FindAllStringSubmatch(text, -1) {
		o.Names = append(o.Names, m[1])
	}
}

// unitDirs are the folders of systemd's units (systemd.unit(5)). Units of packages, in the last
// ones, count if they are enabled: others are not started.
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// units adds the units, and the scripts that they start, that set VFs.
func (r *ownerReader) units() {
	enabled := map[string]bool{}
	for _, dir := range unitDirs[:3] {
		for _, name := range r.list(dir) {
			if ext := path.Ext(name); ext == ".wants" || ext == ".requires" {
				for _, unit := range r.list(path.Join(dir, name)) {
					enabled[unit] = true
				}
			}
		}
	}
	for i, dir := range unitDirs {
		for _, name := range r.list(dir) {
			switch {
			case i >= 2 && !enabled[name]:
			case path.Ext(name) == ".service":
				r.unit(path.Join(dir, name))
			case path.Ext(name) == ".d" && i < 2:
				for _, part := range r.list(path.Join(dir, name)) {
					r.unit(path.Join(dir, name, part))
				}
			}
		}
	}
}

// unit adds a unit's lines, and those of the scripts that it starts.
func (r *ownerReader) unit(name string) {
	place, err := r.root.Resolve(name)
	if err != nil || ownFile(name) || place == r.root.Path("/dev/null") { // masked
		return
	}
	data, err := r.root.ReadFile(name)
	if host.IsAbsent(err) {
		return // a link to a unit that was removed
	}
	if err != nil {
		r.fail(name, err)
		return
	}
	r.read(name, source{owns: writesVFs})
	// A backslash at the end of a line continues it (systemd.syntax(7)).
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
		key, command, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(key, "ExecStart") {
			r.scripts(command)
		}
	}
}

// scripts adds the lines of the scripts that a command names, also without one of the folders.
func (r *ownerReader) scripts(command string, folders ...string) {
	words := strings.FieldsFunc(command, func(c rune) bool { return strings.ContainsRune(" \t\"';&|()=,", c) })
	for _, word := range words {
		word = strings.TrimLeft(word, "-@:+!")
		places := []string{word}
		if !path.IsAbs(word) {
			places = nil
			for _, folder := range folders {
				places = append(places, path.Join(folder, word))
			}
		}
		for _, name := range places {
			if r.isScript(name) {
				r.read(name, source{owns: writesVFs})
			}
		}
	}
}

// isScript reports whether a file begins as a script does.
func (r *ownerReader) isScript(name string) bool {
	f, err := r.root.Open(name)
	if err != nil {
		return false // an argument, or a program that is missing: the unit cannot start it
	}
	defer f.Close() //nolint:errcheck // only read from
	begin := make([]byte, 2)
	n, err := f.Read(begin)
	return err == nil && string(begin[:n]) == "#!"
}

// Forms of addresses in texts, and of paths and matches of network interfaces.
var (
	fullAddress  = host.LazyRegexp(`\b[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b`)
	shortAddress = host.LazyRegexp(`\b[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b`)
	netPath      = host.LazyRegexp(`/sys/class/net/([^/\s"'$%{}*]+)/`)
	mappingKey   = host.LazyRegexp(`^(\s*)([^\s:#-][^:]*):\s*$`)
)

// addressesIn adds the addresses that an expression finds in a text.
func (o *Owner) addressesIn(text string, expr *regexp.Regexp) {
	for _, word := range expr.FindAllString(text, -1) {
		if a, err := pci.ParseAddress(word); err == nil {
			o.Functions = append(o.Functions, a)
		}
	}
}

// valuesOf returns the values of a key of an INI or shell file.
func valuesOf(lines []string, key string) (values []string) {
	for _, line := range lines {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.TrimSpace(name) == key {
			values = append(values, strings.Trim(strings.TrimSpace(value), `"'`))
		}
	}
	return values
}

// mapping returns the key of the YAML mapping that contains a line, which in netplan is the
// interface, unless a match gives it another name.
func mapping(lines []string, at int) []string {
	before, line := lines[:at], lines[at]
	indent := len(line) - len(strings.TrimLeft(line, " "))
	for _, above := range slices.Backward(before) {
		own := len(above) - len(strings.TrimLeft(above, " "))
		if strings.TrimSpace(above) == "" || own > indent {
			continue
		}
		m := mappingKey().FindStringSubmatch(above)
		switch {
		case own == indent && strings.HasPrefix(strings.TrimSpace(above), "match:"):
			return nil // the key is only a name in netplan
		case own < indent && m == nil:
			return nil
		case own < indent:
			return []string{strings.Trim(m[2], `"'`)}
		}
	}
	return nil
}
