package novacheck_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/devspec"
	"gpustack/nova/novacheck"
)

// product are the functions that device_specs were recorded with, of each type.
func product(t *testing.T) []pci.Device {
	t.Helper()
	vendor, product := pci.ID(0x10de), pci.ID(0x11b4)
	device := func(address, pf string, vfs int) pci.Device {
		d := pci.Device{Address: hosttest.Address(t, address), VendorID: &vendor, ProductID: &product}
		kind := pci.TypePCI
		if vfs > 0 {
			kind = pci.TypePF
			d.SRIOV.TotalVFs = &vfs
		}
		if pf != "" {
			kind = pci.TypeVF
			parent := hosttest.Address(t, pf)
			d.SRIOV.PF = &parent
		}
		d.DeviceType = &kind
		return d
	}
	return []pci.Device{device("0000:84:00.0", "", 0), device("0000:85:00.0", "", 2), device("0000:86:00.4", "0000:86:00.0", 0)}
}

// TestVerdictsOnSpecs: a device_spec that Nova rejects fails, and so does one whose devices
// nova-compute does not count or report; of others the devices are offered with the resource class
// and the traits that Nova gives them.
func TestVerdictsOnSpecs(t *testing.T) {
	devices := product(t)
	for _, v := range readVerdicts(t).Specs {
		var value string
		var reported bool
		v.read(t, 0, &value)
		v.read(t, 1, &reported)
		for r, said := range v.Said {
			var by map[string]*struct {
				Error, Class string
				Traits       []string
			}
			if failed(said) == "" {
				hosttest.NoError(t, json.Unmarshal(said, &by))
			}
			for i := range devices {
				d := &devices[i]
				side := sideOf(t, nova.Compute, "[pci]", fmt.Sprint("report_in_placement = ", reported), "device_spec = "+strings.ReplaceAll(value, "$", "$$"))
				side.Devices, side.Interfaces = devices[i:i+1], map[string]pci.Address{}
				found := failures(novacheck.Run(r, []nova.Side{side}, nil, nil), "device_spec")
				of, told := by[string(*d.DeviceType)]
				if every, ok := by["every"]; ok {
					of, told = every, true
				}
				wrong := failed(said)
				if of != nil {
					wrong = of.Error
				}
				found = slices.DeleteFunc(found, func(f string) bool { // of another line
					return strings.Contains(f, "libvirt is") || strings.Contains(f, "QEMU is")
				})
				if (len(found) > 0) != (wrong != "") {
					t.Errorf("%s: %s, %s\nNova: %q\ncheck: %q", r, v, *d.DeviceType, wrong, found)
				}
				if wrong != "" {
					continue
				}
				if strings.Contains(value, "remote_managed") {
					continue // matches cards with a serial number in their VPD only, which is not read
				}
				first, ok := devspec.NewHardware(side.Devices, nil).First(devspec.Lines(side.Files, r.SpecNames()), d)
				hosttest.EqualIn(t, fmt.Sprintf("%s: %s, %s: offered", r, v, *d.DeviceType), !told || of != nil, ok)
				if ok && of != nil && of.Class != "" {
					traits := slices.DeleteFunc(slices.Clone(of.Traits), func(t string) bool { return t == "HW_PCI_ONE_TIME_USE" })
					if first.Class() != of.Class || first.Traits() != strings.Join(traits, ",") {
						t.Errorf("%s: %s, %s: class %s and traits %s\nNova: %s and %s", r, v, *d.DeviceType, first.Class(), first.Traits(), of.Class, traits)
					}
				}
			}
		}
	}
}

// TestVerdictsOnNames: the standard traits and resource classes are those of the releases together.
func TestVerdictsOnNames(t *testing.T) {
	for _, v := range readVerdicts(t).Names {
		var kind, name string
		v.read(t, 0, &kind)
		v.read(t, 1, &name)
		r := devspec.Reported{Spec: devspec.Spec{Object: map[string]any{"resource_class": name, "traits": name}}}
		switch {
		case kind == "class" && r.Class() != name:
			t.Errorf("class %s is called %s", name, r.Class())
		case kind == "trait" && r.Traits() != name:
			t.Errorf("trait %s is called %s", name, r.Traits())
		}
	}
}
