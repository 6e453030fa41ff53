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
	"gpustack/host/netconf"
	"gpustack/host/pci"
)

// Configuration is what the host's network configuration says of interfaces of PCI functions.
type Configuration struct {
	// Lines are what needs an interface when the host boots, by the interface.
	Lines map[string][]Line
	// Hidden is the error of files that only root may read, if the user is another one. They may need
	// any interface.
	Hidden error
}

// Line is a line of the host's network configuration that needs an interface.
type Line struct {
	netconf.Network
	netdev string
}

// Carries returns what the interface is to carry: "the static address of eth2".
func (l Line) Carries() string {
	switch {
	case l.Upper != "":
		return "the interface " + l.Upper + " on " + l.netdev
	case l.Static:
		return "the static address of " + l.netdev
	}
	return "the address by DHCP of " + l.netdev
}

// Place returns the file, the number and the text of the line.
func (l Line) Place() string { return fmt.Sprintf("%s:%d: %s", l.File, l.Line, l.Text) }

// MayBeDown reports whether the configuration expects that nothing is connected to the interface:
// an address by DHCP for which the boot does not wait, as installers configure each port of a
// machine. A static address is one that the operator means to use.
func (l Line) MayBeDown() bool { return l.Optional && l.Upper == "" && !l.Static }

// ReadConfiguration reads what the host's network configuration needs interfaces for. devices are
// all functions of the machine. The error is that of files that cannot be read or parsed, which may
// need any interface: what the other files say is returned with it.
func ReadConfiguration(root host.Root, devices pci.Devices) (Configuration, error) {
	g := guard{root: root, devices: devices}
	all, hidden, err := g.configuration()
	c := Configuration{map[string][]Line{}, hidden}
	for _, i := range all {
		c.Lines[i.name] = i.lines
	}
	return c, err
}

// configuredInterface is an interface of functions with the lines that need it.
type configuredInterface struct {
	name      string
	functions []pci.Address
	lines     []Line
}

// configuration returns the interfaces of functions with what the host's configuration needs them
// for when it boots: an address, or another interface on them. Configuration by DHCP that matches
// by a pattern, as cloud images have for any interface, counts for a port that has lost its
// carrier. Without any configuration it returns no interface. hidden is as in [Configuration], and
// err as of [ReadConfiguration].
func (g *guard) configuration() (all []configuredInterface, hidden, err error) {
	networks, err := netconf.Read(g.root)
	hidden, unread := splitHidden(err)
	if len(networks) == 0 && unread == nil {
		return nil, hidden, nil
	}
	names, err := g.interfaces()
	if err != nil {
		return nil, hidden, err
	}
	for _, name := range names {
		target, err := g.device(netDir, name)
		if err != nil {
			return nil, hidden, err
		}
		i := configuredInterface{name: name}
		if i.functions, err = g.functions(target); err != nil {
			return nil, hidden, err
		}
		if len(i.functions) == 0 {
			continue
		}
		if i.lines, err = g.linesOf(networks, name, target); err != nil {
			return nil, hidden, err
		}
		all = append(all, i)
	}
	return all, hidden, unread
}

// splitHidden splits the error of reading files into that of files which only root may read, if the
// user is another one, and that of all others.
func splitHidden(err error) (hidden, other error) {
	var denied, rest []error
	for _, e := range host.Split(err) {
		if errors.Is(e, unix.EACCES) && os.Geteuid() != 0 {
			denied = append(denied, e)
		} else {
			rest = append(rest, e)
		}
	}
	return errors.Join(denied...), errors.Join(rest...)
}

// linesOf returns the lines that need an interface. target is its directory below /sys/devices.
func (g *guard) linesOf(networks []netconf.Network, name, target string) (lines []Line, err error) {
	if len(networks) == 0 {
		return nil, nil
	}
	described, err := g.netconfInterface(name, target)
	if err != nil {
		return nil, err
	}
	lost, err := g.lostCarrier(name)
	if err != nil {
		return nil, err
	}
	for _, n := range networks {
		if gives, named := n.Gives(described); gives && !n.OnDemand && (n.Upper != "" || named || n.Static || lost) {
			lines = append(lines, Line{n, name})
		}
	}
	return lines, nil
}

// configured adds the functions of interfaces that the host's configuration gives an address, and
// that have none now, as a port without carrier.
//
// It also adds the functions of interfaces that the configuration makes ports of a bond or bridge,
// or puts a VLAN on, also if they are attached now: at boot, what is attached is asked before the
// network is set up, and what --allow has lifted must be the same use.
//
// A file that cannot be read or parsed may name any interface: it is a use of each that has no
// address, and keeps no other function from leaving the host. Users without permission to read such
// a file get what the others say: they cannot change anything either.
func (g *guard) configured() error {
	all, _, unread := g.configuration()
	var in *netconf.FileError
	if unread != nil && !errors.As(unread, &in) {
		return unread
	}
	for _, i := range all {
		if in != nil && !g.reached[i.name] {
			g.add(host.CodeNetwork, i.functions, false, "may have to carry ", subject{UseConfigurationUnread, in.File, "an address of " + i.name},
				", which has none now: "+strings.ReplaceAll(unread.Error(), "\n", "; "))
			continue
		}
		g.configuredBy(i)
	}
	return nil
}

// configuredBy adds the functions of an interface by the first line that gives it an address,
// unless it has one, and by the first that puts each other interface on it.
func (g *guard) configuredBy(i configuredInterface) {
	seen := map[string]bool{"": g.reached[i.name]} // by Upper
	for _, l := range i.lines {
		if seen[l.Upper] {
			continue
		}
		seen[l.Upper] = true
		now := ""
		if l.Upper == "" {
			now = ", which has none now"
		}
		g.add(host.CodeNetwork, i.functions, false, "is to carry ", subject{UseConfigured, l.File, l.Carries()}, " ("+l.Place()+")"+now)
	}
}

// netconfInterface describes an interface of a function as network configuration does. Its further
// names are those that udev has made of its place (systemd.net-naming-scheme(7)), which
// systemd-networkd accepts too.
func (g *guard) netconfInterface(name, target string) (netconf.Interface, error) {
	i := netconf.Interface{Names: []string{name}, Type: "ether"}
	for element := range strings.SplitSeq(target, "/") {
		if a, err := pci.ParseAddress(element); err == nil {
			i.Path, i.Driver = "pci-"+a.String(), ""
			if d := g.devices.At(a); d != nil {
				i.Driver = d.DriverName()
			}
		}
	}
	address, addressErr := g.attribute(path.Join(netDir, name, "address"))
	kind, kindErr := g.attribute(path.Join(netDir, name, "type"))
	index, indexErr := g.attribute(path.Join(netDir, name, "ifindex"))
	if err := errors.Join(addressErr, kindErr, indexErr); err != nil {
		return i, err
	}
	i.Address = address
	if kind == infiniband {
		i.Type = "infiniband"
	}
	record, err := g.textOf("/run/udev/data/n" + index)
	if err != nil || index == "" {
		return i, err
	}
	for line := range strings.Lines(record) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case strings.HasPrefix(key, "E:ID_NET_NAME") && !slices.Contains(i.Names, value):
			i.Names = append(i.Names, value)
		case key == "E:ID_PATH":
			i.Path = value
		}
	}
	return i, nil
}

// lostCarrier reports whether an interface has no carrier now, and may have had it (Linux,
// Documentation/ABI/testing/sysfs-class-net, carrier_up_count).
func (g *guard) lostCarrier(name string) (bool, error) {
	state, err := g.state(name)
	if err != nil || state == linkCarrier {
		return false, err
	}
	count, err := g.attribute(path.Join(netDir, name, "carrier_up_count"))
	return count != "0", err
}
