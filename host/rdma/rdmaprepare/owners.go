package rdmaprepare

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
	Drivers   []string // the only drivers that the line is about, nil for any
}

// errOwner is the error of an adapter whose VFs another program sets.
var errOwner = host.WithHint(errors.New("already sets VFs at boot"),
	"one program has to own an adapter's VFs: remove that setting, or leave the adapter to that program")

// mayOwn reports whether a line may be about the adapter at an address with these interfaces. all
// are those of the machine: a name that none has may become that of any.
func (o Owner) mayOwn(a pci.Address, driver string, names, all []string) bool {
	if len(o.Drivers) > 0 && !slices.Contains(o.Drivers, driver) {
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

// source is a kind of files that may set VFs.
type source struct {
	dirs   []string
	suffix string // of the names of its files, "" for all
	// shadows means that a file replaces those of the same name in later folders, and that a link to
	// /dev/null removes them.
	shadows bool
	// owns, if it is not nil, reports whether a line sets VFs; section is that of an INI file, in
	// brackets.
	owns func(line, section string) bool
	// shell, if it is not nil, returns the text of a line that a shell or systemd executes, which may
	// set VFs.
	shell func(line string) string
	// subject, if it is not nil, sets what a line is about, by the file's lines and its index.
	subject func(o *Owner, lines []string, at int)
	// starts, if it is not nil, reports whether a line starts programs: scripts among its words are
	// read too.
	starts func(line string) bool
	// programs are the folders of programs that are named without one.
	programs []string
	// interpreter, if it is not empty, executes the file, whatever its first line says.
	interpreter string
}

// script is a source of scripts.
func script(dirs ...string) source { return source{dirs: dirs, shell: wholeLine, starts: anyLine} }

func wholeLine(line string) string { return line }

// hasKey reports whether a line of YAML or JSON has one of the keys.
func hasKey(line string, keys ...string) bool {
	line, _, _ = strings.Cut(line, " #")
	for _, m := range yamlKey().FindAllStringSubmatch(line, -1) {
		if slices.Contains(keys, m[1]) {
			return true
		}
	}
	return false
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
		{dirs: folders("udev/rules.d", "/etc", "/run", "/usr/lib", "/lib"), suffix: ".rules", shadows: true, owns: ruleWrites, subject: ruleSubject, starts: runsPrograms, programs: folders("udev", "/usr/lib", "/lib")},
		{dirs: folders("tmpfiles.d", "/etc", "/run", "/usr/local/lib", "/usr/lib"), suffix: ".conf", shadows: true, owns: tmpfileWrites},
		{dirs: []string{"/etc/sysfs.d"}, suffix: ".conf", owns: sysfsWrites},
		{dirs: netplanDirs(), suffix: ".yaml", shadows: true, owns: func(line, _ string) bool {
			return hasKey(line, "virtual-function-count", "embedded-switch-mode", "delay-virtual-functions-rebind")
		}, subject: func(o *Owner, lines []string, at int) { o.Names = mapping(lines, at) }},
		{dirs: []string{"/etc/os-net-config", "/var/lib/os-net-config"}, owns: func(line, _ string) bool {
			return hasKey(line, "numvfs") || strings.Contains(line, "sriov_pf")
		}, subject: listItem},
		{dirs: []string{"/etc/sriov-operator", "/etc/sriov-operator/pci"}, owns: func(line, _ string) bool {
			return strings.Contains(strings.ToLower(line), "numvfs")
		}},
	}, ifupdown(), linkFiles(), networkManager(), dispatchers(), cron(), initScripts(), nmstate())
}

// runsPrograms reports whether a rule of udev(7) starts a program.
func runsPrograms(line string) bool {
	return strings.Contains(line, "RUN") || strings.Contains(line, "PROGRAM") || strings.Contains(line, "IMPORT{program}")
}

// Matches of a rule of udev(7), against the interface and the driver that it is for.
var (
	ruleName   = host.LazyRegexp(`\b(?:KERNEL|NAME|ENV\{INTERFACE\})\s*==\s*"([^"]*)"`)
	ruleDriver = host.LazyRegexp(`\b(?:DRIVERS?|ENV\{ID_NET_DRIVER\})\s*==\s*"([^"]*)"`)
)

// ruleSubject sets what a rule of udev(7) matches. DRIVERS matches the bridges above too.
func ruleSubject(o *Owner, lines []string, at int) {
	values := func(expr *regexp.Regexp) (all []string) {
		for _, m := range expr.FindAllStringSubmatch(continued(lines, at), -1) {
			all = append(all, strings.ReplaceAll(m[1], "|", " "))
		}
		return matched(all)
	}
	o.Names = values(ruleName())
	if drivers := values(ruleDriver()); !slices.Contains(drivers, "pcieport") {
		o.Drivers = drivers
	}
}

// ifupdown are the options of interfaces(5) that run commands, and its scripts for all interfaces.
func ifupdown() []source {
	commands := []string{"up", "pre-up", "post-up", "down", "pre-down", "post-down"}
	starts := func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 1 && slices.Contains(commands, fields[0])
	}
	// An interface's options stand below iface NAME; $IFACE is its name.
	stanza := func(o *Owner, lines []string, at int) {
		for _, line := range slices.Backward(lines[:at]) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "iface" && strings.Contains(lines[at], "IFACE") {
				o.Names = fields[1:2]
				return
			}
		}
	}
	command := func(line string) string {
		if starts(line) {
			return afterFields(line, 1)
		}
		return line
	}
	return []source{
		{dirs: []string{"/etc/network", "/etc/network/interfaces.d"}, shell: command, subject: stanza, starts: starts},
		script("/etc/network/if-pre-up.d", "/etc/network/if-up.d", "/etc/network/if-down.d", "/etc/network/if-post-down.d"),
	}
}

// linkFiles are those of systemd.link(5).
func linkFiles() []source {
	return []source{{
		dirs: folders("systemd/network", "/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"), suffix: ".link", shadows: true,
		owns: func(line, section string) bool {
			return section == "[Link]" && strings.HasPrefix(line, "SR-IOVVirtualFunctions")
		},
		subject: func(o *Owner, lines []string, _ int) {
			o.Names, o.Drivers = matched(valuesOf(lines, "OriginalName")), matched(valuesOf(lines, "Driver"))
		},
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
	connection := source{owns: func(line, section string) bool {
		return section == "[sriov]" && !strings.HasPrefix(line, "[")
	}, subject: func(o *Owner, lines []string, _ int) { o.Names = valuesOf(lines, "interface-name") }}
	// Only in /etc, files without the suffix are connections too (nm-settings-keyfile(5)).
	local, others := connection, connection
	local.dirs = folders("NetworkManager/system-connections", "/etc")
	others.dirs, others.suffix = folders("NetworkManager/system-connections", "/run", "/usr/lib"), ".nmconnection"
	devices := source{owns: func(line, _ string) bool { return strings.HasPrefix(line, "sriov-num-vfs") },
		subject: func(o *Owner, lines []string, at int) { o.Names = device(lines, at) }}
	parts, main := devices, devices
	parts.dirs, parts.suffix, parts.shadows = folders("NetworkManager/conf.d", "/etc", "/run", "/usr/lib"), ".conf", true
	main.dirs, main.suffix = []string{"/etc/NetworkManager"}, "NetworkManager.conf"
	return []source{local, others, parts, main,
		{dirs: []string{"/etc/sysconfig/network-scripts"}, shell: wholeLine, owns: func(line, _ string) bool {
			name, value, _ := strings.Cut(line, "=")
			return strings.HasPrefix(name, "SRIOV_") && strings.Trim(value, `"'`) != ""
		}, subject: func(o *Owner, lines []string, _ int) { o.Names = valuesOf(lines, "DEVICE") }},
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
	return []source{script(dirs...)}
}

// cron are tables of crontab(5), and the scripts that they start.
func cron() []source {
	system := func(line string) string { return cronCommand(line, true) }
	user := func(line string) string { return cronCommand(line, false) }
	return []source{
		{dirs: []string{"/etc/cron.d"}, shell: system, starts: anyLine},
		{dirs: []string{"/etc"}, suffix: "crontab", shell: system, starts: anyLine},
		{dirs: []string{"/var/spool/cron", "/var/spool/cron/crontabs", "/var/spool/cron/tabs"}, shell: user, starts: anyLine},
	}
}

// initScripts are scripts of System V's init (init-d-script(5)).
func initScripts() []source { return []source{script("/etc/init.d", "/etc/rc.d/init.d")} }

// listItem sets the name of the item of a YAML list that contains a line: the interface of nmstate
// and os-net-config. It may stand below.
func listItem(o *Owner, lines []string, at int) {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	begins := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "- ") }
	begin := at
	for begin > 0 && (!begins(lines[begin]) || begin != at && indent(lines[begin]) >= indent(lines[at])) {
		begin--
	}
	for i := begin; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if i > begin && begins(line) && indent(lines[i]) <= indent(lines[begin]) {
			return
		}
		key, value, _ := strings.Cut(strings.TrimPrefix(line, "- "), ":")
		// A name below another key is that of something else.
		if own := indent(lines[i]); key == "name" && (i == begin || own == indent(lines[begin])+len("- ")) {
			o.Names = []string{strings.Trim(strings.TrimSpace(value), `"'`)}
			return
		}
	}
}

// nmstate are the files that nmstate.service(8) applies.
func nmstate() []source {
	owns := func(line, _ string) bool { return hasKey(line, "total-vfs") }
	return []source{
		{dirs: []string{"/etc/nmstate"}, suffix: ".yml", owns: owns, subject: listItem},
		{dirs: []string{"/etc/nmstate"}, suffix: ".yaml", owns: owns, subject: listItem},
	}
}

// singleFiles are single files that may set VFs: rc.local, what RHEL's network scripts and TripleO
// start, sysfsutils, and RHEL's rdma-core.
func singleFiles() map[string]source {
	files := map[string]source{
		"/etc/sysfs.conf":     {owns: sysfsWrites},
		"/etc/rdma/sriov-vfs": {owns: func(string, string) bool { return true }},
		"/etc/infiniband/openib.conf": {owns: func(line, _ string) bool {
			name, value, _ := strings.Cut(line, "=")
			return strings.Contains(name, "SRIOV") && !slices.Contains([]string{"", "0", "no", "n"}, strings.ToLower(strings.Trim(value, `"' `)))
		}},
	}
	for _, name := range []string{"/etc/rc.local", "/etc/rc.d/rc.local", "/etc/init.d/boot.local", "/sbin/ifup-local", "/sbin/ifup-pre-local", "/etc/sysconfig/allocate_vfs"} {
		files[name] = script()
	}
	return files
}

// ownFile reports whether gpustack wrote a file.
func ownFile(name string) bool { return strings.HasPrefix(path.Base(name), "gpustack") }

// ReadOwners returns the lines that set VFs at boot, without gpustack's own. conf is the
// configuration of modprobe without gpustack's file. A file that cannot be read is an error: it may
// set VFs.
func ReadOwners(root host.Root, conf modprobe.Conf) ([]Owner, error) {
	r := ownerReader{root: root, seen: map[string]bool{}}
	for _, s := range sources() {
		for _, name := range r.filesOf(s) {
			r.read(name, s)
		}
	}
	for _, name := range sorted(singleFiles()) {
		r.read(name, singleFiles()[name])
	}
	r.netplanLinks()
	r.units()
	r.modprobe(conf)
	for _, parameter := range []string{"num_vfs", "probe_vf"} {
		for _, option := range conf.Options(mlx4, parameter) {
			o := Owner{File: option.File, Line: option.Number, Drivers: []string{mlx4}, Text: "options " + mlx4 + " " + parameter + "=" + option.Value}
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
		if shellWrites(strings.Join(line.Rest, " "), nil) {
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
	r.errs = append(r.errs, host.OfFile(name, err))
}

func (r *ownerReader) list(dir string) []string {
	names, err := r.root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) && !errors.Is(err, unix.ENOTDIR) {
		r.fail(dir, err)
	}
	return names
}

// filesOf returns the files of a source.
func (r *ownerReader) filesOf(s source) (files []string) {
	if s.shadows {
		return r.files(s.suffix, s.dirs...)
	}
	for _, dir := range s.dirs {
		for _, name := range r.list(dir) {
			if strings.HasSuffix(name, s.suffix) {
				files = append(files, path.Join(dir, name))
			}
		}
	}
	return files
}

// files returns the files of folders with a suffix, ordered by name. A file shadows those of the
// same name in later folders.
func (r *ownerReader) files(suffix string, dirs ...string) (files []string) {
	byName := map[string]string{}
	for _, dir := range dirs {
		for _, name := range r.list(dir) {
			if _, shadowed := byName[name]; !shadowed && strings.HasSuffix(name, suffix) {
				byName[name] = path.Join(dir, name)
			}
		}
	}
	for _, name := range sorted(byName) {
		files = append(files, byName[name])
	}
	return files
}

// isNull reports whether a file is a link to /dev/null, by which an operator removes files of
// packages.
func (r *ownerReader) isNull(name string) bool {
	place, err := r.root.Resolve(name)
	return err == nil && place == r.root.Path("/dev/null")
}

// text returns the lines of a file, none if it is absent, a folder, a link to /dev/null, or was
// read before.
func (r *ownerReader) text(name string) []string {
	place, err := r.root.Resolve(name)
	if err == nil && r.seen[place] || r.isNull(name) {
		return nil
	}
	r.seen[place] = true
	data, err := r.content(name)
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

// content returns the content of a file. A snapshot holds only that such a file exists, unless
// keep follows: scripts and connections have secrets of any form.
func (r *ownerReader) content(name string) ([]byte, error) {
	return r.root.ReadReduced(name, func([]byte) []byte { return nil })
}

// keep has a snapshot hold a file of keys and values, if it has set VFs since so many owners were
// found.
func (r *ownerReader) keep(name string, found int) {
	if r.root.IsRecorded() && len(r.found) > found {
		r.root.ReadFile(name) //nolint:errcheck // was read before
	}
}

// keepCommands has a snapshot hold, of a file with commands, the lines by which it has set VFs
// since so many owners were found: its own, and those that start scripts with such lines, up to the
// name of the script. All others stay empty: arguments of programs may be secrets.
func (r *ownerReader) keepCommands(name string, found int) {
	if !r.root.IsRecorded() || len(r.found) == found {
		return
	}
	own, started := map[int]bool{}, []string{}
	for _, o := range r.found[found:] {
		if o.File == name {
			own[o.Line] = true
		} else {
			started = append(started, o.File)
		}
	}
	r.root.ReadReduced(name, func(data []byte) []byte { //nolint:errcheck // was read before
		return []byte(strings.Join(essential(strings.Split(string(data), "\n"), own, started), "\n"))
	})
}

// essential returns lines of a file with commands, of which others than those that count are empty.
// own are the numbers of the lines that set VFs, started the scripts that do.
func essential(lines []string, own map[int]bool, started []string) []string {
	kept := make([]string, len(lines))
	for i, line := range lines {
		text := strings.TrimSpace(line)
		switch {
		case own[i+1], i == 0 && strings.HasPrefix(text, "#!"), strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"),
			strings.HasPrefix(text, "Path="), namesVFs(line) && assignment().MatchString(line), own[i] && strings.HasSuffix(lines[i-1], `\`):
			kept[i] = line
			continue
		}
		for _, script := range started {
			if before, _, ok := strings.Cut(line, script); ok && kept[i] == "" {
				kept[i] = before + script
			}
		}
	}
	return kept
}

// read adds the lines of a file that set VFs.
func (r *ownerReader) read(name string, s source) {
	if ownFile(name) {
		return
	}
	if s.shell != nil {
		defer r.keepCommands(name, len(r.found))
	} else {
		defer r.keep(name, len(r.found))
	}
	section := ""
	lines := r.text(name)
	writes := s.writesOf(lines)
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
		}
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") && !strings.HasPrefix(line, ";;") { // which ends a case of a shell
			continue
		}
		if s.starts != nil && s.starts(line) {
			r.scripts(line, s.programs...)
		}
		text, set := writes(i)
		if !set && (s.owns == nil || !s.owns(line, section)) {
			continue
		}
		o := Owner{File: name, Line: i + 1, Text: line}
		if s.subject != nil {
			s.subject(&o, lines, i)
		}
		o.about(line + " " + text + " " + path.Base(name) + " " + strings.Join(matched(valuesOf(lines, "Path")), " "))
		r.found = append(r.found, o)
	}
}

// writesOf returns what reports whether a line of a file, by its index, sets VFs as a command, and
// the line with the values of its variables.
func (s source) writesOf(lines []string) func(i int) (text string, set bool) {
	if s.shell == nil {
		return func(int) (string, bool) { return "", false }
	}
	variables, spoken := variablesOf(lines), languageOf(s.interpreter, lines)
	return func(i int) (text string, set bool) {
		text = variables.expand(lines[i])
		if !namesVFs(text) {
			return "", false
		}
		switch spoken {
		case python:
			return text, pythonWrites(strings.TrimSpace(lines[i]), lines)
		case otherLanguage:
			return text, true
		}
		return text, shellWrites(s.shell(continued(lines, i)), variables)
	}
}

// continued returns a line together with those that a backslash at an end joins with it.
func continued(lines []string, at int) string {
	joins := func(line string) bool { return strings.HasSuffix(line, `\`) }
	begin, end := at, at
	for begin > 0 && joins(lines[begin-1]) {
		begin--
	}
	for end+1 < len(lines) && joins(lines[end]) {
		end++
	}
	var parts []string
	for _, line := range lines[begin : end+1] {
		parts = append(parts, strings.TrimSpace(strings.TrimSuffix(line, `\`)))
	}
	return strings.Join(parts, " ")
}

// about adds the functions and interfaces that a text names.
func (o *Owner) about(text string) {
	o.addressesIn(text, fullAddress())
	for _, m := range netPath().FindAllStringSubmatch(text, -1) {
		o.Names = append(o.Names, m[1])
	}
}

// netplanLinks adds the lines of netplan(5) that name the PF of a VF, from which netplan derives
// the number of VFs: link, in a definition of ethernets.
func (r *ownerReader) netplanLinks() {
	for _, file := range r.files(".yaml", netplanDirs()...) {
		data, err := r.content(file)
		if err != nil {
			continue // read has reported it
		}
		before := len(r.found)
		lines := strings.Split(string(data), "\n")
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "#") || !hasKey(line, "link") {
				continue
			}
			at, above := parent(lines, i)
			if at >= 0 && above != "ethernets" {
				_, above = parent(lines, at)
			}
			if above != "ethernets" {
				continue
			}
			o := Owner{File: file, Line: i + 1, Text: strings.TrimSpace(line)}
			if m := linkValue().FindStringSubmatch(line); m != nil {
				o.Names = []string{m[1]}
			}
			r.found = append(r.found, o)
		}
		r.keep(file, before)
	}
}

// parent returns the key of the YAML mapping that contains a line, and its index, or -1.
func parent(lines []string, at int) (int, string) {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	for i, above := range slices.Backward(lines[:at]) {
		if strings.TrimSpace(above) == "" || indent(above) >= indent(lines[at]) {
			continue
		}
		if m := mappingKey().FindStringSubmatch(above); m != nil {
			return i, strings.Trim(m[2], `"'`)
		}
		return -1, ""
	}
	return -1, ""
}

func netplanDirs() []string { return folders("netplan", "/run", "/etc", "/usr/lib", "/lib") }

// units adds the units, and the scripts that they start, that set VFs. Units of packages and of
// generators count if they are enabled: others are not started.
func (r *ownerReader) units() {
	enabled := r.enabledUnits()
	seen := map[string]bool{}
	for _, dir := range host.UnitDirs() {
		written := dir == "/etc/systemd/system" || dir == "/run/systemd/system"
		for _, name := range r.list(dir) {
			unit, part := strings.CutSuffix(name, ".d")
			instances, on := enabled[templateOf(unit)]
			on = on || written
			switch {
			case part && on:
				for _, file := range r.list(path.Join(dir, name)) {
					r.unit(path.Join(dir, name, file), instances)
				}
			case path.Ext(name) == ".service" && !seen[name]:
				seen[name] = true // in earlier folders
				if on {
					r.unit(path.Join(dir, name), instances)
				}
			}
		}
	}
}

// enabledUnits returns the services that other units want or require, or that a unit of the same
// name starts, as a timer does, with the instances of templates. Packages may enable their own.
func (r *ownerReader) enabledUnits() map[string][]string {
	enabled := map[string][]string{}
	for _, dir := range host.UnitDirs() {
		for _, name := range r.list(dir) {
			if ext := path.Ext(name); ext != ".wants" && ext != ".requires" {
				continue
			}
			for _, unit := range r.list(path.Join(dir, name)) {
				service := strings.TrimSuffix(unit, path.Ext(unit)) + ".service"
				_, instance, _ := strings.Cut(strings.TrimSuffix(service, ".service"), "@")
				enabled[templateOf(service)] = append(enabled[templateOf(service)], instance)
			}
		}
	}
	return enabled
}

// templateOf returns the name of the file of a unit, which may be an instance of it.
func templateOf(unit string) string {
	name, _, instance := strings.Cut(unit, "@")
	if !instance {
		return unit
	}
	return name + "@" + path.Ext(unit)
}

// unit adds a unit's lines, and those of the scripts that it starts.
func (r *ownerReader) unit(name string, instances []string) {
	if ownFile(name) || r.isNull(name) { // masked
		return
	}
	data, err := r.content(name)
	if host.IsAbsent(err) {
		return // a link to a unit that was removed
	}
	if err != nil {
		r.fail(name, err)
		return
	}
	defer r.keepCommands(name, len(r.found))
	r.read(name, source{shell: unitCommand, subject: func(o *Owner, lines []string, at int) {
		if instance := instanceName().MatchString(lines[at]); instance && !slices.Contains(instances, "") {
			o.Names = slices.Clone(instances)
		}
	}})
	// A backslash at the end of a line continues it (systemd.syntax(7)).
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
		key, command, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(key, "Exec") {
			r.scripts(command)
		}
	}
}

// scripts adds the lines of the scripts that a command names, also without one of the folders.
func (r *ownerReader) scripts(command string, folders ...string) {
	words := strings.FieldsFunc(command, func(c rune) bool { return strings.ContainsRune(" \t\"';&|()=,", c) })
	for i, word := range words {
		word = strings.TrimLeft(word, "-@:+!")
		places := []string{word}
		if !path.IsAbs(word) {
			places = nil
			for _, folder := range folders {
				places = append(places, path.Join(folder, word))
			}
		}
		// A library of a shell's functions is no script.
		sourced := i > 0 && (words[i-1] == "." || words[i-1] == "source")
		executed := script()
		executed.interpreter = interpreterOf(words[:i])
		for _, name := range places {
			begin, err := r.begin(name)
			text := !strings.Contains(begin, "\x00") && !strings.HasPrefix(name, "/dev/")
			// A file that cannot be opened is an argument, or a program that is missing: the unit cannot
			// start it. An interpreter is given no other file than a script.
			if sourced || err == nil && strings.HasPrefix(begin, "#!") || executed.interpreter != "" && text {
				r.read(name, executed)
			}
		}
	}
}

// begin returns the first bytes of a file: those of a program contain zeros.
func (r *ownerReader) begin(name string) (string, error) {
	f, err := r.root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read from
	begin := make([]byte, 64)
	n, err := f.Read(begin)
	return string(begin[:n]), err
}

// interpreterOf returns the name of the interpreter at the end of words, which may have options, or
// "". The next word is the script that it executes, or its first command.
func interpreterOf(words []string) string {
	for i, word := range slices.Backward(words) {
		if i == 0 || strings.Contains(word, "/") {
			word = path.Base(strings.TrimLeft(word, "-@:+!"))
		}
		switch {
		case interpreters().MatchString(word):
			return word
		case !strings.HasPrefix(word, "-") && (i == 0 || !withArgument().MatchString(words[i-1])):
			return ""
		}
	}
	return ""
}

// Forms of addresses in texts, and of paths and matches of network interfaces.
var (
	fullAddress  = host.LazyRegexp(`\b[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b`)
	shortAddress = host.LazyRegexp(`\b[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b`)
	netPath      = host.LazyRegexp(`\bclass/net/([^/\s"'$%{}*?\[]+)/`)
	instanceName = host.LazyRegexp(`%[iI]`)
	linkValue    = host.LazyRegexp(`\blink["']?\s*:\s*["']?([\w.-]+)`)
	yamlKey      = host.LazyRegexp(`(?:^|[\s{,"'])([a-zA-Z][a-z-]*)["']?\s*:`)
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
