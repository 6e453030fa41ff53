package guest

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Where libvirt keeps domains: what is defined, and the state of what runs (libvirt,
// src/qemu/qemu_conf.c, configDir and stateDir).
const (
	definedDir = "/etc/libvirt/qemu"
	runningDir = "/run/libvirt/qemu"
)

// kollaDirs are where kolla-ansible's volume nova_libvirt_qemu lies, which its container
// has at definedDir: Docker's volumes and Podman's (kolla-ansible,
// ansible/roles/nova-cell/defaults/main.yml, nova_libvirt_default_volumes).
func kollaDirs() []string {
	return []string{
		"/var/lib/docker/volumes/nova_libvirt_qemu/_data",
		"/var/lib/containers/storage/volumes/nova_libvirt_qemu/_data",
	}
}

// domains lists what libvirt knows. As each daemon sees its folders they must be there;
// where no daemon runs, which may be started on demand, any place will do.
func (o *observer) domains(processes []process) {
	l := o.look(sourceDomains)
	var missing []string
	for _, dir := range append([]string{definedDir}, kollaDirs()...) {
		if !o.domainsOf(o.root, "", dir, false) {
			missing = append(missing, dir)
		}
	}
	o.domainsOf(o.root, "", runningDir, true) // is there once a daemon has run
	daemons := false
	for _, p := range processes {
		if program := p.program(); !isDaemon(program) && !isDaemon(p.comm) {
			continue
		}
		daemons = true
		seen := path.Join(p.dir(), "root")
		view, err := o.view(seen)
		if err != nil {
			l.faultf("%s: %v", seen, err)
			continue
		}
		if !o.domainsOf(view, seen, definedDir, false) {
			l.absent = append(l.absent, fmt.Sprintf("%s: not there, though %s runs", path.Join(seen, definedDir), p.comm))
		}
		o.domainsOf(view, seen, runningDir, true)
	}
	if len(missing) == 1+len(kollaDirs()) && !daemons {
		l.absent = append(l.absent, "none of these is there: "+strings.Join(missing, ", "))
	}
	slices.SortFunc(o.report.Domains, func(a, b Domain) int { return strings.Compare(a.UUID, b.UUID) })
}

// isDaemon tells whether a program is libvirt's daemon for QEMU: the one for all, or
// the one of its own (libvirt.org/daemons.html).
func isDaemon(program string) bool {
	return program == "libvirtd" || program == "virtqemud"
}

// view returns the root of a process, as it sees it (proc_pid_root(5)). The kernel
// leads there, past what the link says, so it must be the kernel's: below another
// root only a folder that was laid out can be gone to.
func (o *observer) view(name string) (host.Root, error) {
	if o.root.Path("/") == "/" {
		return host.NewRoot(name)
	}
	dir, err := o.root.OpenDir(path.Dir(name))
	if err != nil {
		return host.Root{}, host.Cause(err)
	}
	defer dir.Close() //nolint:errcheck // only read from
	switch _, err := dir.Readlink(path.Base(name)); {
	case err == nil:
		return host.Root{}, errors.New("can be followed on the machine itself only")
	case !errors.Is(err, unix.EINVAL):
		return host.Root{}, err
	}
	place, err := o.root.Resolve(name)
	if err != nil {
		return host.Root{}, err
	}
	return host.NewRoot(place)
}

// domainsOf reads the domains of a folder, which a process sees that way from its root.
// It tells whether the folder is there.
func (o *observer) domainsOf(root host.Root, seen, dir string, running bool) bool {
	l := o.look(sourceDomains)
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
			l.faultf("%s: %v", seen+file, host.Cause(err))
			continue
		}
		d, err := parseDomain(data)
		if err != nil {
			l.faultf("%s: %v", seen+file, err)
			continue
		}
		d.Running = running
		d.Files = []string{valid(seen + file)}
		o.addDomain(d)
	}
	return true
}

// addDomain puts together what several files say of one domain.
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

// domainXML is a domain as far as it matters here (libvirt, docs/formatdomain.rst).
type domainXML struct {
	XMLName    xml.Name
	UUID       string      `xml:"uuid"`
	Name       string      `xml:"name"`
	Hostdevs   []deviceXML `xml:"devices>hostdev"`
	Interfaces []deviceXML `xml:"devices>interface"` // type hostdev: a network card's function
	Disks      []deviceXML `xml:"devices>disk"`      // type nvme: a disk by its function
	// What runs is a domstatus around the domain.
	Inner *domainXML `xml:"domain"`
}

type deviceXML struct {
	Addresses []struct {
		Domain   string  `xml:"domain,attr"`
		Bus      string  `xml:"bus,attr"`
		Slot     *string `xml:"slot,attr"` // addresses of USB and SCSI have none
		Function string  `xml:"function,attr"`
	} `xml:"source>address"`
}

// parseDomain reads a domain's definition or state.
func parseDomain(data []byte) (Domain, error) {
	decoder := xml.NewDecoder(bytes.NewReader(data))
	var x domainXML
	if err := decoder.Decode(&x); err != nil {
		return Domain{}, fmt.Errorf("malformed: %w", err)
	}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Domain{}, fmt.Errorf("malformed: %w", err)
		}
		if _, more := token.(xml.StartElement); more {
			return Domain{}, errors.New("malformed: something follows its end")
		}
	}
	if x.XMLName.Local == "domstatus" && x.Inner != nil {
		x = *x.Inner
	}
	if x.XMLName.Local != "domain" {
		return Domain{}, fmt.Errorf("malformed: holds no domain, but %q", x.XMLName.Local)
	}
	uuid, err := parseUUID(x.UUID)
	if err != nil {
		return Domain{}, fmt.Errorf("malformed: %w", err)
	}
	d := Domain{UUID: uuid, Name: strings.TrimSpace(x.Name), Functions: []pci.Address{}}
	for _, device := range slices.Concat(x.Hostdevs, x.Interfaces, x.Disks) {
		for _, a := range device.Addresses {
			if a.Slot == nil {
				continue
			}
			function, err := parseFunction(a.Domain, a.Bus, *a.Slot, a.Function)
			if err != nil {
				return Domain{}, fmt.Errorf("malformed: %w", err)
			}
			d.Functions = append(d.Functions, function)
		}
	}
	d.Functions = sorted(d.Functions)
	return d, nil
}

// parseFunction reads the numbers of an address as C does, for which libvirt takes them
// (src/conf/device_conf.c, virPCIDeviceAddressParseXML); what is left out is 0.
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
			return pci.Address{}, fmt.Errorf("not a PCI address: domain %q bus %q slot %q function %q", domain, bus, slot, function)
		}
		numbers[i] = n
	}
	return pci.Address{Domain: uint32(numbers[0]), Bus: uint8(numbers[1]), Slot: uint8(numbers[2]), Function: uint8(numbers[3])}, nil
}
