package bind_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// TestServices: services that keep GPUs of the driver nvidia open are stopped if that is asked, and
// if nothing else depends on them.
func TestServices(t *testing.T) {
	const dcgm = "nvidia-dcgm.service"
	one, two := pci.Address{Bus: 1}, pci.Address{Bus: 2}
	by := func(unit string, addresses ...pci.Address) (list []guard.Holder) {
		for _, a := range addresses {
			list = append(list, guard.Holder{Address: a, File: "/dev/nvidia0", PID: 7, Command: "x", Unit: unit, Service: true})
		}
		return list
	}
	modes := func(of ...pci.Address) machine.Look[map[pci.Address]bool] {
		m := map[pci.Address]bool{one: false, two: false}
		for _, a := range of {
			m[a] = true
		}
		return machine.Saw("nvidia-smi", m, nil)
	}
	type look = machine.Look[map[string]driver.Unit]
	runs := func(names ...string) look {
		units := map[string]driver.Unit{}
		for _, name := range names {
			units[name] = driver.Unit{Name: name, Load: "loaded", Active: "active", Sub: "running", CanStop: true, CanStart: true}
		}
		return look{Value: units}
	}
	but := func(units look, name string, change func(u *driver.Unit)) look {
		u := units.Value[name]
		change(&u)
		units.Value[name] = u
		return units
	}
	asked, notAsked := bind.Mode{Live: true, StopServices: true}, bind.Mode{Live: true}
	const person = "0000:02:00.0: is in persistence mode, in which unbinding nvidia hangs"
	for _, test := range []struct {
		name  string
		card  string // "" for both
		mode  bind.Mode
		uses  machine.Uses
		want  string
		plain bool // on a tree
	}{
		{name: "nothing holds it", card: "0000:02:00.0", mode: notAsked, uses: machine.Uses{Persistence: modes()}, want: ""},
		{name: "not asked", card: "0000:02:00.0", mode: notAsked, uses: machine.Uses{Holders: by(dcgm, one, two), Units: runs(dcgm), Persistence: modes(two)},
			want: "0000:02:00.0: x (pid 7, nvidia-dcgm.service) has /dev/nvidia0 open*\n" + person + "*"},
		{name: "asked", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(dcgm, one, two), Units: runs(dcgm), Persistence: modes(one, two)},
			want: "systemctl stop --no-block nvidia-dcgm.service\nnvidia-smi -i 0000:02:00.0 -pm 0\n" +
				"then systemctl start --no-block nvidia-dcgm.service\n"},
		{name: "the daemon is stopped, and the mode of the GPU that stays returns", card: "0000:02:00.0", mode: asked,
			uses: machine.Uses{Holders: append(by(driver.Persistenced, one, two), by(dcgm, two)...), Units: runs(dcgm, driver.Persistenced), Persistence: modes(one, two)},
			want: "systemctl stop --no-block nvidia-dcgm.service\nsystemctl stop --no-block nvidia-persistenced.service\nnvidia-smi -i 0000:02:00.0 -pm 0\n" +
				"then systemctl start --no-block nvidia-persistenced.service\nthen systemctl start --no-block nvidia-dcgm.service\nthen nvidia-smi -i 0000:01:00.0 -pm 1\n"},
		{name: "no GPU stays", mode: asked, uses: machine.Uses{Holders: append(by(dcgm, one, two), by(driver.FabricManager, one)...), Units: runs(dcgm, driver.FabricManager), Persistence: modes()},
			want: "systemctl stop --no-block nvidia-dcgm.service\nsystemctl stop --no-block nvidia-fabricmanager.service\n"},
		{name: "the fabric of GPUs that stay", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(driver.FabricManager, one, two), Units: runs(driver.FabricManager), Persistence: modes()},
			want: "0000:02:00.0: x (pid 7, nvidia-fabricmanager.service) has /dev/nvidia0 open"},
		{name: "another service", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: append(by("jupyter.service", two), by(dcgm, two)...), Units: runs(dcgm), Persistence: modes()},
			want: "0000:02:00.0: x (pid 7, jupyter.service) has /dev/nvidia0 open"},
		{name: "only another GPU is open", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by("jupyter.service", one), Persistence: modes()}, want: ""},
		{name: "a service that requires it", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(dcgm, two), Persistence: modes(),
			Units: but(runs(dcgm, "site.service"), dcgm, func(u *driver.Unit) { u.Needs = []string{"site.service"} })},
			want: "nvidia-dcgm.service: cannot be stopped without site.service, which requires it and runs"},
		{name: "a service that requires it and does not run", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(dcgm, two), Persistence: modes(),
			Units: but(but(runs(dcgm, "site.service"), dcgm, func(u *driver.Unit) { u.Needs = []string{"site.service"} }), "site.service", func(u *driver.Unit) { u.Active = "inactive" })},
			want: "systemctl stop --no-block nvidia-dcgm.service\nthen systemctl start --no-block nvidia-dcgm.service\n"},
		{name: "the exporter goes with it", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(dcgm, two), Persistence: modes(),
			Units: but(runs(dcgm, "dcgm-exporter.service"), dcgm, func(u *driver.Unit) { u.Needs = []string{"dcgm-exporter.service"} })},
			want: "systemctl stop --no-block dcgm-exporter.service\nsystemctl stop --no-block nvidia-dcgm.service\n" +
				"then systemctl start --no-block nvidia-dcgm.service\nthen systemctl start --no-block dcgm-exporter.service\n"},
		{name: "a masked unit", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(dcgm, two), Persistence: modes(),
			Units: but(runs(dcgm), dcgm, func(u *driver.Unit) { u.Load = "masked" })},
			want: "nvidia-dcgm.service: could not be started again: its unit is masked"},
		{name: "units that refuse", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: append(by(dcgm, two), by(driver.Persistenced, two)...), Persistence: modes(),
			Units: but(but(runs(dcgm, driver.Persistenced), dcgm, func(u *driver.Unit) { u.CanStart = false }), driver.Persistenced, func(u *driver.Unit) { u.CanStop = false })},
			want: "nvidia-dcgm.service: could not be started again: its unit refuses it\nnvidia-persistenced.service: cannot be stopped: its unit refuses it"},
		{name: "a unit of unknown state", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(dcgm, two), Persistence: modes()},
			want: "nvidia-dcgm.service: cannot be stopped: its state is unknown"},
		{name: "no systemctl", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(dcgm, two), Persistence: modes(), Units: look{Err: driver.ErrNoSystemd}},
			want: "not found, so no service can be stopped"},
		{name: "the modes cannot be read", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Persistence: machine.Saw("nvidia-smi", map[pci.Address]bool(nil), errors.New("exit status 9"))},
			want: "0000:02:00.0: cannot determine whether it is in persistence mode, in which unbinding nvidia hangs: exit status 9"},
		{name: "nvidia-smi was not run", card: "0000:02:00.0", mode: asked, uses: machine.Uses{},
			want: "0000:02:00.0: cannot determine whether it is in persistence mode, in which unbinding nvidia hangs: nvidia-smi was not run"},
		{name: "nvidia-smi does not know the GPU", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Persistence: machine.Saw("nvidia-smi", map[pci.Address]bool{one: true}, nil)},
			want: "0000:02:00.0: cannot determine whether it is in persistence mode, in which unbinding nvidia hangs: nvidia-smi does not list it"},
		{name: "no nvidia-smi", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Persistence: machine.Saw("nvidia-smi", map[pci.Address]bool(nil), fmt.Errorf("nvidia-smi: %w", host.ErrNoProgram))},
			want: "warning: cannot determine whether GPUs are in persistence mode, in which unbinding nvidia hangs: nvidia-smi is not installed\n"},
		{name: "a tree", card: "0000:02:00.0", mode: asked, uses: machine.Uses{Holders: by(dcgm, two)}, plain: true,
			want: "systemctl stop --no-block nvidia-dcgm.service\nthen systemctl start --no-block nvidia-dcgm.service\n" +
				"warning: cannot determine whether GPUs are in persistence mode, in which unbinding nvidia hangs: only the running machine shows it\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, strings.ReplaceAll(hosttest.Running("", ""), "nouveau", "nvidia"))
			uses := test.uses
			uses.Running, uses.Guests = !test.plain, idle.Guests
			var opts selection.Options
			if test.card != "" {
				opts.Add = hosttest.Selectors(t, test.card)
			}
			l, err := bind.NewPlan(root, observe(root), opts, uses, test.mode)
			var got strings.Builder
			for _, argv := range l.Services.Before() {
				got.WriteString(strings.Join(argv, " ") + "\n")
			}
			for _, argv := range l.Services.Afterwards() {
				got.WriteString("then " + strings.Join(argv, " ") + "\n")
			}
			for _, w := range l.Warnings {
				got.WriteString("warning: " + w + "\n")
			}
			if err != nil {
				got.Reset()
				var lines []string
				for _, e := range host.Split(err) {
					line := e.Error()
					if errors.Is(e, bind.ErrStoppable) {
						line += "*" // as its hint says
					}
					lines = append(lines, line)
				}
				got.WriteString(strings.Join(lines, "\n"))
			}
			hosttest.Equal(t, test.want, got.String())
		})
	}
}

// TestReleaseServices: what host bind has stopped is started when a GPU returns to nvidia.
func TestReleaseServices(t *testing.T) {
	const held = "symlink sys/bus/pci/devices/0000:01:00.0/driver -> ../../drivers/"
	root := hosttest.Lay(t, strings.Replace(hosttest.Running("", ""), held+"nouveau", held+"vfio-pci", 1))
	stopped := driver.Services{Start: []string{driver.Persistenced}, On: []pci.Address{{Bus: 1}, {Bus: 9}}}
	for name, want := range map[driver.Name][][]string{
		"nvidia":  {{"systemctl", "start", "--no-block", driver.Persistenced}, {"nvidia-smi", "-i", "0000:01:00.0", "-pm", "1"}},
		"nouveau": {},
	} {
		l, err := bind.NewRelease(root, observe(root), selection.Options{}, idle, map[pci.Address]driver.State{{Bus: 1}: {Driver: name}}, stopped, machine.OfHost)
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, fmt.Sprint(name), want, l.Services.Afterwards())
	}
}
