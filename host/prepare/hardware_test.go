package prepare_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
	startup "gpustack/host/steps"
)

// TestRegions: a GPU in whose group the firmware requires a 1:1 mapping is refused, whatever --allow
// names, and the other one is offered; kernels before 6.6 on AMD assign the group all the same.
func TestRegions(t *testing.T) {
	// github.com/harvester/harvester, issue 7340.
	const direct, relaxable = "0x6f766000 0x6f775fff direct\n0xfee00000 0xfeefffff msi\n", "0x6f766000 0x6f775fff direct-relaxable\n"
	intel, amd := "mkdir sys/class/iommu/dmar0\n", "mkdir sys/class/iommu/ivhd0\n"
	for name, test := range map[string]struct{ tree, release, regions, want, warning string }{
		"Intel, any kernel":     {intel, "6.1.0", direct, "refused", ""},
		"Intel, a display's":    {intel, "6.8.0", relaxable, "", ""},
		"AMD, an older kernel":  {amd, "6.5.0", direct, "", "0000:01:00.0 is in IOMMU group 10, of which the firmware requires 0x6f766000-0x6f775fff mapped 1:1"},
		"AMD since 6.6":         {amd, "6.6.1", direct, "refused", ""},
		"AMD, an unknown one":   {amd, "mine", direct, "refused", ""},
		"SMMU, a newer kernel":  {"mkdir sys/class/iommu/smmu3.0x11000000\n", "7.0", direct, "refused", ""},
		"no region of this one": {intel, "6.8.0", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			archive := strings.ReplaceAll(node{CPU: "AuthenticAMD"}.Archive(), "6.1.0-28-amd64", test.release)
			root := hosttest.Lay(t, test.tree+archive+"-- sys/kernel/iommu_groups/10/reserved_regions --\n"+test.regions)
			p, err := plan(t, root, selection.Options{Allow: []pci.Address{{Bus: 1}}})
			if refused := errors.Is(err, gate.ErrRegion); refused != (test.want == "refused") || !refused && err != nil {
				t.Errorf("%v", err)
			}
			var r *selection.Refused
			if errors.As(err, &r) && (len(r.Errors) != 1 || len(r.Ways) != 1 || r.Ways[0].Purpose != "leave 0000:01:00.0 with the host") {
				t.Errorf("%v, %v", r.Errors, r.Ways)
			}
			warned := slices.ContainsFunc(p.Warnings, func(w string) bool { return test.warning != "" && strings.HasPrefix(w, test.warning) })
			if warned != (test.warning != "") {
				t.Errorf("%q", p.Warnings)
			}
		})
	}
}

// TestExternal: on a machine whose boot loader and initramfs others make, gpustack-boot.service binds
// every function, and the blacklist is in /etc.
func TestExternal(t *testing.T) {
	tree := node{CPU: "GenuineIntel", More: withSystemd + "-- run/ostree-booted --\n-- usr/bin/bootc --\n" +
		"-- boot/loader/entries/ostree-1.conf --\nlinux /a\nversion 1\noptions root=a intel_iommu=on\n"}.Archive()
	root := hosttest.Lay(t, tree)
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	for _, f := range p.Functions {
		hosttest.EqualIn(t, fmt.Sprintf("%s by", f.Address), machine.ByService, f.By)
	}
	var names []string
	for _, c := range p.Files.Pending() {
		names = append(names, c.Name)
		if strings.HasPrefix(c.Name, "/etc/modprobe.d") && !strings.Contains(string(c.After.Content), "\nblacklist nouveau\n") {
			t.Errorf("%s", c.After.Content)
		}
	}
	want := "/etc/modprobe.d/zz-gpustack.conf /etc/modules-load.d/gpustack.conf /etc/systemd/system/gpustack-boot.service"
	if got := strings.Join(names, " "); !strings.HasPrefix(got, want) || strings.Contains(got, "initramfs") {
		t.Errorf("%s", got)
	}
	if len(p.Programs) > 0 || !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, "gpustack-boot.service binds all functions") }) {
		t.Errorf("%v, %q", p.Programs, p.Warnings)
	}
	apply(t, root, selection.Options{})
	if p, err = plan(t, root, selection.Options{}); err != nil || len(p.Files.Pending()) > 0 {
		t.Errorf("again: %v, %v", p.Files.Pending(), err)
	}
	if p, err = plan(t, root, selection.Options{None: true}); err != nil || len(p.Files.Pending()) == 0 {
		t.Errorf("none: %v, %v", p.Files.Pending(), err)
	}
}

// TestVF: a VF of a GPU does not exist in the initramfs. So gpustack-boot.service binds it, and no hook
// or configuration of modprobe names it.
func TestVF(t *testing.T) {
	// github.com/intel/media-delivery: Flex 170, of which the VFs have the id of the physical function.
	const dir, vf = "sys/bus/pci/devices/0000:05:00.", "0000:05:00.1"
	links := "symlink " + dir + "1/physfn -> ../0000:05:00.0\nsymlink " + dir + "0/virtfn0 -> ../" + vf + "\n"
	files := "-- " + dir + "0/sriov_totalvfs --\n31\n-- " + dir + "0/sriov_numvfs --\n1\n"
	for i, function := range []string{"0", "1"} {
		links += fmt.Sprintf("symlink %s%s/driver -> ../../drivers/i915\nsymlink %[1]s%[2]s/iommu_group -> ../../../../kernel/iommu_groups/%d\n", dir, function, 20+i)
		files += fmt.Sprintf("-- %s%s/class --\n0x038000\n-- %[1]s%[2]s/vendor --\n0x8086\n-- %[1]s%[2]s/device --\n0x56c0\n", dir, function)
	}
	root := hosttest.Lay(t, links+node{CPU: "GenuineIntel", More: inMemory + withSystemd + files}.Archive())
	p := apply(t, root, selection.Options{Add: hosttest.Selectors(t, vf)})
	if len(p.Functions) != 1 || p.Functions[0].Address.String() != vf || p.Functions[0].By != machine.ByService {
		t.Errorf("%+v", p.Functions)
	}
	if ok, err := root.Exists(startup.UnitFile); !ok || err != nil {
		t.Errorf("no unit binds it: %v", err)
	}
	for name, text := range tree(t, root) {
		if strings.HasPrefix(name, "etc/") && (strings.Contains(text, vf) || strings.Contains(text, "8086:56c0") || strings.Contains(text, "blacklist i915")) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
