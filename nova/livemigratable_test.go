package nova_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/novacheck"
)

// TestLiveMigratable: live_migratable is written to device_spec only if nova-compute starts with it
// on this hypervisor, whatever its value is, and nothing else is done without a word.
func TestLiveMigratable(t *testing.T) {
	const (
		plain = `{"vendor_id": "10de", "product_id": "20b2"}`
		yes   = `{"vendor_id": "10de", "product_id": "20b2", "live_migratable": "yes"}`
		no    = `{"vendor_id": "10de", "product_id": "20b2", "live_migratable": "no"}`
		lacks = "alias A: live_migratable is not written to device_spec, because "
		since = ", and nova-compute does not start with it before libvirt 10.0.0"
		there = "; guests with this alias get only devices whose device_spec has it already"
		both  = lacks + "the versions of libvirt and QEMU are unknown: --libvirt and --qemu give them" + there
		none  = "; no guest with this alias gets a device of this host"
	)
	for _, test := range []struct {
		name, libvirt, qemu string
		value               string // of the alias
		before              string // a device_spec of the file
		want                string // the device_spec, or the error
		warnings            string
	}{
		{"new enough", "10.0.0", "8.2.2", "yes", "", yes, ""},
		{"new enough, no", "11.3", "10.0", "no", "", no, ""},
		{"an old libvirt", "9.0.0", "8.2.2", "yes", "", plain, lacks + "libvirt is 9.0.0" + since + none},
		{"an old libvirt, no", "9.0.0", "8.2.2", "no", "", plain, lacks + "libvirt is 9.0.0" + since + none},
		{"an old QEMU", "10.0.0", "8.2.1", "yes", "", plain, lacks + "QEMU is 8.2.1, and nova-compute does not start with it before QEMU 8.2.2" + none},
		{"unknown", "", "", "yes", "", plain, both},
		{"one unknown", "10.0.0", "", "yes", "", plain, lacks + "the version of QEMU is unknown: --qemu gives it" + there},
		{"one unknown, one old", "9.0.0", "", "yes", "", plain, lacks + "libvirt is 9.0.0" + since + none},
		{"not asked", "", "", "", "", plain, ""},
		{"there already", "10.0.0", "8.2.2", "yes", yes, yes, ""},
		{"there already, unknown", "", "", "yes", yes, yes, both},
		{"there already in another form, unknown", "", "", "yes", strings.Replace(yes, `"yes"`, "true", 1), strings.Replace(yes, `"yes"`, "true", 1), both},
		{"there already, of another value, unknown", "", "", "yes", no, "error: conflicts with the planned device_spec", ""},
		{"there already, old", "9.0.0", "8.2.2", "yes", yes, "error: conflicts with the planned device_spec", ""},
		{"of another device, old", "9.0.0", "8.2.2", "", `{"vendor_id": "8086", "live_migratable": "no"}`,
			"error: a device_spec has live_migratable, but libvirt is 9.0.0", ""},
		{"of another device, unknown", "", "", "", `{"vendor_id": "8086", "live_migratable": "no"}`, `{"vendor_id": "8086", "live_migratable": "no"}` + "\n" + plain, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := "A=10de:20b2,device_type=type-PF"
			if test.value != "" {
				text += ",live_migratable=" + test.value
			}
			a, err := nova.ParseAlias(text)
			hosttest.NoError(t, err)
			o := nova.Options{Role: nova.Compute, Release: nova.Epoxy, Aliases: []nova.Alias{a}}
			for _, part := range []struct {
				text string
				into *nova.Version
			}{{test.libvirt, &o.Hypervisor.Libvirt}, {test.qemu, &o.Hypervisor.QEMU}} {
				if part.text == "" {
					continue
				}
				if *part.into, err = nova.ParseVersion(part.text); err != nil {
					t.Fatal(err)
				}
			}
			w, err := nova.NewWant(o)
			hosttest.NoError(t, err)
			before := "[pci]\n"
			if test.before != "" {
				before += "device_spec = " + test.before + "\n"
			}
			p, err := nova.NewPlan(hosttest.Lay(t, "-- etc/nova/nova.conf --\n"+before), o, w, nova.Place{File: nova.DefaultConf})
			if err == nil {
				_, err = novacheck.Planned(o.Release, p)
			}
			if want, isError := strings.CutPrefix(test.want, "error: "); isError {
				hosttest.Contains(t, want, fmt.Sprint(err))
				return
			}
			hosttest.NoError(t, err)
			var specs []string
			for line := range strings.Lines(string(p.Files[0].After.Content)) {
				if spec, ok := strings.CutPrefix(line, "device_spec = "); ok {
					specs = append(specs, strings.TrimSuffix(spec, "\n"))
				}
			}
			hosttest.Equal(t, test.want, strings.Join(specs, "\n"))
			hosttest.EqualIn(t, "warnings", test.warnings, strings.Join(append(w.Warnings, p.Warnings...), "\n"))
		})
	}
}
