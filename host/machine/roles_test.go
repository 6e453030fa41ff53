package machine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// TestRoles: the record of guests and that of containers are one file, from which both return as
// they were, and in which no function can have two roles.
func TestRoles(t *testing.T) {
	guests, _, err := machine.ReadRecord(hosttest.Lay(t, "-- var/lib/gpustack/contract.json --\n"+recorded+"\n"))
	hosttest.NoError(t, err)
	before := hosttest.Address(t, "0000:83:00.0")
	containers := &machine.Containers{
		Functions: []machine.ContainerFunction{{Address: before, VendorID: 0x10de, ProductID: 0x20b2, Path: []pci.Address{}}},
		Files:     []machine.Hash{{Name: "/etc/cdi/gpustack-gpu.json", Hash: "0"}},
	}
	for _, test := range []struct {
		name       string
		guests     *machine.Contract
		containers *machine.Containers
		old, new   string // replaced in the text
		want       string // in the error
	}{
		{"nothing", nil, nil, "", "", ""},
		{"guests", guests, nil, "", "", ""},
		{"containers", nil, containers, "", "", ""},
		{"both", guests, containers, "", "", ""},
		{"one function twice", guests, containers, "0000:83:00.0", "0000:84:00.0", "malformed: 0000:84:00.0 is recorded twice: a function has one role"},
		{"no options", guests, containers, `"options":`, `"option":`, "containers.options is missing"},
		{"no list", nil, containers, `"functions":`, `"function":`, "containers.functions is missing"},
		{"half a function", nil, containers, `"product_id":"20b2",`, "", "containers.functions[0].product_id is missing"},
		{"guests without a driver", guests, containers, `"driver": "vfio-pci",`, "", "guests.driver is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, err := machine.RecordText(test.guests, test.containers)
			hosttest.NoError(t, err)
			archive := "-- var/lib/gpustack/contract.json --\n" + strings.Replace(string(text), test.old, test.new, 1)
			if text == nil {
				archive = "mkdir var/lib/gpustack\n"
			}
			gotGuests, gotContainers, err := machine.ReadRecord(hosttest.Lay(t, archive))
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q\n%s", err, test.want, text)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if diff := cmp.Diff(test.guests, gotGuests) + cmp.Diff(test.containers, gotContainers); diff != "" {
				t.Errorf("%s\n%s", diff, text)
			}
			for a, want := range map[string]machine.Role{
				"0000:83:00.0": machine.OfContainer, "0000:84:00.0": machine.OfGuest, "0000:85:00.0": machine.OfHost,
			} {
				at := hosttest.Address(t, a)
				if test.guests == nil && want == machine.OfGuest || test.containers == nil && want == machine.OfContainer {
					want = machine.OfHost
				}
				hosttest.EqualIn(t, a, want, machine.RoleOf(gotGuests, gotContainers, at))
			}
		})
	}
}
