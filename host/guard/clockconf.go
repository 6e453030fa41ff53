package guard

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// clockConf are the files of services that use PTP clocks, by the beginning of the names of their
// units: linuxptp (ptp4l(8), phc2sys(8), ts2phc(8), timemaster(8)) and chrony (chrony.conf(5)).
// Folders stand for the files *.conf in them.
var clockConf = map[string][]string{
	"ptp4l":      {"/etc/linuxptp/ptp4l.conf", "/etc/ptp4l.conf", "/etc/sysconfig/ptp4l", "/etc/default/ptp4l"},
	"phc2sys":    {"/etc/sysconfig/phc2sys", "/etc/default/phc2sys"},
	"ts2phc":     {"/etc/linuxptp/ts2phc.conf", "/etc/ts2phc.conf", "/etc/sysconfig/ts2phc"},
	"timemaster": {"/etc/linuxptp/timemaster.conf", "/etc/timemaster.conf"},
	"chrony":     {"/etc/chrony.conf", "/etc/chrony/chrony.conf", "/etc/chrony.d", "/etc/chrony/conf.d"},
}

// clockServices adds clocks that the services enabled by links of systemd (systemd.unit(5),
// [Install]) are configured to use: their packages come with examples that name interfaces, too.
func (g *guard) clockServices(clocks map[string][]pci.Address) error {
	interfaces, err := g.interfaces()
	if err != nil {
		return err
	}
	named := maps.Clone(clocks) // functions by what configuration names
	for _, name := range interfaces {
		functions, err := g.functionsOf(name)
		if err != nil {
			return err
		}
		if len(functions) > 0 {
			named[name] = functions
		}
	}
	for _, top := range host.UnitDirs() {
		entries, err := g.entries(top)
		if err != nil {
			return err
		}
		for _, dir := range entries {
			if ext := path.Ext(dir); ext != ".wants" && ext != ".requires" {
				continue
			}
			units, err := g.entries(path.Join(top, dir))
			if err != nil {
				return err
			}
			for _, unit := range units {
				if err := g.clockService(named, path.Join(top, dir, unit)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// clockService adds the clocks of a service by the link that enables it.
func (g *guard) clockService(named map[string][]pci.Address, link string) error {
	unit := path.Base(link)
	for _, name := range slices.Sorted(maps.Keys(clockConf)) {
		if !strings.HasPrefix(unit, name) {
			continue
		}
		// ptp4l@eth2.service is about an interface.
		if _, instance, ok := strings.Cut(strings.TrimSuffix(unit, ".service"), "@"); ok {
			if err := g.carries([]string{instance}, subject{UsePTP, link, "the PTP clock of " + unit}); err != nil {
				return err
			}
		}
		files := append([]string{link}, clockConf[name]...)
		for _, dir := range host.UnitDirs() {
			files = append(files, path.Join(dir, unit+".d"))
		}
		if err := g.clockFiles(named, unit, files); err != nil {
			return err
		}
	}
	return nil
}

// clockFiles adds the clocks and interfaces that the files of a service name, and those of the
// configuration that they refer to. A folder stands for the files *.conf in it. What users without
// permission may not read is left out.
func (g *guard) clockFiles(named map[string][]pci.Address, unit string, files []string) error {
	add := func(more ...string) {
		for _, file := range more {
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	for i := 0; i < len(files); i++ {
		isFolder, err := g.isFolder(files[i])
		switch {
		case forbidden(err):
			continue
		case err != nil:
			return err
		case isFolder:
			parts, err := g.matches(path.Join(files[i], "*.conf"))
			if err != nil {
				return err
			}
			add(parts...)
			continue
		}
		lines, err := g.clockLines(files[i], named)
		if err != nil {
			return err
		}
		for number, line := range lines {
			of := subject{UsePTP, files[i], "the PTP clock of " + unit}
			for _, word := range clockWords(line) {
				g.add(host.CodeNetwork, named[word], false, "has ", of, fmt.Sprintf(": %s (%s:%d)", word, files[i], number+1))
			}
			for _, pattern := range clockReferences(line) {
				more, err := g.matches(pattern)
				if err != nil {
					return err
				}
				add(more...)
			}
		}
	}
	return nil
}

// clockLines returns the lines of a file. Those that neither name a clock or an interface nor refer
// to further configuration are empty, and are not recorded: they may have passwords. There are none
// if the file is absent, or if users without permission may not read it.
func (g *guard) clockLines(file string, named map[string][]pci.Address) ([]string, error) {
	reduce := func(data []byte) []byte {
		lines := strings.Split(string(data), "\n")
		for i, line := range lines {
			isNamed := slices.ContainsFunc(clockWords(line), func(word string) bool { return named[word] != nil })
			if !isNamed && len(clockReferences(line)) == 0 {
				lines[i] = ""
			}
		}
		return []byte(strings.Join(lines, "\n"))
	}
	data, err := g.root.ReadReduced(file, reduce)
	if host.IsAbsent(err) || errors.Is(err, unix.ENOTDIR) || forbidden(err) {
		return nil, nil
	}
	return strings.Split(string(reduce(data)), "\n"), err
}

// clockWords returns the words of a line of configuration, none of a comment.
func clockWords(line string) []string {
	if isClockComment(line) {
		return nil
	}
	return strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" \t\r=,:;\"'[]", c) })
}

// isClockComment accepts the comments of chrony.conf(5), which are those of the others too.
func isClockComment(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || strings.ContainsRune("#;!%", rune(line[0]))
}

// Lines that refer to further configuration. Keys, certificates and chrony's sourcedir, whose files
// cannot name clocks (chrony.conf(5)), are none.
var (
	clockOption      = host.LazyRegexp(`(?:^|[\s"'=])-[0-9A-Za-z]*f\s*(/[^\s"';]+)`) // ptp4l -f FILE, also of chronyd
	clockDirective   = host.LazyRegexp(`(?i)^\s*(?:include|confdir)\s+(/.*)`)        // of chrony.conf(5)
	clockEnvironment = host.LazyRegexp(`^\s*EnvironmentFile\s*=\s*-?(/.*)`)          // of systemd.exec(5)
)

// clockReferences returns the files, folders and patterns of files to which a line refers. Devices,
// as in -f /dev/null, are none.
func clockReferences(line string) (files []string) {
	if isClockComment(line) {
		return nil
	}
	for _, r := range []func() *regexp.Regexp{clockOption, clockDirective, clockEnvironment} {
		for _, m := range r().FindAllStringSubmatch(line, -1) {
			files = append(files, strings.Fields(m[1])...)
		}
	}
	return slices.DeleteFunc(files, func(file string) bool { return strings.HasPrefix(file, "/dev/") })
}

// matches returns the files that match a pattern of glob(7), and a name without one as it is.
func (g *guard) matches(pattern string) ([]string, error) {
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{pattern}, nil
	}
	dirs, err := g.matches(path.Dir(pattern))
	if err != nil {
		return nil, err
	}
	var files []string
	for _, dir := range dirs {
		names, err := g.entries(dir)
		if err != nil && !forbidden(err) {
			return nil, err
		}
		for _, name := range names {
			ok, err := path.Match(strings.ReplaceAll(path.Base(pattern), "[!", "[^"), name)
			if err != nil {
				return nil, host.OfFile(pattern, err)
			}
			if ok {
				files = append(files, path.Join(dir, name))
			}
		}
	}
	return files, nil
}

// isFolder reports whether there is a folder of a name.
func (g *guard) isFolder(name string) (bool, error) {
	dir, err := g.root.OpenDir(name)
	if host.IsAbsent(err) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, dir.Close()
}

// textOf returns the content of a file, or "" if it is absent or a folder.
func (g *guard) textOf(name string) (string, error) {
	if ok, err := g.isFolder(name); err != nil || ok {
		return "", err
	}
	data, err := g.root.ReadFile(name)
	if host.IsAbsent(err) {
		return "", nil
	}
	return string(data), err
}
