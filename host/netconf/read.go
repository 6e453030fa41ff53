package netconf

import (
	"errors"
	"maps"
	"net"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Read returns the configuration of systemd-networkd, netplan, NetworkManager, ifupdown and ifcfg
// files that gives addresses or puts an interface on others, what is configured in /run last. A
// file that cannot be read or parsed is a *FileError. Only these lines are recorded: others may
// have passwords.
func Read(root host.Root) ([]Network, error) {
	r := reader{root: root, seen: map[string]bool{}}
	r.networkd()
	r.netplan()
	r.manager()
	r.ifupdown()
	r.ifcfg()
	slices.SortStableFunc(r.networks, func(a, b Network) int { return generated(a.File) - generated(b.File) })
	return r.networks, errors.Join(r.errs...)
}

// generated returns 1 for a file that a program generates at each boot.
func generated(file string) int {
	if strings.HasPrefix(file, "/run/") {
		return 1
	}
	return 0
}

type reader struct {
	root     host.Root
	seen     map[string]bool // files by their path without links, as /lib and /usr/lib are often one
	networks []Network
	errs     []error
}

// FileError is the error of a file that cannot be read or parsed.
type FileError struct {
	File  string
	place string // the file, and its line if that is known
	err   error
}

func (e *FileError) Error() string { return e.place + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.err }

// Hint returns the cure.
func (*FileError) Hint() string {
	return "correct the file: what cannot be read may give an address to any interface"
}

func (r *reader) fail(name string, err error) {
	r.errs = append(r.errs, &FileError{name, name, host.Cause(err)})
}

// list returns the names in a folder, or none if it is absent or no folder.
func (r *reader) list(dir string) []string {
	names, err := r.root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) && !errors.Is(err, unix.ENOTDIR) {
		r.fail(dir, err)
	}
	slices.Sort(names)
	return names
}

// text returns the lines of a file, none if it is absent, a folder, a link to /dev/null, by which
// operators remove files of packages, or was read before. keep returns what a recorder gets of it,
// with the same lines.
func (r *reader) text(name string, keep func([]byte) []byte) []string {
	place, err := r.root.Resolve(name)
	if err == nil && (r.seen[place] || place == r.root.Path("/dev/null")) {
		return nil
	}
	r.seen[place] = true
	data, err := r.root.ReadReduced(name, func(data []byte) []byte { return withVFs(data, keep(data)) })
	switch {
	case host.IsAbsent(err):
		return nil
	case err != nil:
		if _, dirErr := r.root.ReadDir(name); dirErr != nil {
			r.fail(name, err)
		}
		return nil
	}
	return strings.Split(string(data), "\n")
}

// vfSetting matches lines that may set the number of VFs of an adapter, which rdma prepare reads of
// the same files.
var vfSetting = host.LazyRegexp(`num_?vfs|total-vfs|sriov-num-vfs|SR-IOV|virtual-function|embedded-switch-mode`)

// withVFs adds to what a recorder gets of a file the lines that may set VFs: it has one content of
// each file, whichever package reads it. A text with other lines, as of a malformed file, stays.
func withVFs(data, kept []byte) []byte {
	lines, result := strings.Split(string(data), "\n"), strings.Split(string(kept), "\n")
	if len(lines) != len(result) {
		return kept
	}
	for i, line := range lines {
		if vfSetting().MatchString(line) {
			result[i] = line
		}
	}
	return []byte(strings.Join(result, "\n"))
}

// keepLines returns a text in which the other lines are empty.
func keepLines(keep func(line string) bool) func([]byte) []byte {
	return func(data []byte) []byte {
		lines := strings.Split(string(data), "\n")
		for i, line := range lines {
			if !keep(strings.TrimSpace(line)) {
				lines[i] = ""
			}
		}
		return []byte(strings.Join(lines, "\n"))
	}
}

func folders(name string, tops ...string) (dirs []string) {
	for _, top := range tops {
		dirs = append(dirs, path.Join(top, name))
	}
	return dirs
}

// files returns the files of folders with a suffix, ordered by name. A file shadows those of the
// same name in later folders.
func (r *reader) files(suffix string, dirs ...string) (files []string) {
	byName := map[string]string{}
	var names []string
	for _, dir := range dirs {
		for _, name := range r.list(dir) {
			if _, shadowed := byName[name]; !shadowed && strings.HasSuffix(name, suffix) {
				byName[name] = path.Join(dir, name)
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range names {
		files = append(files, byName[name])
	}
	return files
}

// setting is a line of an INI or shell file.
type setting struct {
	section, key, value string
	file                string
	line                int
}

// settings returns the settings of a file. keys are those that a recorder gets.
func (r *reader) settings(file string, keys ...string) (all []setting) {
	keep := func(line string) bool {
		key, _, ok := strings.Cut(line, "=")
		return strings.HasPrefix(line, "[") || ok && slices.Contains(keys, strings.TrimRight(strings.TrimSpace(key), "0123456789_"))
	}
	section := ""
	for i, line := range r.text(file, keepLines(keep)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
		}
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			all = append(all, setting{section, strings.TrimSpace(key), strings.TrimSpace(value), file, i + 1})
		}
	}
	return all
}

// add adds configuration that a line gives addresses by, unless another line of the same kind has.
func (r *reader) add(n Network, file string, line int, text string, static bool) {
	if slices.ContainsFunc(r.networks, func(o Network) bool {
		return o.File == file && o.Static == static && o.Text == text && o.Upper == n.Upper && slices.Equal(o.Names, n.Names)
	}) {
		return
	}
	n.File, n.Line, n.Text, n.Static = file, line, text, static
	r.networks = append(r.networks, n)
}

// put adds configuration that puts an interface on those which match, by a line.
func (r *reader) put(upper string, n Network, file string, line int, text string) {
	n.Upper = upper
	r.add(n, file, line, text, false)
}

// paths returns the udev property ID_PATH of functions, with text before each.
func paths(vfs []pci.Address, before string) (paths []string) {
	for _, vf := range vfs {
		paths = append(paths, before+"pci-"+vf.String())
	}
	return paths
}

// byName returns what excludes VFs from configuration that has names only.
func byName(_ []pci.Address, name string) string {
	return "match the adapter by its name: '" + name + "'"
}

// networkd reads systemd.network(5), with the files in its folders NAME.network.d. It attaches a
// port whatever ActivationPolicy= says.
func (r *reader) networkd() {
	uppers := []string{"Bond", "Bridge", "VRF", "BatmanAdvanced", "VLAN", "MACVLAN", "MACVTAP", "IPVLAN", "IPVTAP", "IPoIB", "MACsec", "VXLAN", "Tunnel", "Xfrm"}
	tops := []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"}
	keys := []string{"Name", "Driver", "Path", "Type", "MACAddress", "PermanentMACAddress", "Kind", "SSID", "BSSID", "WLANInterfaceType", "Address",
		"DHCP", "Unmanaged", "ActivationPolicy", "RequiredForOnline"}
	keys = append(keys, uppers...)
	for _, file := range r.files(".network", folders("systemd/network", tops...)...) {
		n := Network{Exclude: func(vfs []pci.Address, _ string) string {
			return "add 'Path=!" + strings.Join(paths(vfs, ""), " ") + "' to [Match]"
		}}
		settings, other, kinds := r.settings(file, keys...), false, map[string][]string{}
		for _, part := range r.files(".conf", folders("systemd/network/"+path.Base(file)+".d", tops...)...) {
			settings = append(settings, r.settings(part, keys...)...)
		}
		for _, s := range settings {
			switch s.section + "/" + s.key {
			case "Match/Name":
				n.Names = extended(n.Names, s.value)
			case "Match/Driver":
				n.Drivers = extended(n.Drivers, s.value)
			case "Match/Path":
				n.Paths = extended(n.Paths, s.value)
			case "Match/Type":
				n.Types = extended(n.Types, s.value)
			case "Match/MACAddress", "Match/PermanentMACAddress":
				n.Addresses = append(n.Addresses, strings.Fields(s.value)...)
			case "Match/Kind", "Match/SSID", "Match/BSSID", "Match/WLANInterfaceType":
				kinds[s.key] = extended(kinds[s.key], s.value)
			case "Link/Unmanaged":
				other = other || isTrue(s.value)
			case "Link/ActivationPolicy":
				n.OnDemand = slices.Contains([]string{"manual", "down", "always-down"}, s.value)
			case "Link/RequiredForOnline":
				n.Optional = isFalse(s.value)
			}
		}
		other = other || !n.ofHardware(kinds)
		for _, s := range settings {
			text := s.key + "=" + s.value
			switch {
			case other:
			case s.section == "Network" && slices.Contains(uppers, s.key) && s.value != "":
				always := n
				always.OnDemand = false
				r.put(s.value, always, s.file, s.line, text)
			case s.key == "Address" && (s.section == "Network" || s.section == "Address"):
				r.add(n, s.file, s.line, text, true)
			case s.key == "DHCP" && s.section == "Network" && s.value != "" && !strings.EqualFold(s.value, "none") && !isFalse(s.value):
				r.add(n, s.file, s.line, text, false)
			}
		}
	}
}

// extended returns a list of networkd with the patterns of a further line (config_parse_match_strv
// in net-condition.c): "!" inverts all of a line, and a line without any empties the list.
func extended(list []string, line string) []string {
	if line == "" {
		return nil
	}
	line, not := strings.CutPrefix(line, "!")
	for _, pattern := range strings.Fields(line) {
		if not {
			pattern = "!" + pattern
		}
		list = append(list, pattern)
	}
	return list
}

// ofHardware reports whether lists of kinds, by key, match hardware with a cable. It has none of
// them, so that only inverted lists do. InfiniBand is the exception: in newer kernels it is of the
// kind ipoib (ipoib_add_port in drivers/infiniband/ulp/ipoib/ipoib_main.c).
func (n *Network) ofHardware(kinds map[string][]string) bool {
	none := func(string) bool { return false }
	ipoib := func(pattern string) bool { return Fits(pattern, "ipoib") }
	for _, key := range slices.Sorted(maps.Keys(kinds)) {
		list := kinds[key]
		if Matches(list, none) {
			continue
		}
		if key != "Kind" || !Matches(list, ipoib) || !Matches(n.Types, func(pattern string) bool { return Fits(pattern, "infiniband") }) {
			return false
		}
		n.Types = []string{"infiniband"}
	}
	return true
}

func isFalse(value string) bool {
	return slices.Contains([]string{"false", "no", "off", "n", "0"}, strings.ToLower(value))
}

func isTrue(value string) bool {
	return slices.Contains([]string{"true", "yes", "on", "y", "1"}, strings.ToLower(value))
}

// connections returns NetworkManager's connections. A file shadows those of the same name in later
// folders. Only in /etc, files without the suffix are connections too.
func (r *reader) connections() []string {
	dirs := folders("NetworkManager/system-connections", "/etc", "/run", "/usr/lib")
	files := r.files(".nmconnection", dirs...)
	for _, file := range r.files("", dirs[0]) {
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

// connection is one of NetworkManager's.
type connection struct {
	Network
	settings []setting
	file     string
	kind     string // its type
	hardware bool   // it is for interfaces of hardware
	uuid     string
	ports    bool // it brings up its ports
}

// device returns the interface of a connection, or its name if the interface has none yet.
func (c connection) device() string {
	if len(c.Names) > 0 {
		return c.Names[0]
	}
	return strings.TrimSuffix(path.Base(c.file), ".nmconnection")
}

// manager reads connections of NetworkManager (nm-settings-keyfile(5)). One without a name of an
// interface is for any. NetworkManager makes a connection in /run, with the lowest priority, for
// each interface that has none (NetworkManager.conf(5), no-auto-default).
func (r *reader) manager() {
	var all []connection
	for _, file := range r.connections() {
		all = append(all, r.connection(file))
	}
	for _, c := range all {
		for _, s := range c.settings {
			text := s.key + "=" + s.value
			lower := Network{OnDemand: c.OnDemand, Exclude: c.Exclude}
			switch {
			case s.key == "parent" && s.value != "":
				lower.onParent(s.value, all)
				r.put(c.device(), lower, c.file, s.line, text)
			case s.key == "mac-address" && (c.kind == "vlan" || c.kind == "macvlan"):
				lower.Addresses = []string{s.value}
				r.put(c.device(), lower, c.file, s.line, text)
			case !c.hardware:
			case s.section == "connection" && (s.key == "controller" || s.key == "master") && s.value != "":
				port, upper := c.Network, s.value
				if i := slices.IndexFunc(all, func(o connection) bool { return s.value == o.uuid || o.kind != c.kind && s.value == o.device() }); i >= 0 {
					upper = all[i].device()
					port.OnDemand = port.OnDemand && (all[i].OnDemand || !all[i].ports)
				}
				r.put(upper, port, c.file, s.line, text)
			case s.section != "ipv4" && s.section != "ipv6":
			case strings.HasPrefix(s.key, "address"):
				r.add(c.Network, c.file, s.line, text, true)
			case s.key == "method" && (s.value == "auto" || s.value == "dhcp"):
				r.add(c.Network, c.file, s.line, text, false)
			}
		}
	}
}

// onParent sets what a parent names: the UUID of a connection, a hardware address or an interface.
func (n *Network) onParent(parent string, all []connection) {
	if i := slices.IndexFunc(all, func(c connection) bool { return c.uuid == parent }); i >= 0 {
		of := all[i].Network
		n.Names, n.Drivers, n.Paths, n.Types, n.Addresses = of.Names, of.Drivers, of.Paths, of.Types, of.Addresses
	} else if _, err := net.ParseMAC(parent); err == nil {
		n.Addresses = []string{parent}
	} else {
		n.Names = []string{parent}
	}
}

// connection reads one of NetworkManager's connections.
func (r *reader) connection(file string) connection {
	keys := []string{"interface-name", "driver", "path", "mac-address", "type", "address", "method", "autoconnect", "autoconnect-priority",
		"autoconnect-ports", "autoconnect-slaves", "uuid", "controller", "master", "parent"}
	const lowest = "-999"
	c := connection{file: file, hardware: true, settings: r.settings(file, keys...)}
	c.Exclude = func(vfs []pci.Address, _ string) string {
		return "add 'path=" + strings.Join(paths(vfs, "!"), ";") + ";' to [match]"
	}
	child := false
	for _, s := range c.settings {
		var values []string
		for value := range strings.FieldsFuncSeq(s.value, func(c rune) bool { return c == ';' }) {
			values = append(values, strings.TrimLeft(value, "|&")) // without them, "!" is mandatory, the rest not
		}
		switch s.section + "/" + s.key {
		case "connection/interface-name":
			c.Names = append(c.Names, s.value)
		case "match/interface-name":
			c.Names = append(c.Names, values...)
		case "match/driver":
			c.Drivers = append(c.Drivers, values...)
		case "match/path":
			c.Paths = append(c.Paths, values...)
		case "ethernet/mac-address", "802-3-ethernet/mac-address", "infiniband/mac-address":
			c.Addresses = append(c.Addresses, s.value)
		case "infiniband/parent":
			child = s.value != ""
		case "connection/autoconnect":
			c.OnDemand = !isTrue(s.value)
		case "connection/autoconnect-ports", "connection/autoconnect-slaves":
			c.ports = isTrue(s.value)
		case "connection/autoconnect-priority":
			c.Generated = generated(file) > 0 && s.value == lowest
		case "connection/uuid":
			c.uuid = s.value
		case "connection/type":
			of := map[string]string{"ethernet": "ether", "802-3-ethernet": "ether", "infiniband": "infiniband"}[s.value]
			c.kind, c.Types, c.hardware = s.value, []string{of}, of != ""
		}
	}
	c.hardware = c.hardware && !child
	return c
}
