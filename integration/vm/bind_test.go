package vm

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
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
		if diff := cmp.Diff(step.want, m.verdicts(display)); diff != "" {
			m.t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if got := m.take("0000:" + display); got != taken {
		m.t.Errorf("both are bound: %s", got)
	}
}

// binds is the check that functions, which are all that go with the first, are bound by
// either driver: then nothing is left to do, a guest could have them, and all come back
// to who had them at first.
func binds(functions ...string) func(m machine) {
	return func(m machine) {
		m.run("modprobe", "vfio_iommu_type1")
		first := m.drivers()
		var selected []string
		for _, f := range functions {
			if strings.HasSuffix(f, ".0") || len(functions) == 1 {
				selected = append(selected, "--device", "0000:"+f)
			}
		}
		for _, driver := range []string{vfioPCI, pciStub} {
			bound := maps.Clone(first)
			for _, f := range functions {
				bound["0000:"+f] = driver
			}
			bind := append([]string{"gpustack", "host", "bind", "--driver", driver, "--live", "--yes"}, selected...)
			m.run(bind...)
			if diff := cmp.Diff(bound, m.drivers()); diff != "" {
				m.t.Errorf("bound to %s (-want +got):\n%s", driver, diff)
			}
			if driver == vfioPCI {
				if got := m.take("0000:" + functions[0]); got != taken {
					m.t.Errorf("%s: %s", functions[0], got)
				}
			}
			if again := m.run(bind...); !strings.Contains(again, "nothing to do") {
				m.t.Errorf("bound to %s again:\n%s", driver, again)
			}
			m.scanIsTheKernels()
			m.run(append([]string{"gpustack", "host", "release", "--yes"}, selected...)...)
			if diff := cmp.Diff(first, m.drivers()); diff != "" {
				m.t.Errorf("released from %s (-first +last):\n%s", driver, diff)
			}
		}
	}
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
	if diff := cmp.Diff(before, m.drivers()); diff != "" {
		m.t.Errorf("drivers (-before +after):\n%s", diff)
	}
}

// cardInUse: a driver of a display function is not asked to let go unless that is wished,
// and not at all while a process has the display open. A group that a process has open,
// as a guest's has, does not go back to the host.
func cardInUse(m machine) {
	const card = "0000:02:00.0"
	host := func(command string, args ...string) []string {
		return append([]string{"host", command, "--yes", "--device", card}, args...)
	}
	first := m.drivers()
	display := m.display(card)
	release := m.hold(display)
	m.keepsDrivers(func() {
		m.refused(card+": unbinding bochs-drm on a running host may hang", host("bind")...)
		m.refused(display, host("bind", "--live")...)
	})
	release()
	m.run(append([]string{"gpustack"}, host("bind", "--live")...)...)
	release = m.hold("/dev/vfio/" + m.group(card))
	m.keepsDrivers(func() { m.refused(card, host("release")...) })
	release()
	m.run(append([]string{"gpustack"}, host("release")...)...)
	if diff := cmp.Diff(first, m.drivers()); diff != "" {
		m.t.Errorf("released (-first +last):\n%s", diff)
	}
}

// display is the file by which programs use a card's display.
func (m machine) display(address string) string {
	m.t.Helper()
	return "/dev/dri/" + strings.TrimSpace(m.run("sh", "-c", "basename /sys/bus/pci/devices/"+address+"/drm/card*"))
}

// linksAreGuarded: an interface that another one lies on is in use, by each kind that a kernel has:
// in the same network namespace, or in another one, which sysfs does not show. Without, it is not.
func linksAreGuarded(m machine) {
	const nic = "0000:02:02.0"
	name := strings.TrimSpace(m.run("ls", "/sys/bus/pci/devices/"+nic+"/net"))
	bind := []string{"gpustack", "host", "bind", "--live", "--dry-run", "--device", "0000:02:01.0"}
	uses := func(m machine) (found []string) {
		m.t.Helper()
		reply := m.try(bind...)
		if reply.Status != 1 || !strings.Contains(reply.Stderr, nic+": ") {
			m.t.Fatalf("%q: exit status %d, want %s\n%s%s", bind, reply.Status, nic, reply.Stdout, reply.Stderr)
		}
		for line := range strings.Lines(reply.Stderr) {
			if _, use, ok := strings.Cut(line, nic+": the host needs it: "); ok {
				found = append(found, guestPID.ReplaceAllString(strings.TrimSpace(use), "(pid PID)"))
			}
		}
		return found
	}
	const apart = " in the network namespace of guest (pid PID)"
	for _, test := range []struct{ kind, want string }{
		{"bridge", "carries the bridge upper0, through " + name},
		{"bond", "carries the bond upper0, through " + name},
		{"vrf", "carries the interface upper0, through " + name}, // which has no DEVTYPE
		{"vlan", "carries vlan upper0" + apart + ", through " + name},
		{"vxlan", "carries vxlan upper0" + apart + ", through " + name},
		{"ipvlan", "carries ipvlan upper0" + apart + ", through " + name},
		{"ipvtap", "carries ipvtap upper0" + apart + ", through " + name},
		{"macvlan", "carries macvlan upper0" + apart + ", through " + name},
		{"macvtap", "carries macvtap upper0" + apart + ", through " + name},
		{"xdp", "carries XDP, through " + name},
		{"device", "carries " + name + apart},
	} {
		m.t.Run(test.kind, func(t *testing.T) {
			m := machine{m.Machine, t}
			end := m.stay("guest", "link", test.kind, name)
			if diff := cmp.Diff([]string{test.want}, uses(m)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			end()
		})
	}
	m.run("sh", "-c", "until [ -e /sys/class/net/"+name+" ]; do sleep 0.1; done")
	if got := uses(m); len(got) > 0 {
		m.t.Errorf("an idle interface: %q", got)
	}
}

var guestPID = regexp.MustCompile(`\(pid [0-9]+\)`)

// routeIsGuarded: the card in the way carries the default route, which says more than
// that it is in the way.
func routeIsGuarded(m machine) {
	const nic = "0000:02:02.0"
	name := m.routeThrough(nic)
	refuses(nic+": the host needs it: carries the default route, through "+name, "--device", "0000:02:01.0")(m)
}
