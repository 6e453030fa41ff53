package nova_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
)

// TestVendors: GPUs of any vendor get an alias by name, of the type of those that are offered, and a
// spec by address where one option does not tell physical and virtual functions apart.
func TestVendors(t *testing.T) {
	const (
		// Flex 170, whose virtual functions have its id (github.com/intel/media-delivery).
		flex = "4d:00.0 0380 8086:56c0 i915 31; 4d:00.1 0380 8086:56c0 vfio-pci 4d:00.0; 4d:00.2 0380 8086:56c0 - 4d:00.0; b3:00.0 0380 8086:56c0 i915 31"
		// MI300X with amd/MxGPU-Virtualization (gim): each PF has one VF of another id.
		mi300x = "11:00.0 1200 1002:74a1 gim 1; 11:02.0 1200 1002:74b5 vfio-pci 11:00.0; 2f:00.0 1200 1002:74a1 gim 1; 2f:02.0 1200 1002:74b5 vfio-pci 2f:00.0"
		bound  = "4d:00.0 0380 8086:56c0 vfio-pci 31; 4d:00.1 0380 8086:56c0 vfio-pci 4d:00.0; 4d:00.2 0380 8086:56c0 vfio-pci 4d:00.0"
		beside = bound + "; b3:00.0 0380 8086:56c0 vfio-pci 0"
		whole  = "02:00.0 0300 1a03:2000 ast; 11:00.0 1200 1002:74a1 amdgpu; 2f:00.0 1200 1002:74a1 amdgpu"
	)
	for _, test := range []struct {
		name, functions, given, alias, want string
	}{
		{"VFs by their driver", flex, "", "flex=8086:56c0", "flex type-VF: 4d:00.1 4d:00.2"},
		{"a recorded VF", flex, "4d:00.1", "", "Flex170 type-VF: 4d:00.1"},
		{"a PF with its VFs, all of them bound", bound, "", "flex=8086:56c0", "flex type-VF: 4d:00.1 4d:00.2"},
		{"a PF with its VFs, all of them recorded", bound, "4d:00.0 4d:00.1 4d:00.2", "", "Flex170 type-VF: 4d:00.1 4d:00.2"},
		{"VFs beside a whole card", beside, "", "flex=8086:56c0", "flex : 4d:00.1 4d:00.2"},
		{"a whole card beside VFs", beside, "", "flex=8086:56c0,device_type=type-PF", "flex type-PF: b3:00.0"},
		{"both, each by a name", beside, "", "vf=8086:56c0,device_type=type-VF pf=8086:56c0,device_type=type-PF",
			"vf type-VF: pf type-PF: 4d:00.1 4d:00.2 b3:00.0"},
		{"a recorded PF", flex, "b3:00.0", "", "Flex170 type-PF: b3:00.0"},
		{"a PF and a VF", flex, "4d:00.1 b3:00.0", "", "product 8086:56c0 has different device types, which one alias cannot select: type-PF on localhost; type-VF on localhost"},
		{"VFs of another id", mi300x, "11:02.0 2f:02.0", "", "MI300X-VF type-VF: all"},
		{"one VF of another id", mi300x, "11:02.0", "", "MI300X-VF type-VF: 11:02.0"},
		{"whole GPUs", whole, "11:00.0 2f:00.0", "", "MI300X type-PCI: all"},
		{"whole GPUs by alias", whole, "", "gpu=1002:74a1", "gpu type-PCI: all"},
		{"a console that shares the group", whole, "02:00.0 11:00.0 2f:00.0", "", "MI300X type-PCI: all"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var links, tree strings.Builder
			for f := range strings.SplitSeq(test.functions, "; ") {
				words := append(strings.Fields(f), "", "")
				dir := "sys/bus/pci/devices/0000:" + words[0]
				vendor, product, _ := strings.Cut(words[2], ":")
				fmt.Fprintf(&tree, "-- %[1]s/class --\n0x%[2]s00\n-- %[1]s/vendor --\n0x%[3]s\n-- %[1]s/device --\n0x%[4]s\n", dir, words[1], vendor, product)
				if words[3] != "-" {
					fmt.Fprintf(&links, "symlink %s/driver -> ../../drivers/%s\n", dir, words[3])
				}
				if strings.Contains(words[4], ":") {
					fmt.Fprintf(&links, "symlink %s/physfn -> ../0000:%s\n", dir, words[4])
				} else if words[4] != "" {
					fmt.Fprintf(&tree, "-- %[1]s/sriov_totalvfs --\n%[2]s\n-- %[1]s/sriov_numvfs --\n1\n", dir, words[4])
				}
			}
			root := hosttest.Lay(t, links.String()+tree.String()+"-- etc/nova/nova.conf --\n")
			devices, warnings, err := pci.Scan(root, pci.Options{})
			if err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			o := nova.Options{Role: nova.Compute, Release: nova.Epoxy, ComputeNode: nova.ComputeNode{Devices: devices}}
			for word := range strings.FieldsSeq(test.given) {
				a := hosttest.Address(t, "0000:"+word)
				o.Given = append(o.Given, a)
			}
			for word := range strings.FieldsSeq(test.alias) {
				a, err := nova.ParseAlias(word)
				hosttest.NoError(t, err)
				o.Aliases = append(o.Aliases, a)
			}
			if test.alias == "" {
				here, err := o.Prepared()
				hosttest.NoError(t, err)
				o.Hosts = []nova.Host{here}
			}
			w, err := nova.NewWant(o)
			var got []string
			for _, a := range w.Aliases {
				got = append(got, a.Name+" "+a.DeviceType+":")
			}
			for _, s := range w.Specs {
				if s.Address == nil {
					got = append(got, "all")
				} else {
					got = append(got, strings.TrimPrefix(s.Address.String(), "0000:"))
				}
			}
			if err != nil {
				got = []string{err.Error()}
			}
			hosttest.Equal(t, test.want, strings.Join(got, " "))
			if err != nil {
				return
			}
			for range 2 { // again: nothing to do, and nothing to say
				p, err := nova.NewPlan(root, o, w, nova.Place{File: nova.DefaultConf})
				hosttest.NoError(t, err)
				for _, c := range p.Files.Pending() {
					hosttest.NoError(t, os.WriteFile(root.Path(c.Name), c.After.Content, 0o600))
				}
				if o.InUse != nil && (len(p.Files.Pending()) > 0 || len(p.Warnings) > 0) {
					t.Errorf("again: %v, %q", p.Files.Pending(), p.Warnings)
				}
				if err = o.ReadFiles(root, nova.Place{File: nova.DefaultConf}); err != nil {
					t.Fatal(err)
				}
				if w, err = nova.NewWant(o); err != nil || len(w.Warnings) > 1 {
					t.Errorf("again: %v, %q", err, w.Warnings)
				}
			}
		})
	}
}
