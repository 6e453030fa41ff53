package vm

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
)

const (
	vfioPCI = "vfio-pci"
	pciStub = "pci-stub"
)

// verdicts are what the kernel and the scan say of a function's group.
type verdicts struct {
	Kernel, Scan bool
	Blockers     string
}

func (m machine) verdicts(function string) verdicts {
	m.t.Helper()
	scan := m.scan("--all")
	v := verdicts{Kernel: strings.Contains(m.take("0000:"+function), `"Viable":true`)}
	for _, g := range scan.Groups {
		if number := scan.device(m.t, function).IOMMUGroup; number == nil || g.Number != *number {
			continue
		}
		v.Scan = g.Viable == host.Yes
		for _, b := range g.Blockers {
			v.Blockers += strings.TrimPrefix(b.Address.String(), "0000:") + " " + b.Reason + "\n"
		}
	}
	return v
}

// give has a driver hold a function, or none, in the kernel's own way.
func (m machine) give(function, driver string) {
	m.t.Helper()
	m.run("sh", "-ec", `
d=/sys/bus/pci/devices/0000:$1
[ ! -e $d/driver ] || echo 0000:$1 >$d/driver/unbind
[ -n "$2" ] || exit 0
modprobe $2
echo $2 >$d/driver_override
echo 0000:$1 >/sys/bus/pci/drivers_probe
[ $(basename $(readlink $d/driver)) = $2 ]
`, "sh", function, driver)
}

// groupsAreTheKernels: whether a group can be given to a guest is what the kernel says
// when one takes it. A file in /dev/vfio proves nothing: it comes with the first
// function.
func groupsAreTheKernels(m machine) {
	const display, audio = "02:00.0", "02:00.1"
	m.run("modprobe", "vfio_iommu_type1")
	for _, step := range []struct {
		name, function, driver string
		want                   verdicts
	}{
		{"only function 0 is bound", display, vfioPCI, verdicts{Blockers: audio + " bound to snd_hda_intel\n"}},
		{"function 1 has no driver", audio, "", verdicts{Kernel: true, Scan: true}},
		{"function 1 is on pci-stub", audio, pciStub, verdicts{Kernel: true, Scan: true}},
		{"both are bound", audio, vfioPCI, verdicts{Kernel: true, Scan: true}},
	} {
		m.give(step.function, step.driver)
		m.run("ls", "/dev/vfio")
		hosttest.EqualIn(m.t, step.name, step.want, m.verdicts(display))
	}
	hosttest.EqualIn(m.t, "both are bound", taken, m.take("0000:"+display))
}

// binds is the check that functions, which are all that go with the first, are bound by
// either driver: then nothing is left to do, a guest could have them, and all come back
// to who had them at first.
func binds(functions ...string) func(m machine) {
	return func(m machine) {
		m.run("modprobe", "vfio_iommu_type1")
		first := m.drivers()
		var selected, allowed []string
		for _, f := range functions {
			if strings.HasSuffix(f, ".0") || len(functions) == 1 {
				selected = append(selected, "--device", "0000:"+f)
			}
			allowed = append(allowed, m.allow("0000:"+f)...)
		}
		for _, driver := range []string{vfioPCI, pciStub} {
			bound := maps.Clone(first)
			for _, f := range functions {
				bound["0000:"+f] = driver
			}
			bind := append([]string{"gpustack", "host", "bind", "--driver", driver, "--live", "--yes"}, slices.Concat(selected, allowed)...)
			m.run(bind...)
			hosttest.EqualIn(m.t, "bound to "+driver, bound, m.drivers())
			if driver == vfioPCI {
				hosttest.EqualIn(m.t, functions[0], taken, m.take("0000:"+functions[0]))
			}
			hosttest.ContainsIn(m.t, "bound to "+driver+" again", "nothing to do", m.run(bind...))
			m.scanIsTheKernels()
			m.run(append([]string{"gpustack", "host", "release", "--yes"}, selected...)...)
			if diff := cmp.Diff(first, m.drivers()); diff != "" {
				m.t.Errorf("released from %s (-first +last):\n%s", driver, diff)
			}
		}
	}
}

// allow returns the option that a function needs which is neither a GPU nor one of its card: QEMU's
// own cards have functions of two vendors.
func (m machine) allow(function string) []string {
	m.t.Helper()
	card := strings.TrimSuffix(function, function[len(function)-1:]) + "0"
	facts := strings.Fields(m.run("sh", "-ec", "cd /sys/bus/pci/devices; cat $1/class $1/vendor $2/class $2/vendor", "sh", function, card))
	if strings.HasPrefix(facts[2], "0x03") && facts[1] == facts[3] {
		return nil
	}
	return []string{"--allow", function}
}

// refuses is the check that functions are not bound, for a reason, and that all drivers
// are as before.
func refuses(reason string, args ...string) func(m machine) {
	return func(m machine) {
		m.keepsDrivers(func() { m.refused(reason, append([]string{"host", "bind", "--live", "--yes"}, args...)...) })
	}
}

// keepsDrivers holds drivers after something against those before.
func (m machine) keepsDrivers(does func()) {
	m.t.Helper()
	before := m.drivers()
	does()
	hosttest.EqualIn(m.t, "drivers", before, m.drivers())
}

// cardInUse: a driver of a display function is not asked to let go unless that is wished,
// and not at all while a process has the display open. A group that a process has open,
// as a guest's has, does not go back to the host.
func cardInUse(m machine) {
	const card = "0000:02:00.0"
	host := func(command string, args ...string) []string {
		return append([]string{"host", command, "--yes", "--device", card}, args...)
	}
	bind := append(host("bind"), m.allow("0000:02:00.1")...)
	first := m.drivers()
	display := m.display(card)
	release := m.hold(display)
	m.keepsDrivers(func() {
		m.refused(card+": unbinding bochs-drm on a running host may hang", bind...)
		m.refused(display, append(bind, "--live")...)
	})
	release()
	m.run(slices.Concat([]string{"gpustack"}, bind, []string{"--live"})...)
	release = m.hold("/dev/vfio/" + m.group(card))
	m.keepsDrivers(func() { m.refused(card, host("release")...) })
	release()
	m.run(append([]string{"gpustack"}, host("release")...)...)
	hosttest.EqualIn(m.t, "released", first, m.drivers())
}

// display is the file by which programs use a card's display.
func (m machine) display(address string) string {
	m.t.Helper()
	return "/dev/dri/" + strings.TrimSpace(m.run("sh", "-c", "basename /sys/bus/pci/devices/"+address+"/drm/card*"))
}

// routeIsGuarded: the card in the way carries the default route. The refusal says that it is up.
func routeIsGuarded(m machine) {
	const nic = "0000:02:02.0"
	name := m.routeThrough(nic)
	refuses(name+" is up", "--device", "0000:02:01.0")(m)
}
