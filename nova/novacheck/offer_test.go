package novacheck_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/novacheck"
)

// machineOf returns a machine with functions, each as "ADDRESS DRIVER [ROLE]": a GPU without a
// driver is "-". Roles are selected, companion, container, and
// returning for a function that was selected at the last boot.
func machineOf(t *testing.T, functions ...string) nova.ComputeNode {
	t.Helper()
	var tree strings.Builder
	drivers, roles := map[string]string{}, map[string]string{}
	for _, f := range functions {
		words := append(strings.Fields(f), "")
		dir := "sys/bus/pci/devices/" + words[0]
		product, class := "0x11b4", "0x030000"
		if strings.HasSuffix(words[0], ".1") {
			product, class = "0x0e0a", "0x040300"
		}
		fmt.Fprintf(&tree, "-- %[1]s/vendor --\n0x10de\n-- %[1]s/device --\n%[2]s\n-- %[1]s/class --\n%[3]s\n", dir, product, class)
		drivers[words[0]], roles[words[0]] = words[1], words[2]
	}
	devices := hosttest.Devices(t, hosttest.Lay(t, tree.String()))
	m := nova.ComputeNode{Devices: devices}
	for i := range devices {
		d := &devices[i]
		if driver := drivers[d.Address.String()]; driver != "-" {
			d.Driver = &driver
		}
		switch roles[d.Address.String()] {
		case "selected":
			m.Given, m.Selected = append(m.Given, d.Address), append(m.Selected, d.Address)
		case "returning":
			m.Returning = true
		case "left":
			m.Left = append(m.Left, d.Address)
		case "companion":
			m.Given = append(m.Given, d.Address)
		case "container":
			m.Containers = append(m.Containers, d.Address)
		}
	}
	return m
}

// TestPrepared: functions that host prepare has selected must be offered by some nova-compute of
// the machine, and no GPU may be that a driver of the host has.
func TestPrepared(t *testing.T) {
	const (
		one    = "0000:84:00.0"
		two    = "0000:88:00.0"
		spec   = `device_spec = {"vendor_id": "10de", "product_id": "11b4"}` + "\nalias = " + k4200 + "\n"
		ofOne  = `device_spec = {"address": "` + one + `"}` + "\nalias = " + k4200 + "\n"
		alias  = "alias = " + k4200 + "\n"
		vfio   = " vfio-pci selected"
		hostOf = " nouveau"
	)
	for _, test := range []struct {
		name    string
		role    nova.Role
		conf    string
		machine []string
		want    string
	}{
		{"all are offered", nova.Compute, spec, []string{one + vfio, two + vfio}, ""},
		{"companions need not be", nova.Compute, spec, []string{one + vfio, "0000:84:00.1 vfio-pci companion", two + vfio}, ""},
		{"nova.conf is untouched", nova.Compute, "", []string{one + vfio, "0000:84:00.1 vfio-pci companion", two + vfio},
			"fail device_spec node:0 host prepare has selected 2 functions for guests, and no device_spec offers one of them: 0000:84:00.0, 0000:88:00.0"},
		{"the spec is of another product", nova.Compute, `device_spec = {"vendor_id": "10de", "product_id": "0e0a"}` + "\n",
			[]string{one + vfio, "0000:84:00.1 vfio-pci companion"},
			"fail device_spec node:0 host prepare has selected 1 function for guests, and no device_spec offers one of them: 0000:84:00.0"},
		{"an option that the release ignores", nova.Compute, "[DEFAULT]\n" + spec, []string{one + vfio},
			"fail device_spec node:0 host prepare has selected 1 function for guests, and no device_spec offers one of them: 0000:84:00.0; " +
				"fail option node:3 [DEFAULT] device_spec is not an option of zed; fail option node:4 [DEFAULT] alias is not an option of zed"},
		{"the next boot returns them", nova.Compute, spec, []string{one + " vfio-pci returning", two + " vfio-pci"},
			"fail device_spec node:2 a device_spec offers 0000:84:00.0 (vfio-pci), 0000:88:00.0 (vfio-pci), and the next boot takes them from guests"},
		{"the next boot returns one of them", nova.Compute, "device_spec = {\"address\": \"" + two + "\"}\n" + ofOne, []string{one + vfio, two + " vfio-pci returning"},
			"fail device_spec node:2 a device_spec also matches 0000:88:00.0, which should remain with this machine; " +
				"fail device_spec node:2 a device_spec offers 0000:88:00.0 (vfio-pci), and the next boot takes it from guests"},
		{"the next boot does not make a VF for guests again", nova.Compute, ofOne, []string{one + " vfio-pci left", two + " vfio-pci left"},
			"fail device_spec node:2 a device_spec offers 0000:84:00.0 (vfio-pci), and the next boot takes it from guests"},
		{"one is not offered", nova.Compute, ofOne, []string{one + vfio, two + vfio},
			"warn device_spec node:0 no device_spec offers 0000:88:00.0, which host prepare has selected for guests"},
		{"prepared, and not booted", nova.Compute, spec, []string{one + " nouveau selected", two + vfio},
			"fail device_spec node:2 a device_spec offers 0000:84:00.0 (nouveau), and a driver of the host has it"},
		{"nothing is prepared any more", nova.Compute, spec, []string{one + hostOf, two + " nvidia"},
			"fail device_spec node:2 a device_spec offers 0000:84:00.0 (nouveau), 0000:88:00.0 (nvidia), and a driver of the host has them"},
		{"whatever there is", nova.Compute, `device_spec = {"address": "*:*:*.*"}` + "\nalias = " + k4200 + "\n", []string{one + vfio, "0000:84:00.1 snd_hda_intel"},
			"fail device_spec node:2 a device_spec offers 0000:84:00.1 (snd_hda_intel), and a driver of the host has it"},
		{"whatever is on one bus", nova.Compute, `device_spec = {"address": "0000:84:*.*"}` + "\nalias = " + k4200 + "\n",
			[]string{one + vfio, "0000:84:00.1 snd_hda_intel"}, ""},
		{"prepared by other means", nova.Compute, spec, []string{one + " vfio-pci", two + " pci-stub"}, ""},
		{"no driver", nova.Compute, spec, []string{one + " -"}, ""},
		{"the others are for containers", nova.Compute, ofOne, []string{one + vfio, two + " nvidia container"}, ""},
		{"all are for containers", nova.Compute, "", []string{one + " nvidia container", two + " nvidia container"}, ""},
		{"containers have one that is offered", nova.Compute, spec, []string{one + vfio, two + " nvidia container"},
			"fail device_spec node:2 a device_spec matches 0000:88:00.0, which containers of this machine have"},
		{"GPUs of the host, and Nova without devices", nova.Compute, "", []string{one + hostOf, two + hostOf}, ""},
		{"a controller without GPUs", nova.Controller, alias + "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n", nil, ""},
		{"a controller with GPUs", nova.Controller, alias + "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n", []string{one + hostOf}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var m nova.ComputeNode
			if test.machine != nil {
				m = machineOf(t, test.machine...)
			}
			side := nova.Side{Role: test.role, Files: []conf.Source{source(t, "node", "[pci]\n"+test.conf)}, ComputeNode: m}
			hosttest.Equal(t, test.want, found(novacheck.Run(nova.Zed, []nova.Side{side}, nil, nil)))
		})
	}
}

// TestOfferedByOne: of several nova-computes of a machine, it is enough that one offers a function.
func TestOfferedByOne(t *testing.T) {
	m := machineOf(t, "0000:84:00.0 vfio-pci selected", "0000:88:00.0 vfio-pci selected")
	side := func(name, text string) nova.Side {
		return nova.Side{Role: nova.Compute, Files: []conf.Source{source(t, name, "[pci]\n"+text)}, ComputeNode: m}
	}
	const spec = `device_spec = {"vendor_id": "10de", "product_id": "11b4"}` + "\n"
	for _, test := range []struct{ a, b, want string }{
		{spec, "", ""}, {"", spec, ""},
		{"", "", "fail device_spec a:0 host prepare has selected 2 functions for guests, and no device_spec offers one of them: 0000:84:00.0, 0000:88:00.0"},
	} {
		hosttest.EqualIn(t, test.a+", "+test.b, test.want, found(novacheck.Run(nova.Zed, []nova.Side{side("a", test.a), side("b", test.b)}, nil, nil)))
	}
}
