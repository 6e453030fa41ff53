package boot_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/boot"
	"gpustack/host/edit"
)

// TestOlder: what an earlier release has set follows from the replaced lines, their length and the
// wanted arguments. If they do not fit, it cannot be determined.
func TestOlder(t *testing.T) {
	set := func(name, before, after string) edit.Value {
		list := func(arg string) []string { return append([]string{}, strings.Fields(arg)...) }
		return edit.Value{Name: name, Before: list(before), After: list(after)}
	}
	intel, amd := []string{"intel_iommu=on", "iommu=pt"}, []string{"iommu=pt", "vfio-pci.ids=10de:11b4"}
	const entry, defaults = "/boot/loader/entries/f00d-6.1.0.conf", "/etc/default/grub"
	part := func(args string) string {
		return "# gpustack begin\n# Made by gpustack host prepare. \"gpustack undo\" takes it back.\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX" + args + "\"\n# gpustack end\n"
	}
	for _, test := range []struct {
		name, file, replaced string
		length               int
		wanted               []string
		want                 []edit.Value // nil: not determined
	}{
		{"an entry", entry, "options root=/dev/a ro\n", len("options root=/dev/a ro intel_iommu=on iommu=pt\n"), intel, []edit.Value{set("intel_iommu", "", "intel_iommu=on"), set("iommu", "", "iommu=pt")}},
		{"an entry with one of them", entry, "options ro iommu=pt\n", len("options ro iommu=pt intel_iommu=on\n"), intel, []edit.Value{set("intel_iommu", "", "intel_iommu=on")}},
		{"a replaced argument", entry, "options iommu=soft ro\n", len("options ro iommu=pt vfio-pci.ids=10de:11b4\n"), amd,
			[]edit.Value{set("iommu", "iommu=soft", "iommu=pt"), set("vfio-pci.ids", "", "vfio-pci.ids=10de:11b4")}},
		{"an entry of another length", entry, "options root=/dev/a ro\n", 40, intel, nil},
		{"the command line", "/etc/kernel/cmdline", "root=/dev/a ro\n", len("root=/dev/a ro iommu.passthrough=1\n"), []string{"iommu.passthrough=1"}, []edit.Value{set("iommu.passthrough", "", "iommu.passthrough=1")}},
		{"kernelopts, with what follows", "/boot/grub2/grubenv", "kernelopts=root=/dev/a\nboot_success=1\n####", 0, intel, []edit.Value{set("intel_iommu", "", "intel_iommu=on"), set("iommu", "", "iommu=pt")}},
		{"another variable", "/boot/grub2/grubenv", "boot_success=1\n####", 0, intel, nil},
		{"gpustack's part", defaults, "", len(part(" intel_iommu=on iommu=pt")), intel, []edit.Value{set("intel_iommu", "", "intel_iommu=on"), set("iommu", "", "iommu=pt")}},
		{"gpustack's part with one of them", defaults, "", len(part(" iommu=pt")), intel, []edit.Value{set("iommu", "", "iommu=pt")}},
		{"gpustack's part of another length", defaults, "", len(part("")) + 3, intel, nil},
		{"gpustack's part replaced", defaults, "x\n", len(part(" iommu=pt")), intel, nil},
		{"another file", "/etc/modprobe.d/a.conf", "options a\n", 10, intel, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := boot.Older(test.file, []byte(test.replaced), test.length, test.wanted)
			var got []edit.Value
			if m != nil {
				got = m.Values
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if m != nil && test.file == defaults && !strings.Contains(strings.Join(m.Whole.After, ""), "$GRUB_CMDLINE_LINUX") {
				t.Errorf("%q", m.Whole.After)
			}
		})
	}
}
