package guest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Directories of libvirt's domains: definitions, and states of running domains (libvirt,
// src/qemu/qemu_conf.c, configDir and stateDir).
const (
	definedDir = "/etc/libvirt/qemu"
	runningDir = "/run/libvirt/qemu"
)

// kollaDirs returns the directories of kolla-ansible's volume nova_libvirt_qemu with Docker and
// with Podman. The libvirt container mounts it at definedDir (kolla-ansible,
// ansible/roles/nova-cell/defaults/main.yml, nova_libvirt_default_volumes).
func kollaDirs() []string {
	return []string{
		"/var/lib/docker/volumes/nova_libvirt_qemu/_data",
		"/var/lib/containers/storage/volumes/nova_libvirt_qemu/_data",
	}
}

// domains lists libvirt's domains. The definitions must exist in the view of each running daemon.
// If none runs, since systemd may start it on demand, they may be in any of the directories.
func (o *observer) domains(processes []process) {
	l := o.access(sourceDomains)
	missing := host.Filter(append([]string{definedDir}, kollaDirs()...), func(dir string) bool {
		return !o.domainsOf(o.root, "", dir, false)
	})
	o.domainsOf(o.root, "", runningDir, true) // absent until a daemon has run
	daemons := false
	for _, p := range processes {
		if program := p.program(); !isDaemon(program) && !isDaemon(p.comm) {
			continue
		}
		daemons = true
		seen := path.Join(p.dir(), "root")
		view, err := o.view(seen)
		if err != nil {
			l.failf("%w", err)
			continue
		}
		if !o.domainsOf(view, seen, definedDir, false) {
			text := fmt.Sprintf("%s: does not exist although %s runs", path.Join(seen, definedDir), p.comm)
			l.absent = append(l.absent, text)
		}
		o.domainsOf(view, seen, runningDir, true)
	}
	if len(missing) == 1+len(kollaDirs()) && !daemons {
		l.absent = append(l.absent, "none of these directories exists: "+strings.Join(missing, ", "))
	}
	slices.SortFunc(o.report.Domains, func(a, b Domain) int { return strings.Compare(a.UUID, b.UUID) })
}

// isDaemon reports whether a program is a libvirt daemon for QEMU, monolithic or modular
// (libvirt.org/daemons.html).
func isDaemon(program string) bool {
	return program == "libvirtd" || program == "virtqemud"
}

// view returns the root directory of a process in its mount namespace (proc_pid_root(5)). Only the
// kernel can follow /proc/PID/root, whatever the target of the link is, so that below any root but
// "/" it must be a directory.
func (o *observer) view(name string) (host.Root, error) {
	place := name
	if !o.root.IsMachine() {
		dir, err := o.root.OpenDir(path.Dir(name))
		if err != nil {
			return host.Root{}, err
		}
		defer dir.Close() //nolint:errcheck // only read from
		switch _, err := dir.Readlink(path.Base(name)); {
		case err == nil:
			return host.Root{}, host.OfFile(name, errors.New("can only be followed on the machine itself"))
		case !errors.Is(err, unix.EINVAL):
			return host.Root{}, host.OfFile(name, err)
		}
		if place, err = o.root.Resolve(name); err != nil {
			return host.Root{}, err
		}
	}
	// NewRoot's own error is for the DIR of --root.
	info, err := os.Stat(place)
	if err == nil && !info.IsDir() {
		err = unix.ENOTDIR
	}
	if err != nil {
		return host.Root{}, host.OfFile(name, err)
	}
	return host.NewRoot(place)
}

// domainsOf reads the domains in dir below root and reports whether the directory exists. seen is
// the path of that root on the machine, for messages: "" or /proc/PID/root.
func (o *observer) domainsOf(root host.Root, seen, dir string, running bool) bool {
	l := o.access(sourceDomains)
	names, err := root.ReadDir(dir)
	if host.IsAbsent(err) {
		return false
	}
	if err != nil {
		l.fail(seen+dir, err)
		return true
	}
	l.read = append(l.read, seen+dir)
	for _, name := range names {
		if path.Ext(name) != ".xml" {
			continue
		}
		file := path.Join(dir, name)
		data, err := root.ReadFile(file)
		if err != nil {
			l.failf("%w", host.OfFile(seen+file, err))
			continue
		}
		d, named, err := parseDomain(data)
		if err != nil {
			l.failf("%w", host.OfFile(seen+file, err))
			continue
		}
		d.Running = running
		nodes := named.nodes
		if !running {
			// A definition names nodes that exist only once the host has made its vDPA devices: until
			// then the guest cannot use them.
			nodes = slices.DeleteFunc(nodes, func(node string) bool { return o.nodes[node] == nil })
		}
		d.Functions = append(d.Functions, o.functionsOf(nodes, seen+file)...)
		d.Functions = sorted(append(d.Functions, o.lower(named.interfaces, seen+file)...))
		d.Files = []string{valid(seen + file)}
		o.addDomain(d)
	}
	return true
}

// addDomain adds a domain, or merges it with the one of the same UUID from another file.
func (o *observer) addDomain(d Domain) {
	for i := range o.report.Domains {
		if known := &o.report.Domains[i]; known.UUID == d.UUID {
			known.Running = known.Running || d.Running
			known.Functions = sorted(append(known.Functions, d.Functions...))
			known.Files = append(known.Files, d.Files...)
			return
		}
	}
	o.report.Domains = append(o.report.Domains, d)
}

// domainXML is the part of a domain's XML that is used here (libvirt, docs/formatdomain.rst).
type domainXML struct {
	XMLName    xml.Name
	UUID       string      `xml:"uuid"`
	Name       string      `xml:"name"`
	Hostdevs   []deviceXML `xml:"devices>hostdev"`
	Interfaces []deviceXML `xml:"devices>interface"` // types hostdev, vdpa and direct
	Disks      []deviceXML `xml:"devices>disk"`      // types nvme and vhostvdpa
	// Inner is the domain in the domstatus of a running domain.
	Inner *domainXML `xml:"domain"`
}

type deviceXML struct {
	Type    string `xml:"type,attr"`
	Sources []struct {
		Dev       string `xml:"dev,attr"` // /dev/vhost-vdpa-0 of a vDPA device, eth3 of an interface of type direct
		Mode      string `xml:"mode,attr"`
		Addresses []struct {
			Domain   string  `xml:"domain,attr"`
			Bus      string  `xml:"bus,attr"`
			Slot     *string `xml:"slot,attr"` // addresses of USB and SCSI have none
			Function string  `xml:"function,attr"`
		} `xml:"address"`
	} `xml:"source"`
}

// named are devices of a domain that it names otherwise than by their functions, which only the
// machine can tell.
type named struct {
	nodes []string // of vDPA devices
	// network interfaces of the host that the guest has for itself: Nova writes them for ports of
	// type macvtap (nova/virt/libvirt/designer.py, set_vif_host_backend_direct_config)
	interfaces []string
}

// parseDomain parses a domain's definition or state.
func parseDomain(data []byte) (d Domain, all named, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(data))
	var x domainXML
	if err := decoder.Decode(&x); err != nil {
		return Domain{}, named{}, fmt.Errorf("malformed: %w", err)
	}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Domain{}, named{}, fmt.Errorf("malformed: %w", err)
		}
		if _, more := token.(xml.StartElement); more {
			return Domain{}, named{}, errors.New("malformed: more than one root element")
		}
	}
	if x.XMLName.Local == "domstatus" && x.Inner != nil {
		x = *x.Inner
	}
	if x.XMLName.Local != "domain" {
		return Domain{}, named{}, fmt.Errorf("malformed: root element %q is not a domain", x.XMLName.Local)
	}
	uuid, err := parseUUID(x.UUID)
	if err != nil {
		return Domain{}, named{}, fmt.Errorf("malformed: %w", err)
	}
	d = Domain{UUID: uuid, Name: strings.TrimSpace(x.Name), Functions: []pci.Address{}}
	for _, device := range slices.Concat(x.Hostdevs, x.Interfaces, x.Disks) {
		functions, err := device.uses(&all)
		if err != nil {
			return Domain{}, named{}, fmt.Errorf("malformed: %w", err)
		}
		d.Functions = append(d.Functions, functions...)
	}
	d.Functions = sorted(d.Functions)
	return d, all, nil
}

// uses returns the functions of a device, and adds to all what it names otherwise.
func (x deviceXML) uses(all *named) (functions []pci.Address, err error) {
	for _, source := range x.Sources {
		if node, ok := parseNode(source.Dev); ok {
			all.nodes = append(all.nodes, node)
		}
		if x.Type == "direct" && source.Mode == "passthrough" {
			all.interfaces = append(all.interfaces, source.Dev)
		}
		for _, a := range source.Addresses {
			if a.Slot == nil {
				continue
			}
			function, err := parseFunction(a.Domain, a.Bus, *a.Slot, a.Function)
			if err != nil {
				return nil, err
			}
			functions = append(functions, function)
		}
	}
	return functions, nil
}

// parseFunction parses the numbers of an address as C literals, as libvirt does
// (src/conf/device_conf.c, virPCIDeviceAddressParseXML). An omitted number is 0.
func parseFunction(domain, bus, slot, function string) (pci.Address, error) {
	var numbers [4]uint64
	for i, part := range []struct {
		text string
		most uint64
	}{{domain, 0xffffffff}, {bus, 0xff}, {slot, 31}, {function, 7}} {
		if part.text == "" {
			continue
		}
		n, err := strconv.ParseUint(part.text, 0, 64)
		if err != nil || n > part.most || strings.ContainsAny(part.text, "_oO") {
			return pci.Address{}, fmt.Errorf("not a PCI address: domain %q bus %q slot %q function %q",
				domain, bus, slot, function)
		}
		numbers[i] = n
	}
	return pci.Address{
		Domain: uint32(numbers[0]), Bus: uint8(numbers[1]),
		Slot: uint8(numbers[2]), Function: uint8(numbers[3]),
	}, nil
}
