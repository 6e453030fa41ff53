package guest_test

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
)

const (
	uuidU = "6f3e8a52-0d0c-4c3e-9d3b-2f8d0b9a7c11"
	uuidV = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
)

// machine is a machine's tree as a txtar archive: links and directories, then files.
type machine struct {
	links, files strings.Builder
}

// newMachine returns a compute node that was booted at 2026-03-01 08:00:00 UTC, has IOMMU groups 33
// and 34, and runs only process 1.
func newMachine() *machine {
	m := &machine{}
	m.process(1, "systemd", "/sbin/init")
	m.link("proc/1/ns/pid", "pid:[4026531836]")
	m.folder("etc/libvirt/qemu/networks")
	m.folder("sys/bus/pci/devices")
	m.link("sys/kernel/iommu_groups/33/devices/0000:84:00.0", "../../../../devices/pci0000:80/0000:84:00.0")
	m.link("sys/kernel/iommu_groups/33/devices/0000:84:00.1", "../../../../devices/pci0000:80/0000:84:00.1")
	m.link("sys/kernel/iommu_groups/34/devices/0000:88:00.0", "../../../../devices/pci0000:80/0000:88:00.0")
	m.file("proc/stat", "cpu  1 2 3\nbtime 1772352000\nprocesses 9\n")
	m.file("proc/uptime", "3600.25 7000.00\n")
	m.file("proc/sys/kernel/hostname", "gpu2.example.net\n")
	m.file("proc/sys/kernel/random/boot_id", "b0b0\n")
	m.file("etc/machine-id", "3d12f0d5c3a94e7b8a6d2b1c0e9f8a7b\n")
	return m
}

func (m *machine) link(name, target string) {
	fmt.Fprintf(&m.links, "symlink %s -> %s\n", name, target)
}
func (m *machine) folder(name string)     { fmt.Fprintf(&m.links, "mkdir %s\n", name) }
func (m *machine) file(name, text string) { fmt.Fprintf(&m.files, "-- %s --\n%s", name, text) }

// process adds a process that was started pid seconds after boot.
func (m *machine) process(pid int, comm string, argv ...string) {
	m.stat(pid, comm, "S", 1)
	m.folder(fmt.Sprintf("proc/%d/fd", pid))
	cmdline := fmt.Sprintf("proc/%d/cmdline", pid)
	if len(argv) == 0 {
		m.file(cmdline, "")
		return
	}
	fmt.Fprintf(&m.links, "base64 %s\n", cmdline)
	m.file(cmdline, base64.StdEncoding.EncodeToString([]byte(strings.Join(argv, "\x00")+"\x00"))+"\n")
}

func (m *machine) stat(pid int, comm, state string, threads int) {
	m.file(fmt.Sprintf("proc/%d/stat", pid), fmt.Sprintf("%d (%s) %s 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 %d 0 %d 1 1 1\n", pid, comm, state, threads, pid*100))
}

func (m *machine) open(pid, descriptor int, target string) {
	m.link(fmt.Sprintf("proc/%d/fd/%d", pid, descriptor), target)
}

// pci adds a PCI function, and links from there.
func (m *machine) pci(address string, links ...string) {
	const bus, devices = "sys/bus/pci/devices/", "sys/devices/pci0000:80/"
	m.folder(devices + address)
	m.link(bus+address, "../../../devices/pci0000:80/"+address)
	for _, link := range links {
		name, target, _ := strings.Cut(link, "=")
		m.link(devices+address+"/"+name, "../"+target)
	}
}

// nic adds a network function with its interface.
func (m *machine) nic(address, name string) {
	m.pci(address)
	m.file("sys/devices/pci0000:80/"+address+"/class", "0x020000\n")
	m.link("sys/devices/pci0000:80/"+address+"/net/"+name+"/device", "../../../"+address)
	m.link("sys/class/net/"+name, "../../devices/pci0000:80/"+address+"/net/"+name)
}

// vdpa adds a vDPA device with a node for guests, below a device of /sys/devices.
func (m *machine) vdpa(parent, name, node string) {
	m.folder("sys/devices/" + parent + "/" + name + "/" + node)
	m.link("sys/bus/vdpa/devices/"+name, "../../../devices/"+parent+"/"+name)
}

func (m *machine) lay(t testing.TB) host.Root {
	t.Helper()
	return hosttest.Lay(t, m.links.String()+m.files.String())
}

// domain returns a definition as libvirt writes it.
func domain(uuid, name, devices string) string {
	return "<!--\nWARNING: THIS IS AN AUTO-GENERATED FILE.\n-->\n\n<domain type='kvm'>\n  <name>" + name + "</name>\n  <uuid>" + uuid + "</uuid>\n" +
		"  <metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'><nova:name>x</nova:name></nova:instance></metadata>\n" +
		"  <devices>" + devices + "</devices>\n</domain>\n"
}

const hostdev = "<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x0000' bus='0x84' slot='0x00' function='0x0'/></source>" +
	"<address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/></hostdev>"

var now = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

func observe(root host.Root) guest.Report {
	return guest.Observe(root, guest.NovaConf{Files: []string{"/etc/nova/nova.conf"}}, now)
}

// brief formats the essential parts of a report, one line for each element.
func brief(r guest.Report) string {
	var b strings.Builder
	text := func(s *string) string {
		if s == nil {
			return "?"
		}
		return *s
	}
	for _, n := range r.NovaCompute {
		fmt.Fprintf(&b, "nova-compute %d since %s: %s\n", n.PID, n.Started.Format(time.TimeOnly), n.Command)
	}
	for _, h := range r.Holders {
		what := "device " + text(h.Device)
		if h.Group != nil {
			what = fmt.Sprintf("group %d", *h.Group)
		}
		if h.VDPA != nil {
			what = "vdpa " + *h.VDPA
		}
		fmt.Fprintf(&b, "holder %d %s: guest %s: %s %s\n", h.PID, h.Command, text(h.UUID), what, h.Functions)
	}
	for _, g := range r.Guests {
		fmt.Fprintf(&b, "guest %d %s: %s %s asked %s\n", g.PID, g.Command, text(g.UUID), text(g.Name), g.Asked)
	}
	for _, d := range r.Domains {
		fmt.Fprintf(&b, "domain %s %s running %t %s %s\n", d.UUID, d.Name, d.Running, d.Functions, d.Files)
	}
	for _, f := range r.VirtualFunctions {
		fmt.Fprintf(&b, "PF %s: %s\n", f.Address, f.Functions)
	}
	if r.Doubtful != nil {
		fmt.Fprintf(&b, "doubtful %s: %s\n", r.Doubtful.Functions, r.Doubtful.Because)
	}
	for _, s := range r.Unread() {
		fmt.Fprintf(&b, "%s %s: %s\n", s.State, s.Name, s.Detail)
	}
	return b.String()
}

func TestObserve(t *testing.T) {
	qemuU := []string{"/usr/bin/qemu-system-x86_64", "-name", "guest=instance-00000012,debug-threads=on", "-uuid", uuidU}
	for _, test := range []struct {
		name string
		add  func(m *machine)
		want string
	}{
		{"nothing", func(*machine) {}, ""},
		{"a guest with a whole group", func(m *machine) {
			m.process(42, "qemu-system-x86", append(qemuU, "-device",
				`{"driver":"vfio-pci","host":"0000:84:00.0","id":"hostdev0","bus":"pci.0"}`, "-device", "vfio-pci,host=84:00.1,id=h1",
				"-device", "virtio-net-pci,host=x")...)
			m.open(42, 3, "/dev/vfio/vfio")
			m.open(42, 4, "/dev/vfio/33")
			m.open(42, 5, "anon_inode:[vfio-device]")
			m.open(42, 6, "/dev/vfio/33")
			m.open(42, 7, "socket:[1]")
		}, "holder 42 qemu-system-x86: guest " + uuidU + ": group 33 [0000:84:00.0 0000:84:00.1]\n" +
			"guest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked [0000:84:00.0 0000:84:00.1]\n"},
		{"nodes removed, and of another view of /dev", func(m *machine) {
			m.process(42, "qemu-kvm", "/usr/libexec/qemu-kvm", "-uuid", strings.ToUpper(uuidU), "-name", "a,,b,process=x")
			m.open(42, 4, "/dev/vfio/33 (deleted)")
			m.open(42, 5, "/vfio/noiommu-34")
		}, "holder 42 qemu-kvm: guest " + uuidU + ": group 33 [0000:84:00.0 0000:84:00.1]\nholder 42 qemu-kvm: guest " + uuidU + ": group 34 [0000:88:00.0]\n" +
			"guest 42 qemu-kvm: " + uuidU + " a,b asked []\n"},
		{"a device past its group", func(m *machine) {
			m.process(42, "qemu-system-x86", qemuU...)
			m.open(42, 4, "/dev/vfio/devices/vfio0")
			m.link("sys/class/vfio-dev/vfio0", "../../devices/pci0000:80/0000:84:00.0/vfio-dev/vfio0")
			m.link("sys/devices/pci0000:80/0000:84:00.0/vfio-dev/vfio0/device", "../../../0000:84:00.0")
		}, "holder 42 qemu-system-x86: guest " + uuidU + ": device vfio0 [0000:84:00.0]\nguest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked []\n"},
		{"a mediated device", func(m *machine) {
			m.process(42, "qemu-system-x86", append(qemuU, "-device", "vfio-pci,sysfsdev=/sys/bus/mdev/devices/"+uuidV)...)
			m.open(42, 4, "/dev/vfio/35")
			m.link("sys/kernel/iommu_groups/35/devices/"+uuidV, "../../../../devices/pci0000:80/0000:8c:00.0/"+uuidV)
			m.folder("sys/devices/pci0000:80/0000:8c:00.0/" + uuidV)
		}, "holder 42 qemu-system-x86: guest " + uuidU + ": group 35 [0000:8c:00.0]\nguest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked []\n"},
		{"a holder that is no guest", func(m *machine) {
			m.process(43, "dpdk (x) y", "/usr/bin/testpmd")
			m.open(43, 4, "/dev/vfio/34")
		}, "holder 43 dpdk (x) y: guest ?: group 34 [0000:88:00.0]\n"},
		{"a guest of another emulator", func(m *machine) { m.process(42, "emulator", "/opt/emulator", "-uuid", uuidU) },
			"guest 42 emulator: " + uuidU + " ? asked []\n"},
		{"a QEMU that is no guest", func(m *machine) { m.process(42, "qemu-system-x86", "qemu-system-x86_64", "-M", "none") },
			"guest 42 qemu-system-x86: ? ? asked []\n"},
		{"a group that cannot be told", func(m *machine) {
			m.process(42, "qemu-system-x86", qemuU...)
			m.open(42, 4, "/dev/vfio/99")
		}, "holder 42 qemu-system-x86: guest " + uuidU + ": group 99 []\nguest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked []\n" +
			"unreadable groups: /sys/kernel/iommu_groups/99/devices: no such file or directory\n"},
		{"an open device whose group is not", func(m *machine) {
			m.process(42, "vmm", "vmm")
			m.open(42, 5, "anon_inode:[vfio-device]")
		}, "unreadable vfio: /proc/42/fd: vmm has an unknown VFIO device open without its group\n"},
		{"long arguments, and others after them", func(m *machine) {
			m.process(42, "qemu-system-x86", append(qemuU, "-append", strings.Repeat("x", 1<<20), "-device", "vfio-pci,host=84:00.0")...)
			m.process(43, "qemu-system-x86", "qemu-system-x86_64", "-uuid", uuidV)
		}, "guest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked [0000:84:00.0]\nguest 43 qemu-system-x86: " + uuidV + " ? asked []\n"},
		{"arguments longer than the kernel allows", func(m *machine) {
			m.process(42, "qemu-system-x86", append(qemuU, "-append", strings.Repeat("x", 6<<20))...)
		}, "guest 42 qemu-system-x86: ? ? asked []\nunreadable processes: /proc/42/cmdline: larger than 6291456 bytes\n"},
		{"arguments that cannot be read", func(m *machine) {
			m.process(42, "qemu-system-x86", "qemu-system-x86_64", "-uuid", "7", "-device", "vfio-pci,host=nowhere", "-device", "{")
		}, "guest 42 qemu-system-x86: ? ? asked []\nunreadable processes: /proc/42/cmdline: not a uuid: \"7\"\n" +
			"-device \"vfio-pci,host=nowhere\": not a PCI address: \"nowhere\"\n-device \"{\": unexpected end of JSON input\n"},
		{"a QEMU that is ending", func(m *machine) { m.process(42, "qemu-system-x86") },
			"guest 42 qemu-system-x86: ? ? asked []\nunreadable processes: /proc/42: qemu-system-x86 is starting or ending, its arguments are not available\n"},
		{"a QEMU that has ended", func(m *machine) { m.process(42, "qemu-system-x86"); m.stat(42, "qemu-system-x86", "Z", 1) },
			"guest 42 qemu-system-x86: ? ? asked []\n"},
		{"a program that is ending", func(m *machine) {
			m.process(42, "true", "true")
			m.file("proc/42/stat", "42 (true) R 1 1 1 0 -1 4194564 1 1 1 1 1 1 1 1 20 0 1 0 4200 1 1 1\n")
		}, ""},
		{"threads without their first", func(m *machine) { m.process(42, "vmm"); m.stat(42, "vmm", "Z", 2) },
			"unreadable processes: /proc/42: the first thread has ended before the others\n"},
		{"a descriptor that cannot be read", func(m *machine) {
			m.process(42, "vmm", "vmm")
			m.file("proc/42/fd/3", "")
		}, "unreadable vfio: /proc/42/fd/3: invalid argument\n"},
		{"a process whose parts are not shown", func(m *machine) { m.folder("proc/42") }, "unreadable processes: /proc/42/stat: no such file or directory\n"},
		{"nova-compute, however it was started", func(m *machine) {
			m.process(50, "nova-compute", "/usr/bin/python3", "-s", "/usr/bin/nova-compute", "--config-file", "x")
			m.process(51, "python3", "/var/lib/kolla/venv/bin/python3", "/var/lib/kolla/venv/bin/nova-compute")
			m.process(52, "python3", "python3", "-m", "nova.cmd.compute")
			m.process(53, "nova-compute")
			m.process(54, "grep", "grep", "nova-compute")
			m.process(55, "less", "less", "/usr/bin/nova-compute")
			m.process(56, "x", "nova-compute: worker")
			m.process(57, "nova-rootwrap-d", "/usr/bin/python3", "/usr/bin/nova-rootwrap-daemon")
		}, "nova-compute 50 since 08:00:50: /usr/bin/python3 -s /usr/bin/nova-compute\n" +
			"nova-compute 51 since 08:00:51: /var/lib/kolla/venv/bin/python3 /var/lib/kolla/venv/bin/nova-compute\n" +
			"nova-compute 52 since 08:00:52: python3 -m nova.cmd.compute\nnova-compute 53 since 08:00:53: nova-compute\n" +
			"nova-compute 56 since 08:00:56: nova-compute: worker\n"},
		{"a vDPA device", func(m *machine) {
			m.vdpa("pci0000:80/0000:8a:00.2", "vdpa0", "vhost-vdpa-0")
			m.process(42, "qemu-system-x86", append(qemuU, "-netdev", "vhost-vdpa,vhostdev=/dev/fdset/0,id=hostnet0")...)
			m.open(42, 4, "/dev/vhost-vdpa-0")
			m.open(42, 5, "/dev/vhost-vdpa-0")
		}, "holder 42 qemu-system-x86: guest " + uuidU + ": vdpa vhost-vdpa-0 [0000:8a:00.2]\nguest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked []\n"},
		{"vDPA devices, removed, and of another view of /dev", func(m *machine) {
			m.vdpa("pci0000:80/0000:8a:00.2", "vdpa0", "vhost-vdpa-0")
			m.vdpa("pci0000:80/0000:8a:00.0/mlx5_core.sf.4", "0000:99:00.0", "vhost-vdpa-12")
			m.process(42, "qemu-system-x86", qemuU...)
			m.open(42, 4, "/dev/vhost-vdpa-0 (deleted)")
			m.open(42, 5, "/vhost-vdpa-12")
			m.open(42, 6, "/dev/vhost-net")
		}, "holder 42 qemu-system-x86: guest " + uuidU + ": vdpa vhost-vdpa-0 [0000:8a:00.2]\n" +
			"holder 42 qemu-system-x86: guest " + uuidU + ": vdpa vhost-vdpa-12 [0000:8a:00.0]\n" +
			"guest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked []\n"},
		{"vDPA devices in arguments", func(m *machine) {
			for i := range 4 {
				m.vdpa(fmt.Sprintf("pci0000:80/0000:8a:00.%d", i), fmt.Sprintf("vdpa%d", i), fmt.Sprintf("vhost-vdpa-%d", i))
			}
			m.process(42, "qemu-system-x86", append(qemuU, "-netdev", "vhost-vdpa,vhostdev=/dev/vhost-vdpa-0,id=n0", "-netdev", "type=vhost-vdpa,id=n1,vhostdev=/dev/vhost-vdpa-1",
				"-netdev", `{"type":"vhost-vdpa","vhostdev":"/dev/vhost-vdpa-2","id":"n2","queues":1}`, "--blockdev", "driver=virtio-blk-vhost-vdpa,path=/dev/vhost-vdpa-3,node-name=x",
				"-device", "vhost-vdpa-device-pci,vhostdev=/dev/vhost-vdpa-1", "-netdev", "tap,ifname=vhost-vdpa-x")...)
		}, "guest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked [0000:8a:00.0 0000:8a:00.1 0000:8a:00.2 0000:8a:00.3]\n"},
		{"a simulated vDPA device", func(m *machine) {
			m.vdpa("vdpasim_net", "vdpa0", "vhost-vdpa-0")
			m.process(42, "qemu-system-x86", append(qemuU, "-netdev", "vhost-vdpa,vhostdev=/dev/vhost-vdpa-0")...)
			m.open(42, 4, "/dev/vhost-vdpa-0")
		}, "holder 42 qemu-system-x86: guest " + uuidU + ": vdpa vhost-vdpa-0 []\nguest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked []\n"},
		{"a vDPA device that the host uses", func(m *machine) { m.vdpa("pci0000:80/0000:8a:00.2", "vdpa0", "virtio3") }, ""},
		{"a vDPA device that is not in sysfs", func(m *machine) {
			m.vdpa("pci0000:80/0000:8a:00.2", "vdpa0", "vhost-vdpa-0")
			m.process(42, "qemu-system-x86", append(qemuU, "-netdev", "vhost-vdpa,vhostdev=/dev/vhost-vdpa-7")...)
			m.open(42, 4, "/dev/vhost-vdpa-8")
		}, "holder 42 qemu-system-x86: guest " + uuidU + ": vdpa vhost-vdpa-8 []\nguest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked []\n" +
			"unreadable vdpa: /proc/42/cmdline: vhost-vdpa-7 is not in /sys/bus/vdpa/devices; /proc/42/fd: vhost-vdpa-8 is not in /sys/bus/vdpa/devices\n"},
		{"a vDPA device without a vDPA bus", func(m *machine) {
			m.process(42, "x", "x")
			m.open(42, 4, "/dev/vhost-vdpa-0")
		}, "holder 42 x: guest ?: vdpa vhost-vdpa-0 []\nunreadable vdpa: /proc/42/fd: vhost-vdpa-0 is not in /sys/bus/vdpa/devices\n"},
		{"arguments of a vDPA device that cannot be read", func(m *machine) {
			m.process(42, "qemu-system-x86", append(qemuU, "-netdev", "{")...)
		}, "guest 42 qemu-system-x86: " + uuidU + " instance-00000012 asked []\nunreadable processes: /proc/42/cmdline: -netdev \"{\": unexpected end of JSON input\n"},
		{"virtual functions", func(m *machine) {
			m.pci("0000:8a:00.0", "virtfn0=0000:8a:00.2", "virtfn1=0000:8a:00.3", "virtfnx=nowhere")
			m.pci("0000:8a:00.2", "physfn=0000:8a:00.0")
			m.pci("0000:8a:00.3", "physfn=0000:8a:00.0")
			m.pci("0000:84:00.0")
			m.pci("0000:82:00.0", "virtfn0=0000:82:10.0")
			m.pci("0000:82:10.0", "physfn=0000:82:00.0")
		}, "PF 0000:82:00.0: [0000:82:10.0]\nPF 0000:8a:00.0: [0000:8a:00.2 0000:8a:00.3]\n"},
		{"relations that do not agree", func(m *machine) {
			m.pci("0000:8a:00.0", "virtfn0=0000:8a:00.2")
			m.pci("0000:8a:00.2")
			m.pci("0000:8b:00.0")
			m.pci("0000:8b:00.2", "physfn=0000:8b:00.0")
		}, "PF 0000:8a:00.0: [0000:8a:00.2]\nPF 0000:8b:00.0: [0000:8b:00.2]\n" +
			"unreadable sriov: 0000:8a:00.0 names 0000:8a:00.2 as its virtual function, which does not name 0000:8a:00.0; " +
			"0000:8b:00.2 names 0000:8b:00.0 as its physical function, which does not name 0000:8b:00.2\n"},
		{"relations that cannot be read", func(m *machine) {
			m.pci("0000:8a:00.0", "virtfn0=pf")
			m.folder("sys/devices/pci0000:80/0000:8b:00.0/physfn")
			m.pci("0000:8b:00.0")
			m.folder("sys/bus/pci/devices/other")
			m.link("sys/bus/pci/devices/0000:8c:00.0", "nowhere")
		}, "unreadable sriov: /sys/bus/pci/devices/0000:8a:00.0/virtfn0: not a PCI address: \"pf\"; /sys/bus/pci/devices/0000:8b:00.0/physfn: invalid argument; " +
			"/sys/bus/pci/devices/0000:8c:00.0: no such file or directory; /sys/bus/pci/devices/other: not a PCI address: \"other\"\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine()
			test.add(m)
			r := observe(m.lay(t))
			hosttest.Equal(t, test.want, brief(r))
			hosttest.EqualIn(t, "complete", !strings.Contains(test.want, "unreadable"), r.Complete)
		})
	}
}

func TestDomains(t *testing.T) {
	const volume = "var/lib/docker/volumes/nova_libvirt_qemu/_data/"
	for _, test := range []struct {
		name string
		add  func(m *machine)
		want string
	}{
		{"defined and running, one domain", func(m *machine) {
			m.file("etc/libvirt/qemu/a.xml", domain(uuidU, "a", hostdev))
			m.file("run/libvirt/qemu/a.xml", "<domstatus state='running'><monitor path='x'/>"+strings.SplitN(domain(uuidU, "a", ""), "-->", 2)[1]+"</domstatus>\n")
			m.file("run/libvirt/qemu/a.pid", "7\n")
		}, "domain " + uuidU + " a running true [0000:84:00.0] [/etc/libvirt/qemu/a.xml /run/libvirt/qemu/a.xml]\n"},
		{"every way to a function", func(m *machine) {
			m.file("etc/libvirt/qemu/a.xml", domain(strings.ToUpper(uuidU), "a", hostdev+hostdev+
				"<interface type='hostdev'><source><address type='pci' domain='1' bus='16' slot='07' function='1'/></source></interface>"+
				"<disk type='nvme'><source type='pci' namespace='1'><address bus='0x01' slot='0x00'/></source></disk>"+
				"<hostdev type='usb'><source><address bus='1' device='3'/></source></hostdev>"+
				"<hostdev type='mdev'><source><address uuid='"+uuidV+"'/></source></hostdev>"))
		}, "domain " + uuidU + " a running false [0000:01:00.0 0000:84:00.0 0001:10:07.1] [/etc/libvirt/qemu/a.xml]\n"},
		{"vDPA devices", func(m *machine) {
			m.vdpa("pci0000:80/0000:8a:00.2", "vdpa0", "vhost-vdpa-0")
			m.vdpa("vdpasim_net", "vdpa1", "vhost-vdpa-1")
			m.vdpa("pci0000:80/0000:8a:00.3", "vdpa2", "vhost-vdpa-2")
			m.file("etc/libvirt/qemu/a.xml", domain(uuidU, "a", "<interface type='vdpa'><mac address='52:54:00:00:00:01'/><source dev='/dev/vhost-vdpa-0'/></interface>"+
				"<interface type='vdpa'><source dev='/dev/vhost-vdpa-1'/></interface><interface type='direct'><source dev='eth0' mode='vepa'/></interface>"+
				"<disk type='vhostvdpa' device='disk'><source dev='/dev/vhost-vdpa-2'/></disk>"))
		}, "domain " + uuidU + " a running false [0000:8a:00.2 0000:8a:00.3] [/etc/libvirt/qemu/a.xml]\n"},
		{"a vDPA device that is not in sysfs, of a guest that is off", func(m *machine) {
			m.file("etc/libvirt/qemu/a.xml", domain(uuidU, "a", "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"))
		}, "domain " + uuidU + " a running false [] [/etc/libvirt/qemu/a.xml]\n"},
		{"a vDPA device that is not in sysfs, of a guest that runs", func(m *machine) {
			m.folder("etc/libvirt/qemu")
			m.file("run/libvirt/qemu/a.xml", domain(uuidU, "a", "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"))
		}, "domain " + uuidU + " a running true [] [/run/libvirt/qemu/a.xml]\nunreadable vdpa: /run/libvirt/qemu/a.xml: vhost-vdpa-0 is not in /sys/bus/vdpa/devices\n"},
		{"network interfaces that guests have for themselves", func(m *machine) {
			m.nic("0000:3b:02.1", "ens1f0v1")
			m.file("etc/libvirt/qemu/a.xml", domain(uuidU, "a", "<interface type='direct'><source dev='ens1f0v1' mode='passthrough'/><model type='virtio'/></interface>"+
				"<interface type='direct'><source dev='ens9' mode='bridge'/></interface><interface type='bridge'><source bridge='br0'/></interface>"))
		}, "domain " + uuidU + " a running false [0000:3b:02.1] [/etc/libvirt/qemu/a.xml]\n"},
		{"a network interface that cannot be mapped", func(m *machine) {
			m.nic("0000:3b:02.1", "ens1f0v1")
			m.file("sys/bus/pci/devices/0000:84:00.0/class", "0x030200\n")
			m.folder("etc/libvirt/qemu")
			m.file("run/libvirt/qemu/a.xml", domain(uuidU, "a", "<interface type='direct'><source dev='ens1f0v7' mode='passthrough'/></interface>"))
		}, "domain " + uuidU + " a running true [] [/run/libvirt/qemu/a.xml]\n" +
			"doubtful [0000:3b:02.1]: [/run/libvirt/qemu/a.xml: the function of network interface ens1f0v7 cannot be determined]\n"},
		{"a volume of kolla's", func(m *machine) { m.file(volume+"a.xml", domain(uuidU, "a", hostdev)) },
			"domain " + uuidU + " a running false [0000:84:00.0] [/" + volume + "a.xml]\n"},
		{"a daemon that sees another folder than the host", func(m *machine) {
			m.process(60, "libvirtd", "/usr/sbin/libvirtd", "--listen")
			m.file("proc/60/root/etc/libvirt/qemu/a.xml", domain(uuidU, "a", ""))
			m.file("proc/60/root/run/libvirt/qemu/b.xml", domain(uuidV, "b", ""))
		}, "domain " + uuidV + " b running true [] [/proc/60/root/run/libvirt/qemu/b.xml]\ndomain " + uuidU +
			" a running false [] [/proc/60/root/etc/libvirt/qemu/a.xml]\n"},
		{"a daemon that sees no folder", func(m *machine) {
			m.process(60, "virtqemud", "/usr/sbin/virtqemud", "--timeout", "120")
			m.folder("proc/60/root/etc")
		}, "absent domains: /proc/60/root/etc/libvirt/qemu: does not exist although virtqemud runs\n"},
		{"a daemon whose view cannot be had", func(m *machine) {
			m.process(60, "libvirtd", "/usr/sbin/libvirtd")
			m.link("proc/60/root", "/")
		}, "unreadable domains: /proc/60/root: can only be followed on the machine itself\n"},
		{"a daemon whose view is a file", func(m *machine) {
			m.process(60, "libvirtd", "/usr/sbin/libvirtd")
			m.file("proc/60/root", "")
		}, "unreadable domains: /proc/60/root: not a directory\n"},
		{"folders in place of definitions", func(m *machine) {
			m.folder("etc/libvirt/qemu/a.xml")
			m.process(60, "libvirtd", "/usr/sbin/libvirtd")
			m.folder("proc/60/root/etc/libvirt/qemu/b.xml")
		}, "unreadable domains: /etc/libvirt/qemu/a.xml: not a regular file; /proc/60/root/etc/libvirt/qemu/b.xml: not a regular file\n"},
		{"a daemon that shows no view", func(m *machine) { m.process(60, "libvirtd", "/usr/sbin/libvirtd") },
			"unreadable domains: /proc/60/root: no such file or directory\n"},
		{"malformed", func(m *machine) {
			m.file("etc/libvirt/qemu/a.xml", "<domain><name>a</name>\n")
			m.file("etc/libvirt/qemu/b.xml", "<domain><uuid>7</uuid></domain>\n")
			m.file("etc/libvirt/qemu/c.xml", "<network><uuid>"+uuidU+"</uuid></network>\n")
			m.file("etc/libvirt/qemu/d.xml", domain(uuidU, "d", strings.ReplaceAll(hostdev, "0x84", "0x184")))
			m.file("etc/libvirt/qemu/e.xml", domain(uuidU, "e", "")+domain(uuidV, "e", ""))
			m.file("etc/libvirt/qemu/f.xml", "")
			m.file("etc/libvirt/qemu/g.xml", domain(uuidV, "g", ""))
			m.link("etc/libvirt/qemu/h.xml", "nowhere")
		}, "domain " + uuidV + " g running false [] [/etc/libvirt/qemu/g.xml]\n" +
			"unreadable domains: /etc/libvirt/qemu/a.xml: malformed: XML syntax error on line 2: unexpected EOF; " +
			`/etc/libvirt/qemu/b.xml: malformed: not a uuid: "7"; /etc/libvirt/qemu/c.xml: malformed: root element "network" is not a domain; ` +
			`/etc/libvirt/qemu/d.xml: malformed: not a PCI address: domain "0x0000" bus "0x184" slot "0x00" function "0x0"; ` +
			"/etc/libvirt/qemu/e.xml: malformed: more than one root element; " +
			"/etc/libvirt/qemu/f.xml: malformed: EOF; /etc/libvirt/qemu/h.xml: no such file or directory\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine()
			test.add(m)
			r := observe(m.lay(t))
			hosttest.Equal(t, test.want, brief(r))
			if incomplete := strings.Contains(test.want, "absent ") || strings.Contains(test.want, "unreadable "); r.Complete == incomplete {
				t.Errorf("complete: %t", r.Complete)
			}
		})
	}
}

// TestBlind: a report names the sources that it could not read, and their lists are null.
func TestBlind(t *testing.T) {
	without := func(name string) *machine {
		m := newMachine()
		_, rest, _ := strings.Cut(m.files.String(), "-- "+name+" --\n")
		text, _, _ := strings.Cut(rest, "-- ")
		files := strings.ReplaceAll(m.files.String(), "-- "+name+" --\n"+text, "")
		m.files.Reset()
		m.files.WriteString(files)
		return m
	}
	unlinked := func(prefix string) *machine {
		m := newMachine()
		var kept []string
		for line := range strings.Lines(m.links.String()) {
			if _, name, _ := strings.Cut(line, " "); !strings.HasPrefix(name, prefix) {
				kept = append(kept, line)
			}
		}
		m.links.Reset()
		m.links.WriteString(strings.Join(kept, ""))
		return m
	}
	hidden := newMachine()
	hidden.files.Reset()
	hidden.links.Reset()
	hidden.process(7, "bash", "bash")
	container := unlinked("proc/1/ns")
	container.link("proc/1/ns/pid", "pid:[4026532177]")
	noBuses := unlinked("sys/bus")
	noVDPA := unlinked("none")
	noVDPA.file("sys/bus/vdpa/devices", "")
	noNode := unlinked("none")
	noNode.file("sys/bus/vdpa/devices/vdpa0", "")
	closed := unlinked("proc/1/fd")
	closed.file("proc/1/fd", "")
	for _, test := range []struct {
		name string
		m    *machine
		want string // among the sources that were not read
	}{
		{"machine id", without("etc/machine-id"), "absent machine_id: /etc/machine-id: no such file or directory\n"},
		{"boot id", without("proc/sys/kernel/random/boot_id"), "absent boot_id: /proc/sys/kernel/random/boot_id: no such file or directory\n"},
		{"hostname", without("proc/sys/kernel/hostname"), "absent hostname: /proc/sys/kernel/hostname: no such file or directory\n"},
		{"time of boot", without("proc/stat"), "absent boot_time: /proc/stat: no such file or directory\n"},
		{"groups", unlinked("sys/"), "absent groups: /sys/kernel/iommu_groups: no such file or directory\n"},
		{"domains", unlinked("etc/libvirt"), "absent domains: none of these directories exists: /etc/libvirt/qemu, " +
			"/var/lib/docker/volumes/nova_libvirt_qemu/_data, /var/lib/containers/storage/volumes/nova_libvirt_qemu/_data\n"},
		{"a /proc that hides processes", hidden, "unreadable processes: /proc: process 1 is hidden, others may be too\n"},
		{"a container", container, "unreadable processes: /proc/1/ns/pid: pid:[4026532177]: only the processes of a container are visible\n"},
		{"a namespace that is not told", unlinked("proc/1/ns"), "unreadable processes: /proc/1/ns: no such file or directory\n"},
		{"PCI functions", noBuses, "absent sriov: /sys/bus/pci/devices: no such file or directory\n"},
		{"buses", noBuses, "absent vdpa: /sys/bus: no such file or directory\n"},
		{"vDPA devices", noVDPA, "unreadable vdpa: /sys/bus/vdpa/devices: not a directory\n"},
		{"a vDPA device", noNode, "unreadable vdpa: /sys/bus/vdpa/devices/vdpa0: not a directory\n"},
		{"open files", closed, "unreadable vfio: /proc/1/fd: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := observe(test.m.lay(t))
			if got := brief(r); !strings.Contains(got, test.want) || r.Complete {
				t.Errorf("complete %t:\n%s\nwant:\n%s", r.Complete, got, test.want)
			}
			for name, list := range map[string]bool{
				"processes": r.Guests == nil && r.NovaCompute == nil && r.Holders == nil, "vfio": r.Holders == nil, "domains": r.Domains == nil, "sriov": r.VirtualFunctions == nil,
			} {
				if strings.Contains(test.want, " "+name+":") && !list {
					t.Errorf("%s: says none: %+v", name, r)
				}
			}
		})
	}
}

func TestNovaHost(t *testing.T) {
	name := "gpu2"
	for _, test := range []struct {
		name       string
		conf       guest.NovaConf
		host, from string
		state      guest.State
	}{
		{"the option", guest.NovaConf{Files: []string{"/a", "/b"}, Host: &name, From: "/b"}, "gpu2", "/b", guest.Read},
		{"the machine's name", guest.NovaConf{Files: []string{"/a"}}, "gpu2.example.net", "hostname", guest.Read},
		{"no nova.conf", guest.NovaConf{}, "gpu2.example.net", "hostname", guest.Absent},
		{"an error", guest.NovaConf{Host: &name, Err: fmt.Errorf("x")}, "", "", guest.Unreadable},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := guest.Observe(newMachine().lay(t), test.conf, now)
			host, from := "", ""
			if r.NovaHost != nil {
				host, from = *r.NovaHost, *r.NovaHostFrom
			}
			if host != test.host || from != test.from || r.Sources[4].State != test.state || r.Complete != (test.state == guest.Read) {
				t.Errorf("%q from %q, %+v, complete %t", host, from, r.Sources[4], r.Complete)
			}
		})
	}
}

// TestStarted: of each of Nova's programs the start of its last process, without workers that have
// another name, other programs and what only names it, and nothing where processes are hidden.
func TestStarted(t *testing.T) {
	lay := func(namespace string) host.Root {
		m := newMachine()
		m.process(50, "nova-scheduler", "/usr/bin/python3", "/usr/bin/nova-scheduler", "--config-file", "/etc/nova/nova.conf")
		m.process(55, "nova-scheduler", "nova-scheduler: ServiceWrapper worker(0)")
		m.process(52, "nova-compute", "/usr/bin/python3", "/usr/bin/nova-compute")
		m.process(51, "nova-compute", "/usr/bin/python3", "/usr/bin/nova-compute")
		m.process(60, "less", "less", "/usr/bin/nova-api")
		m.process(54, "uwsgi", "nova-api-metauWSGI master")
		m.process(61, "python3", "/usr/bin/python3", "/usr/bin/watcher", "nova-api")
		m.process(62, "python3", "/usr/bin/python3", "/usr/bin/privsep-helper", "--config-file", "/usr/bin/nova-compute")
		m.process(53, "nova-conductor", "/var/lib/kolla/venv/bin/python3", "-s", "/var/lib/kolla/venv/bin/nova-conductor")
		root := m.lay(t)
		hosttest.Link("proc/1/ns/pid", namespace)(t, root)
		return root
	}
	programs := []string{"nova-api", "nova-scheduler", "nova-compute", "nova-conductor"}
	at := func(seconds int) time.Time { return now.Add(-time.Hour + time.Duration(seconds)*time.Second) }
	want := map[string]time.Time{"nova-scheduler": at(50), "nova-compute": at(52), "nova-conductor": at(53)}
	if got := guest.Started(lay("pid:[4026531836]"), programs); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := guest.Started(lay("pid:[4026532000]"), programs); len(got) > 0 {
		t.Errorf("in a container: %v", got)
	}
}
