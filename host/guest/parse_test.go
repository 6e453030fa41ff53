package guest

import (
	"slices"
	"strings"
	"testing"

	"gpustack/host"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// The parsers are fuzzed directly: laying out a machine for each input would take most of the time.

const aUUID = "6f3e8a52-0d0c-4c3e-9d3b-2f8d0b9a7c11"

// FuzzArguments: a parsed UUID is valid and comes from the arguments; a vfio-pci device with a host
// address gives a function or an error.
func FuzzArguments(f *testing.F) {
	f.Add("qemu-system-x86_64\x00-uuid\x00" + aUUID + "\x00-name\x00guest=a,,b\x00-device\x00vfio-pci,host=84:00.0\x00")
	f.Add("kvm\x00-device\x00{\"driver\":\"vfio-pci\",\"host\":\"0000:84:00.0\"}\x00")
	f.Add("kvm\x00-netdev\x00vhost-vdpa,vhostdev=/dev/vhost-vdpa-0\x00")
	f.Add("python3\x00-s\x00/usr/bin/nova-compute\x00")
	f.Fuzz(func(t *testing.T, text string) {
		argv := host.ParseArguments(valid(text))
		q, err := parseQEMU(argv)
		if q.uuid != nil && !slices.ContainsFunc(argv, func(a string) bool { return strings.EqualFold(strings.TrimSpace(a), *q.uuid) }) {
			t.Errorf("uuid %q of %q", *q.uuid, argv)
		}
		if i := slices.Index(argv, "-device"); err == nil && i > 0 && i+1 < len(argv) && strings.HasPrefix(argv[i+1], "vfio-pci,host=") && len(q.asked) == 0 {
			if parseOptions(argv[i+1], "driver")["driver"] == "vfio-pci" {
				t.Errorf("%q asks for nothing", argv)
			}
		}
		for _, node := range q.nodes {
			hosttest.Contains(t, node, text)
		}
		command, ok := process{argv: argv}.runs(novaCompute)
		if ok && !strings.Contains(command, "nova") {
			t.Errorf("%q is nova-compute", command)
		}
	})
}

// FuzzDomain: a definition gives a UUID and a sorted list of functions, or an error.
func FuzzDomain(f *testing.F) {
	f.Add("<domain><uuid>" + aUUID + "</uuid><devices><hostdev><source><address bus='0x84' slot='0' function='1'/></source></hostdev></devices></domain>\n")
	f.Add("<domstatus><domain><name>a</name><uuid>" + aUUID + "</uuid></domain></domstatus>")
	f.Fuzz(func(t *testing.T, text string) {
		d, named, err := parseDomain([]byte(text))
		if err != nil {
			return
		}
		if !uuidForm().MatchString(d.UUID) || d.Functions == nil || !slices.IsSortedFunc(d.Functions, pci.Address.Compare) {
			t.Errorf("%+v", d)
		}
		for _, node := range named.nodes {
			hosttest.Contains(t, node, text)
		}
		for _, a := range d.Functions {
			if back, err := pci.ParseAddress(a.String()); err != nil || back != a {
				t.Errorf("%s: %v", a, err)
			}
		}
	})
}

// FuzzStat: a process has the name in the outermost parentheses.
func FuzzStat(f *testing.F) {
	f.Add("42 (dpdk (x) y) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 3 0 4200 1 1 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		var p process
		if p.parseStat(text) == nil && !strings.Contains(valid(text), "("+p.comm+")") {
			t.Errorf("%q of %q", p.comm, text)
		}
	})
}

// FuzzHandle: only paths that end like a VFIO node or a node of a vDPA device give a handle.
func FuzzHandle(f *testing.F) {
	for _, target := range []string{"/dev/vfio/33", "/dev/vfio/noiommu-0 (deleted)", "/dev/vfio/devices/vfio7", "/dev/vfio/vfio", "/dev/vhost-vdpa-0 (deleted)", "anon_inode:[vfio-device]"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		h, ok := parseHandle(target)
		if ok && h.vdpa != "" {
			if !strings.Contains(target, h.vdpa) || h.group != 0 || h.device != "" {
				t.Errorf("%+v of %q", h, target)
			}
			return
		}
		if ok && (h.group < 0 || !strings.Contains(target, "vfio/") || h.device != "" && !strings.Contains(target, "vfio/devices/vfio")) {
			t.Errorf("%+v of %q", h, target)
		}
	})
}
