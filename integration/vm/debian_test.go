package vm

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/vm/agent"
)

// disked starts a machine that boots from a disk.
func disked(t *testing.T, topology Topology, m maker) machine {
	t.Helper()
	disk, err := debianDisk(t.Context(), linux, m)
	hosttest.NoError(t, err)
	module, err := nvidiaModule(t.Context(), linux)
	hosttest.NoError(t, err)
	lab := filepath.Join(scratch, "lab")
	hosttest.NoError(t, writeLab(t.Context(), lab, programs, module))
	boot, err := fromDisk(t.Context(), t.TempDir(), disk, lab)
	hosttest.NoError(t, err)
	started := start(t, topology, boot)
	// The CPU is emulated without VMX, so that guests here would be emulated too.
	started.run("sh", "-ec", `mkdir -p /etc/nova; printf '[libvirt]\nvirt_type = qemu\n' > /etc/nova/nova.conf`)
	return started
}

// drivers tells by address which driver holds each function.
func (m machine) drivers() map[string]string {
	m.t.Helper()
	out := m.run("sh", "-c", `cd /sys/bus/pci/devices; for d in *; do t=$(readlink $d/driver); echo "$d ${t##*/}"; done`)
	held := map[string]string{}
	for line := range strings.Lines(out) {
		address, driver, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		held[address] = driver
	}
	return held
}

// take tries to take a function as QEMU would for a guest.
func (m machine) take(address string) string {
	m.t.Helper()
	return strings.TrimSpace(m.run("guest", "vfio", m.group(address), address))
}

// group is the number of a function's IOMMU group.
func (m machine) group(address string) string {
	m.t.Helper()
	return strings.TrimSpace(m.run("sh", "-c", "basename $(readlink /sys/bus/pci/devices/"+address+"/iommu_group)"))
}

// routeThrough sends the default route through a network card, and returns the name of
// its interface.
func (m machine) routeThrough(address string) string {
	m.t.Helper()
	nic := strings.TrimSpace(m.run("sh", "-c", "ls /sys/bus/pci/devices/"+address+"/net"))
	m.run("sh", "-ec", "ip link set $1 up; ip address add 192.0.2.2/24 dev $1; ip route add default via 192.0.2.1", "sh", nic)
	return nic
}

const taken = `{"Viable":true,"Device":true,"Step":"","Err":""}`

var full = flag.Bool("full", false, "run the tests that take long too")

// A cycle is a Debian machine's way to GPU instances and back.
type cycle struct {
	name      string
	cpu       string
	maker     maker
	driver    string
	arguments string // that the kernel gets
	cards     []string
	// The rest is not looked at each time.
	refusals, off, nvidia bool
}

var cycles = []cycle{
	// All K4200 by ids; the other card by its address, for it has twins that stay.
	{name: "vfio-pci", cpu: intel, maker: initramfsTools, driver: vfioPCI, arguments: "intel_iommu=on iommu=pt", cards: []string{theirs, plainCard}, refusals: true, nvidia: true},
	{name: "pci-stub", cpu: intel, maker: initramfsTools, driver: pciStub, arguments: "intel_iommu=on iommu=pt", cards: []string{theirs}, off: true},
	{name: "AMD", cpu: amd, maker: initramfsTools, driver: vfioPCI, arguments: "iommu=pt", cards: []string{theirs, plainCard}, off: true},
	{name: "dracut", cpu: intel, maker: dracut, driver: vfioPCI, arguments: "intel_iommu=on iommu=pt", cards: []string{theirs, plainCard}, off: true},
}

// TestDebian takes Debian machines to GPU instances and back: prepared with their own
// update-grub and update-initramfs, started anew through GRUB, undone, and started
// anew once more. The judges are the kernel's command line and driver links.
func TestDebian(t *testing.T) {
	t.Parallel() // a machine keeps one processor busy
	of := cycles[:1]
	if *full {
		of = cycles
	}
	for _, c := range of {
		t.Run(c.name, c.run)
	}
}

func (c cycle) run(t *testing.T) {
	m := disked(t, debian(c.cpu), c.maker)
	begin := time.Now()
	step := func(name string) { t.Logf("%6.1f s: %s", time.Since(begin).Seconds(), name) }
	arguments := func() string { return strings.TrimSpace(m.run("cat", "/proc/cmdline")) }
	// Without iommu=pt, QEMU's IOMMU of AMD loses an answer of the NVMe controller, and nvme leaves it
	// after a minute. A slow machine takes longer to boot; the controller counts as nvme's there.
	held := func() map[string]string {
		held := m.drivers()
		if c.cpu == amd && held[nvmeCard] == "" {
			held[nvmeCard] = "nvme"
		}
		return held
	}
	drivers := func(want map[string]string, when string) {
		t.Helper()
		hosttest.EqualIn(t, "drivers "+when, want, held())
	}
	line, first := arguments(), held()
	if first[theirs+".1"] != "snd_hda_intel" || first[plainCard+".0"] != "bochs-drm" || first[besideHost] != "bochs-drm" {
		t.Fatalf("drivers at first: %q", first)
	}
	if c.refusals {
		m.hostIsGuarded()
		drivers(first, "after refusals")
		step("what is the host's is refused")
	}
	if c.nvidia {
		t.Run("nvidia", func(t *testing.T) { machine{m.Machine, t}.nvidiaServices() })
		drivers(first, "without nvidia")
		step("NVIDIA's driver and services")
	}

	t.Run("units before", func(t *testing.T) { machine{m.Machine, t}.unitsSee("host check") })
	step("the unit of host check sees what root does")
	prepare := []string{"gpustack", "host", "prepare", "--driver", c.driver, "--yes"}
	prepared := maps.Clone(first)
	for _, card := range c.cards {
		prepare = append(append(prepare, "--device", card+".0"), m.allow(card+".1")...)
		prepared[card+".0"], prepared[card+".1"] = c.driver, c.driver
	}
	out := m.run(prepare...)
	step("prepared")
	hosttest.ContainsIn(t, "it does not say that it runs update-grub", "then runs update-grub\n", out)
	hosttest.ContainsIn(t, "prepared again", "nothing to do", m.run("gpustack", "host", "prepare", "--yes"))
	drivers(first, "before the boot")
	maps.Copy(prepared, m.bootUnit())
	m.containersAtBoot()
	step("an adapter is for containers")

	m.reboot()
	step("started anew")
	hosttest.EqualIn(t, "kernel arguments", line+" "+c.arguments, arguments())
	m.bootUnitEnds()
	drivers(prepared, "after the boot")
	for _, card := range c.cards {
		if c.driver != vfioPCI {
			break // nobody can take it from pci-stub
		}
		hosttest.EqualIn(t, card+".0", taken, m.take(card+".0"))
	}
	m.scanIsTheKernels()
	if reply := m.try("systemctl", "is-active", "systemd-modules-load"); reply.Status != 0 {
		t.Errorf("systemd-modules-load is %s%s", reply.Stdout, m.try("journalctl", "-b", "-u", "systemd-modules-load").Stdout)
	}
	t.Run("check", func(t *testing.T) { machine{m.Machine, t}.isReady() })
	t.Run("units", func(t *testing.T) { machine{m.Machine, t}.unitsSee("host check") })
	t.Run("containers", func(t *testing.T) { machine{m.Machine, t}.containersGotSpec() })
	step("containers got their spec, which is undone")
	steps := 3 // of the adapters, and one for each function that --allow names
	for _, card := range c.cards {
		steps += len(m.allow(card+".1")) / 2
	}
	t.Run("boot unit", func(t *testing.T) { machine{m.Machine, t}.bootUnitRan(steps) })

	if c.off {
		m.run("sed", "-i", "/^\tlinux\t/s/$/ gpustack=off/", "/boot/grub/grub.cfg")
		m.reboot()
		step("started anew with gpustack=off")
		hosttest.EqualIn(t, "kernel arguments", line+" "+c.arguments+" gpustack=off", arguments())
		drivers(first, "with gpustack=off")
	}

	m.withoutBootUnit()
	m.run("gpustack", "undo", "--yes")
	step("undone")
	m.reboot()
	step("started anew")
	hosttest.EqualIn(t, "kernel arguments", line, arguments())
	drivers(first, "in the end")
}

// isReady: host check finds nothing that has failed.
func (m machine) isReady() {
	m.t.Helper()
	reply := m.try("gpustack", "host", "check", "-o", "json")
	var report struct{ Verdict string }
	if err := json.Unmarshal([]byte(reply.Stdout), &report); err != nil || reply.Status != 0 || report.Verdict != "ready" {
		m.t.Errorf("exit status %d, %v\n%s%s", reply.Status, err, reply.Stdout, reply.Stderr)
	}
}

func (m machine) reboot() {
	m.t.Helper()
	hosttest.NoError(m.t, m.Reboot(m.t.Context(), "systemctl", "reboot"))
}

// refused runs gpustack, which must refuse for a reason.
func (m machine) refused(reason string, argv ...string) {
	m.t.Helper()
	reply := m.try(append([]string{"gpustack"}, argv...)...)
	if reply.Status != 1 || !strings.Contains(reply.Stderr, reason) {
		m.t.Errorf("%q: exit status %d, want %q\n%s%s", argv, reply.Status, reason, reply.Stdout, reply.Stderr)
	}
}

// hostIsGuarded: what the host needs itself, and what somebody has open, is given away
// neither at the next boot nor now. No word lifts that for the disk of the root file
// system.
func (m machine) hostIsGuarded() {
	m.t.Helper()
	root := fmt.Sprintf("%s: carries %s, mounted at /", rootDisk, strings.TrimSpace(m.run("findmnt", "--noheadings", "--output", "SOURCE", "/")))
	nic := m.routeThrough(network)
	display := m.display(plainCard + ".0")
	release := m.hold(display)
	for _, command := range []string{"prepare", "bind"} {
		m.t.Run(command, func(t *testing.T) {
			m := machine{m.Machine, t}
			host := func(args ...string) []string { return append([]string{"host", command, "--yes"}, args...) }
			inUse := append(host("--device", plainCard+".0"), m.allow(plainCard+".1")...)
			if command == "bind" {
				inUse = append(inUse, "--live")
			}
			m.refused(root, host("--device", besideHost)...)
			m.refused(root, host("--device", besideHost, "--allow", rootDisk)...)
			m.refused(nic+" is up", host("--device", besideHost)...)
			m.refused(display, inUse...)
		})
	}
	release()
	m.run("sh", "-ec", "ip link add mgmt type vrf table 10; ip link set mgmt up; ip link set $1 master mgmt", "sh", nic)
	for _, command := range []string{"prepare", "bind"} {
		m.refused(nic+" is a port of mgmt", "host", command, "--yes", "--device", besideHost)
	}
	m.run("ip", "link", "delete", "mgmt")
}

// hold keeps a file of the machine open and returns what lets it go.
func (m machine) hold(file string) (release func()) {
	m.t.Helper()
	return m.stay("guest", "hold", file)
}

// stay leaves a program running once it has printed a line, and returns what ends it.
func (m machine) stay(argv ...string) (end func()) {
	m.t.Helper()
	reply, err := m.Ask(m.t.Context(), agent.Request{Argv: argv, Stay: true})
	if err != nil || reply.PID == 0 {
		m.t.Fatalf("%q: %v, %s", argv, err, reply.Stderr)
	}
	return func() {
		m.run("sh", "-ec", "kill $1; while [ -e /proc/$1 ]; do sleep 0.1; done", "sh", fmt.Sprint(reply.PID))
	}
}
