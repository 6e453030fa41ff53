package bind_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/driver"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/selection"
)

// idle is the report of a machine without guests, of which everything was read.
var idle = machine.Uses{Running: true, Guests: guest.Report{Holders: []guest.Holder{}, Guests: []guest.Guest{}}}

func observe(root host.Root) machine.Machine {
	return machine.ObserveDrivers(root, true)
}

// prepared has host prepare select its defaults.
func prepared(t *testing.T, root host.Root) {
	t.Helper()
	observed := prepare.Observe(root, machine.ObservePrepare(root, true), selection.Options{})
	want, err := prepare.NewWant(observed, selection.Options{})
	hosttest.NoError(t, err)
	plan, err := prepare.NewPlan(observed, want)
	hosttest.NoError(t, err)
	hosttest.NoError(t, plan.Files.Apply(context.Background(), root))
}

// brief writes a plan, a line for each change.
func brief(l bind.Plan) string {
	var b strings.Builder
	for _, c := range l.Changes {
		then := c.After.Driver.String()
		if c.Any {
			then = "any"
		}
		fmt.Fprintf(&b, "%s %s > %s", c.Address, c.Before.Driver, then)
		if c.After.Override != "" {
			fmt.Fprintf(&b, " (%s)", c.After.Override)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestBind(t *testing.T) {
	contract := func(driver, by string) string {
		functions := ""
		for i, f := range []string{"0000:01:00.0", "0000:01:00.1", "0000:02:00.0"} {
			functions += fmt.Sprintf(`%s{"address":%q,"vendor_id":"10de","product_id":%q,"subsystem_vendor_id":null,"subsystem_id":null,"bridges":[],"sysfs_path":null,"boot_vga":false,"iommu_group":10,"group_members":[],"driver":%q,"by":%q}`,
				strings.Repeat(",", min(i, 1)), f, []string{"11b4", "0e0a", "11b4"}[i], driver, by)
		}
		return fmt.Sprintf("-- var/lib/gpustack/contract.json --\n"+`{"schema":1,"kind":"contract","guests":{"driver":"vfio-pci","selected":["0000:01:00.0"],`+
			`"allowed":["0000:02:00.0"],"allow_unsafe_interrupts":false,"nvswitch":"","take_over":false,`+
			`"functions":[%s],"arguments":[],"files":[]},"containers":null}`+"\n", functions)
	}
	const console = "-- sys/bus/pci/devices/0000:02:00.0/boot_vga --\n1\n"
	const alias = "-- lib/modules/6.1.0-28-amd64/modules.alias --\nalias vfio_pci:v000010DEd000011B4sv*sd*bc*sc*i* odd_vfio_pci\n"
	const first, second = "0000:01:00.0 nouveau > vfio-pci (vfio-pci)\n0000:01:00.1 snd_hda_intel > vfio-pci (vfio-pci)\n", "0000:02:00.0 nouveau > vfio-pci (vfio-pci)\n0000:02:00.1 snd_hda_intel > vfio-pci (vfio-pci)\n"
	const grouped = "symlink sys/bus/pci/devices/0000:05:00.0/iommu_group -> ../../../../kernel/iommu_groups/11\n"
	const peripheral = "-- sys/bus/pci/devices/0000:05:00.0/class --\n0x088000\n-- sys/bus/pci/devices/0000:05:00.0/vendor --\n0x8086\n-- sys/bus/pci/devices/0000:05:00.0/device --\n0x2021\n" +
		"-- sys/bus/pci/devices/0000:05:00.0/modalias --\npci:v00008086d00002021sv00000000sd00000000bc08sc80i00\n"
	card := func(t *testing.T) selection.Options {
		return selection.Options{Add: hosttest.Selectors(t, "0000:02:00.0")}
	}
	none := func(*testing.T) selection.Options { return selection.Options{} }
	for _, test := range []struct {
		name, links, files string
		opts               func(*testing.T) selection.Options
		uses               machine.Uses
		want               string
	}{
		{"every NVIDIA display function", "", "", none, idle, first + second},
		{"what is recorded, if nothing is named", "", contract("vfio-pci", "ids"), none, idle, first},
		{"with the recorded driver", "mkdir sys/bus/pci/drivers/odd_vfio_pci\n", contract("odd_vfio_pci", "address"), none, idle, strings.ReplaceAll(first, "vfio-pci", "odd_vfio_pci")},
		{"what is named, if something is", "", contract("vfio-pci", "ids"), card, idle, second},
		{"what was allowed stays so", "", contract("vfio-pci", "ids") + console, card, idle, second},
		{"the audio function alone", "", "", func(t *testing.T) selection.Options {
			return selection.Options{Add: hosttest.Selectors(t, "0000:02:00.1")}
		}, idle, second},
		{"the console is not", "", console, card, idle, "0000:02:00.0: is the console (boot_vga)"},
		{"beside a function that no kernel has a driver for", grouped, peripheral, card, idle, second},
		{"beside one that a kernel has a driver for", grouped, peripheral + "-- lib/modules/6.1.0-28-amd64/modules.alias --\nalias pci:v00008086d00002021sv*sd*bc*sc*i* igb\n", card, idle,
			"0000:05:00.0: shares IOMMU group 11 with a selected device but is not part of it: system peripheral 0000:05:00.0"},
		{"VFIO's own driver for the product", "mkdir sys/bus/pci/drivers/odd_vfio_pci\n", alias, card, idle, strings.Replace(second, "nouveau > vfio-pci (vfio-pci)", "nouveau > odd_vfio_pci (odd_vfio_pci)", 1)},
		{"a guest was started with it", "", "", card, machine.Uses{Running: true, Guests: guest.Report{Holders: []guest.Holder{}, Guests: []guest.Guest{{PID: 42, Command: "qemu-kvm", Asked: []pci.Address{{Bus: 2}}}}}},
			"0000:02:00.0: assigned to guest qemu-kvm (pid 42)"},
		{"who has what is not known", "", "", card, machine.Uses{Running: true, Guests: guest.Report{Guests: []guest.Guest{}, Sources: []guest.Source{{Name: "vfio", State: guest.Unreadable, Detail: "no"}}}},
			"cannot determine which guests use these devices: vfio: no"},
		{"who has what is known in part", "", "", card, machine.Uses{Running: true, Guests: guest.Report{Guests: []guest.Guest{}, Holders: []guest.Holder{{PID: 7, Command: "x", Functions: []pci.Address{{Bus: 9}}}}, Sources: []guest.Source{{Name: "vfio", State: guest.Unreadable, Detail: "no"}}}},
			"cannot determine which guests use these devices: vfio: no"},
		{"it is unknown what uses them", "", "", card, machine.Uses{Running: true, Guests: guest.Report{Guests: []guest.Guest{}, Holders: []guest.Holder{{PID: 7, Command: "x"}}}},
			"cannot determine which guests use these devices: x (pid 7) has functions that are not known"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, hosttest.Running(test.links, test.files))
			l, err := bind.NewPlan(root, observe(root), test.opts(t), test.uses, bind.Mode{Live: true})
			got := brief(l)
			if err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

func TestRelease(t *testing.T) {
	const held = "symlink sys/bus/pci/devices/0000:01:00.0/driver -> ../../drivers/vfio-pci\nsymlink sys/bus/pci/devices/0000:01:00.1/driver -> ../../drivers/vfio-pci\n"
	override := func(address, name string) string {
		return "-- sys/bus/pci/devices/" + address + "/driver_override --\n" + name + "\n"
	}
	was := func(held driver.Name) map[pci.Address]driver.State {
		return map[pci.Address]driver.State{{Bus: 1}: {Driver: held}}
	}
	for _, test := range []struct {
		name, links, files string
		taken              map[pci.Address]driver.State
		want               string
	}{
		{"the host has all", "", "", nil, ""},
		{"to what held it, and what its alias leads to", held, "", was("nvidia"), "0000:01:00.0 vfio-pci > nvidia\n0000:01:00.1 vfio-pci > any\n"},
		{"to no driver, as before", held, override("0000:01:00.0", "vfio-pci"), was(""), "0000:01:00.0 vfio-pci > no driver\n0000:01:00.1 vfio-pci > any\n"},
		{"of its alias", held, "", nil, "0000:01:00.0 vfio-pci > nouveau\n0000:01:00.1 vfio-pci > any\n"},
		{"the host has it with another driver by now", "", "", was("nvidia"), ""},
		{"nobody has it", "symlink sys/bus/pci/devices/0000:01:00.0/driver -> \n", "", nil, ""},
		{"held by the host, and set to be held by another", "", override("0000:01:00.0", "vfio-pci"), nil, "0000:01:00.0 nouveau > nouveau\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			archive := hosttest.Running("", test.files)
			for line := range strings.Lines(test.links) {
				place, target, _ := strings.Cut(line, " -> ")
				if target == "\n" {
					line = "" // none
				}
				from := strings.Index(archive, place+" -> ")
				end := from + strings.Index(archive[from:], "\n") + 1
				archive = archive[:from] + line + archive[end:]
			}
			root := hosttest.Lay(t, archive)
			l, err := bind.NewRelease(root, observe(root), selection.Options{}, idle, test.taken, driver.Services{}, machine.OfHost)
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.want, brief(l))
		})
	}
}

// TestReleaseChanged: a recorded function that is gone or has become another does not keep
// the others from the host.
func TestReleaseChanged(t *testing.T) {
	const held = "symlink sys/bus/pci/devices/0000:01:00.0/driver -> ../../drivers/"
	for _, test := range []struct {
		name     string
		bend     func(root host.Root, at string) error
		cards    []string
		opts     selection.Options
		want     string
		warnings int
	}{
		{"another", func(root host.Root, at string) error {
			return os.WriteFile(root.Path(at+"modalias"), []byte("pci:v000010DEd00001BB1sv00000000sd00000000bc03sc00i00\n"), 0o644)
		}, []string{"02"}, selection.Options{}, "0000:01:00.0 vfio-pci > nouveau\n", 1},
		{"gone", func(root host.Root, at string) error { return os.RemoveAll(root.Path(at)) }, []string{"02"}, selection.Options{}, "0000:01:00.0 vfio-pci > nouveau\n", 2},
		{"all gone", func(root host.Root, at string) error { return os.RemoveAll(root.Path(at)) }, []string{"01", "02"}, selection.Options{}, "", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, strings.Replace(hosttest.Running("", ""), held+"nouveau", held+"vfio-pci", 1))
			prepared(t, root)
			for _, card := range test.cards {
				functions := []string{"0", "1"}
				if test.name == "another" {
					functions = functions[:1]
				}
				for _, f := range functions {
					hosttest.NoError(t, test.bend(root, "sys/bus/pci/devices/0000:"+card+":00."+f+"/"))
				}
			}
			l, err := bind.NewRelease(root, observe(root), test.opts, idle, nil, driver.Services{}, machine.OfHost)
			if err != nil || brief(l) != test.want {
				t.Errorf("%v, %s", err, brief(l))
			}
			var changed []string
			for _, w := range l.Warnings {
				if strings.Contains(w, "is not the function that was recorded") {
					changed = append(changed, w)
				}
			}
			if len(changed) != test.warnings {
				t.Errorf("%q", l.Warnings)
			}
		})
	}
}

// TestNeeded: what goes to guests again must not be what the host needs by now.
func TestNeeded(t *testing.T) {
	root := hosttest.Lay(t, hosttest.Running("", "-- sys/bus/pci/devices/0000:02:00.0/boot_vga --\n1\n"))
	m := observe(root)
	p := driver.Plan{Changes: []driver.Change{{Address: pci.Address{Bus: 1}}, {Address: pci.Address{Bus: 2}}}}
	hosttest.Equal(t, "0000:02:00.0: is the console (boot_vga)", fmt.Sprint(bind.Needed(m, p, nil)))
	if err := bind.Needed(m, p, []pci.Address{{Bus: 2}}); err != nil {
		t.Errorf("allowed: %v", err)
	}
	p.Release = true
	if err := bind.Needed(m, p, nil); err != nil {
		t.Errorf("%v", err)
	}
}

// TestAccelerator: unbinding the driver of a processing accelerator may hang, as that of a GPU.
func TestAccelerator(t *testing.T) {
	root := hosttest.Lay(t, hosttest.Instinct())
	_, err := bind.NewPlan(root, observe(root), selection.Options{Vendors: []pci.ID{0x1002}}, idle, bind.Mode{})
	if !errors.Is(err, bind.ErrLive) {
		t.Errorf("bind without --live: %v", err)
	}
}
