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

// configured adds the functions of interfaces that the host's configuration gives an address, and
// that have none now, as a port without carrier. Configuration by DHCP that matches by a pattern,
// as cloud images have for any interface, counts for a port that has lost its carrier.
//
// It also adds the functions of interfaces that the configuration makes ports of a bond or bridge,
// or puts a VLAN on, also if they are attached now: at boot, what is attached is asked before the
// network is set up, and what --allow has lifted must be the same use.
//
// A file that cannot be read or parsed may name any interface: it is a use of each that has no
// address, and keeps no other function from leaving the host. Users without permission to read such
// a file get what the others say: they cannot change anything either.
func (g *guard) configured() error {
	networks, unread := netconf.Read(g.root)
	if errors.Is(unread, unix.EACCES) && os.Geteuid() != 0 {
		unread = nil
	}
	if len(networks) == 0 && unread == nil {
		return nil
	}
	var in *netconf.FileError
	if unread != nil && !errors.As(unread, &in) {
		return unread
	}
	names, err := g.interfaces()
	if err != nil {
		return err
	}
	for _, name := range names {
		target, err := g.device(netDir, name)
		if err != nil {
			return err
		}
		functions, err := g.functions(target)
		if err != nil {
			return err
		}
		if len(functions) == 0 {
			continue
		}
		if in != nil && !g.reached[name] {
			g.add(host.CodeNetwork, functions, false, "may have to carry ", subject{UseConfigurationUnread, in.File, "an address of " + name},
				", which has none now: "+strings.ReplaceAll(unread.Error(), "\n", "; "))
			continue
		}
		if err := g.configuredBy(networks, name, target, functions); err != nil {
			return err
		}
	}
	return nil
}

// configuredBy adds the functions of an interface by the first configuration that gives it an
// address, unless it has one, and by the first that puts each other interface on it. target is its
// directory below /sys/devices.
func (g *guard) configuredBy(networks []netconf.Network, name, target string, functions []pci.Address) error {
	described, err := g.netconfInterface(name, target)
	if err != nil {
		return err
	}
	lost, err := g.lostCarrier(name)
	if err != nil {
		return err
	}
	seen := map[string]bool{"": g.reached[name]} // by Upper
	for _, n := range networks {
		gives, named := n.Gives(described)
		if !gives || n.OnDemand || seen[n.Upper] || n.Upper == "" && !named && !n.Static && !lost {
			continue
		}
		seen[n.Upper] = true
		what, now := "the address by DHCP of "+name, ", which has none now"
		switch {
		case n.Upper != "":
			what, now = "the interface "+n.Upper+" on "+name, ""
		case n.Static:
			what = "the static address of " + name
		}
		g.add(host.CodeNetwork, functions, false, "is to carry ", subject{UseConfigured, n.File, what}, fmt.Sprintf(" (%s:%d: %s)%s", n.File, n.Line, n.Text, now))
	}
	return nil
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
