package rdmaprepare

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"gpustack/host"
)

// Mention is a line of a file by which another program may set VFs, or by which it configures
// network interfaces of a driver.
type Mention struct {
	File  string // on the machine, with links resolved
	Line  int
	Words string // that were searched for, as the line has them
}

func (m Mention) String() string { return fmt.Sprintf("%s:%d", m.File, m.Line) }

var (
	// setsVFs matches what sets VFs: attributes of sysfs (Linux,
	// Documentation/ABI/testing/sysfs-bus-pci) and of MLNX_OFED, the parameter of mlx4_core, and keys
	// of systemd.link(5), NetworkManager, nmstate, netplan(5), os-net-config and ifcfg files.
	setsVFs = host.LazyRegexp(`(?i)num[_-]?vfs|total[_-]vfs|virtualfunctions|virtual-function-count|sriov_drivers_autoprobe`)
	// ofDriver matches keys of systemd.network(5), netplan(5) and NetworkManager that select network
	// interfaces by their driver.
	ofDriver = host.LazyRegexp(`(?i)\bdriver["']?\s*[:=][\w\s\[\]"'|,;&-]+`)
)

// searched are the files and folders that tell programs to set VFs, as operators and deployment
// tools write them. What the scripts and units in them start is not searched.
func searched() []string {
	return []string{
		"/etc/NetworkManager/NetworkManager.conf", "/etc/NetworkManager/conf.d", "/etc/NetworkManager/dispatcher.d",
		"/etc/NetworkManager/system-connections", "/etc/cron.d", "/etc/cron.daily", "/etc/cron.hourly", "/etc/crontab", "/etc/init.d",
		"/etc/modprobe.d", "/etc/netplan", "/etc/network", "/etc/networkd-dispatcher", "/etc/nmstate", "/etc/os-net-config", "/etc/rc.d",
		"/etc/rc.local", "/etc/sriov-operator", "/etc/sysconfig/allocate_vfs", "/etc/sysconfig/network-scripts", "/etc/sysfs.conf",
		"/etc/sysfs.d", "/etc/systemd/network", "/etc/systemd/system", "/etc/tmpfiles.d", "/etc/udev/rules.d",
		"/usr/local/lib/systemd/network", "/usr/local/lib/systemd/system", "/var/lib/os-net-config", "/var/spool/cron",
	}
}

// FindMentions searches those files for words that set VFs or select interfaces by their driver.
// left names the files that were not searched, with the reason. Neither prevents a plan: whether
// the VFs are as recorded is read back when gpustack boot has made them.
func FindMentions(root host.Root) (found []Mention, left []string) {
	s := search{root: root, seen: map[string]bool{}}
	for _, name := range searched() {
		if place, err := root.Real(name); err == nil { // one of init.d and rc.d may be a link
			name = place
		}
		s.search(name)
	}
	return s.found, s.left
}

type search struct {
	root  host.Root
	seen  map[string]bool
	found []Mention
	left  []string
}

// search searches a file, or the files of a folder. A link to another folder is not followed: it
// may lead to any part of the machine.
func (s *search) search(name string) {
	place, err := s.root.Real(name)
	var data []byte
	if err == nil {
		if s.seen[place] || place == modprobeFile || place == "/dev/null" { // a masked unit
			return
		}
		s.seen[place] = true
		data, err = s.root.ReadReduced(place, mentioned)
	}
	if err != nil && place == name {
		if names, dirErr := s.root.ReadDir(name); dirErr == nil {
			for _, n := range names {
				s.search(path.Join(name, n))
			}
			return
		}
	}
	switch {
	case host.IsAbsent(err):
		return
	case err != nil:
		s.left = append(s.left, err.Error())
		return
	case bytes.IndexByte(data, 0) >= 0:
		s.left = append(s.left, place+": not a text")
		return
	}
	for i, line := range strings.Split(string(data), "\n") {
		if words := wordsOf(line); words != "" {
			s.found = append(s.found, Mention{place, i + 1, words})
		}
	}
}

// wordsOf returns the words of a line that are searched for, "" for a comment.
func wordsOf(line string) string {
	if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
		return ""
	}
	return strings.Join(append(setsVFs().FindAllString(line, -1), ofDriver().FindAllString(line, -1)...), " ")
}

// mentioned returns what a snapshot holds of a file: nothing but the words that are searched for,
// since the lines of scripts and connections may have passwords.
func mentioned(data []byte) []byte {
	if bytes.IndexByte(data, 0) >= 0 {
		return []byte{0}
	}
	lines, found := strings.Split(string(data), "\n"), false
	for i := range lines {
		lines[i] = wordsOf(lines[i])
		found = found || lines[i] != ""
	}
	if !found {
		return nil // nil does not replace what another reader has recorded
	}
	return []byte(strings.Join(lines, "\n"))
}
