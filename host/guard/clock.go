package guard

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// ptpDir is the class of PTP clocks (Linux, Documentation/ABI/testing/sysfs-ptp).
const ptpDir = "/sys/class/ptp"

// clocks adds PTP clocks of functions: those that a process has open, and those that the
// configuration of an enabled service names, or whose network interface it names.
func (g *guard) clocks() error {
	names, err := g.list(ptpDir)
	if err != nil {
		return err
	}
	clocks := map[string][]pci.Address{}
	for _, name := range names {
		target, err := g.device(ptpDir, name)
		if err != nil {
			return err
		}
		functions, err := g.functions(target)
		if err != nil {
			return err
		}
		if len(functions) > 0 { // else of the kernel, or of a hypervisor
			clocks["/dev/"+name] = functions
		}
	}
	if len(clocks) == 0 {
		return nil
	}
	return errors.Join(g.openClocks(clocks), g.clockServices(clocks))
}

// openClocks adds clocks that processes have open. Users without permission to read the descriptors
// of others get their own processes alone: they cannot change anything either.
func (g *guard) openClocks(clocks map[string][]pci.Address) error {
	pids, err := host.PIDs(g.root)
	if host.IsAbsent(err) {
		return nil
	}
	if err != nil {
		return g.cause(host.ProcDir, err)
	}
	for _, pid := range pids {
		files, err := host.Descriptors(g.root, pid)
		if host.HasEnded(err) || errors.Is(err, unix.EACCES) && os.Geteuid() != 0 {
			continue
		}
		if err != nil {
			return err
		}
		slices.Sort(files)
		for _, file := range slices.Compact(files) {
			file = strings.TrimSuffix(file, " (deleted)")
			of := subject{UsePTP, host.ProcessFile(pid, "fd"), g.command(pid)}
			g.add(host.CodeNetwork, clocks[file], false, "has the PTP clock of ", of, ", which has "+file+" open")
		}
	}
	return nil
}

// clockConf are the files of services that use PTP clocks, by the beginning of the names of their
// units: linuxptp (ptp4l(8), phc2sys(8), ts2phc(8), timemaster(8)) and chrony (chrony.conf(5)).
// Folders stand for the files in them.
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
	for _, top := range []string{"/etc/systemd/system", "/run/systemd/system"} {
		entries, err := g.list(top)
		if err != nil {
			return err
		}
		for _, dir := range entries {
			if ext := path.Ext(dir); ext != ".wants" && ext != ".requires" {
				continue
			}
			units, err := g.list(path.Join(top, dir))
			if err != nil {
				return err
			}
			for _, unit := range units {
				if err := g.clockService(clocks, path.Join(top, dir, unit)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// clockService adds the clocks of a service by the link that enables it.
func (g *guard) clockService(clocks map[string][]pci.Address, link string) error {
	unit := path.Base(link)
	for _, name := range sortedKeys(clockConf) {
		if !strings.HasPrefix(unit, name) {
			continue
		}
		// ptp4l@eth2.service is about an interface.
		if _, instance, ok := strings.Cut(strings.TrimSuffix(unit, ".service"), "@"); ok {
			if err := g.carries([]string{instance}, subject{UsePTP, link, "the PTP clock of " + unit}); err != nil {
				return err
			}
		}
		files := []string{link}
		for _, dir := range append(clockConf[name], path.Join("/etc/systemd/system", unit+".d")) {
			ok, err := g.isFolder(dir)
			if err != nil {
				return err
			}
			if !ok {
				files = append(files, dir)
				continue
			}
			parts, err := g.list(dir)
			if err != nil {
				return err
			}
			for _, part := range parts {
				files = append(files, path.Join(dir, part))
			}
		}
		if err := g.clockFiles(clocks, unit, files); err != nil {
			return err
		}
	}
	return nil
}

// isFolder reports whether there is a folder of a name.
func (g *guard) isFolder(name string) (bool, error) {
	dir, err := g.root.OpenDir(name)
	if host.IsAbsent(err) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, g.cause(name, err)
	}
	return true, dir.Close()
}

// clockFiles adds the clocks and interfaces that the files of a service name, and those of the
// files that they name (ptp4l -f FILE).
func (g *guard) clockFiles(clocks map[string][]pci.Address, unit string, files []string) error {
	for i := 0; i < len(files); i++ {
		text, err := g.textOf(files[i])
		if err != nil {
			return err
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			line = strings.TrimSpace(line)
			if line == "" || strings.ContainsRune("#;!%", rune(line[0])) { // also of chrony.conf(5)
				continue
			}
			of := subject{UsePTP, files[i], "the PTP clock of " + unit}
			at := fmt.Sprintf(" (%s:%d)", files[i], number)
			for _, word := range strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" \t=,:;\"'[]", c) }) {
				if strings.HasPrefix(word, "/etc/") && !slices.Contains(files, word) {
					files = append(files, word)
				}
				functions := clocks[word]
				if functions == nil && !strings.Contains(word, "/") {
					if functions, err = g.functionsOf(word); err != nil {
						return err
					}
				}
				g.add(host.CodeNetwork, functions, false, "has ", of, ": "+word+at)
			}
		}
	}
	return nil
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
	return string(data), g.cause(name, err)
}
