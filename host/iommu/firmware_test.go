package iommu_test

import (
	"fmt"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/iommu"
)

// dmar returns a DMAR table with those flags.
func dmar(flags string) string {
	return "DMAR\x30\x00\x00\x00" + fmt.Sprintf("%-28s", "\x01\x00OEM") + "\x26" + flags + fmt.Sprintf("%-10s", "")
}

// iort returns an IORT table with nodes of types.
func iort(types ...byte) string {
	text := "IORT\x30\x00\x00\x00" + fmt.Sprintf("%-28s", "\x03\x00NVIDIA") + string([]byte{byte(len(types)), 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0})
	for _, t := range types {
		text += string(t) + "\x10\x00" + fmt.Sprintf("%13s", "")
	}
	return text
}

func TestFirmware(t *testing.T) {
	const dir = "sys/firmware/acpi/tables/"
	for _, test := range []struct {
		name, tree, want string // tables, whether interrupts are remapped, why that is not known
	}{
		{"Intel", "-- " + dir + "DMAR --\n" + dmar("\x01") + "\n-- " + dir + "FACP --\n", "[DMAR] yes"},
		{"Intel without interrupt remapping", "-- " + dir + "DMAR --\n" + dmar("\x04") + "\n", "[DMAR] no"},
		{"AMD", "-- " + dir + "IVRS --\n", "[IVRS] unknown"},
		{"ARM with SMMUv3", "-- " + dir + "IORT --\n" + iort(0, 2, 4) + "\n-- " + dir + "FACP --\n", "[IORT] unknown"},
		{"ARM with SMMUv2", "-- " + dir + "IORT --\n" + iort(3) + "\n", "[IORT] unknown"},
		// GH200 with the SMMU off in the firmware's setup: ITS group and root complex only.
		{"ARM with the SMMU off", "-- " + dir + "IORT --\n" + iort(0, 2) + "\n", "[] unknown"},
		{"an IORT cut short", "-- " + dir + "IORT --\n" + iort(0, 2, 4)[:50] + "\n", "[] unknown not an IORT table"},
		{"an IORT without content", "-- " + dir + "IORT --\n", "[] unknown not an IORT table"},
		{"no table of an IOMMU", "-- " + dir + "FACP --\n", "[] unknown"},
		{"a DMAR cut short", "-- " + dir + "DMAR --\nDMAR\n", "[DMAR] unknown not a DMAR table"},
		{"something else of that name", "-- " + dir + "DMAR --\n" + fmt.Sprintf("%60s", "") + "\n", "[DMAR] unknown not a DMAR table"},
		{"a DMAR that cannot be read", "mkdir " + dir + "DMAR\n-- x --\n", "[DMAR] unknown not a regular file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := iommu.ReadFirmware(hosttest.Lay(t, test.tree))
			hosttest.NoError(t, err)
			got := fmt.Sprint(f.Tables, " ", f.Remaps)
			for _, err := range []error{f.RemapsErr, f.IORTErr} {
				if err != nil {
					got += " " + host.Cause(err).Error()
				}
			}
			hosttest.Equal(t, test.want, got)
		})
	}
	if _, err := iommu.ReadFirmware(hosttest.Lay(t, "-- x --\n")); !host.IsAbsent(err) {
		t.Errorf("no tables: %v", err)
	}
}

func TestUnits(t *testing.T) {
	units, warnings, err := iommu.ReadUnits(hosttest.Lay(t, `
mkdir sys/class/iommu/ivhd0
-- sys/class/iommu/dmar0/intel-iommu/ecap --
f020df
-- sys/class/iommu/dmar1/intel-iommu/ecap --
f020d7
-- sys/class/iommu/dmar2/intel-iommu/ecap --
many
`))
	hosttest.NoError(t, err)
	got := ""
	for _, u := range units {
		got += u.Name + " " + u.Remaps.String() + ", "
	}
	hosttest.Equal(t, "dmar0 yes, dmar1 no, dmar2 unknown, ivhd0 unknown, ", got)
	hosttest.Equal(t, []string{`/sys/class/iommu/dmar2/intel-iommu/ecap: not a hexadecimal number: "many"`}, warnings)
	if _, _, err := iommu.ReadUnits(hosttest.Lay(t, "-- x --\n")); !host.IsAbsent(err) {
		t.Errorf("no units: %v", err)
	}
}

func TestTypes(t *testing.T) {
	types, warnings, err := iommu.ReadTypes(hosttest.Lay(t, `
mkdir sys/kernel/iommu_groups/3
-- sys/kernel/iommu_groups/0/type --
identity
-- sys/kernel/iommu_groups/1/type --
identity
-- sys/kernel/iommu_groups/2/type --
DMA-FQ
-- sys/kernel/iommu_groups/4/type --

`))
	hosttest.NoError(t, err)
	hosttest.Equal(t, map[string]int{"identity": 2, "DMA-FQ": 1}, types)
	hosttest.Equal(t, []string{`/sys/kernel/iommu_groups/4/type: not a group type: ""`}, warnings)
	if _, _, err := iommu.ReadTypes(hosttest.Lay(t, "-- x --\n")); !host.IsAbsent(err) {
		t.Errorf("no groups: %v", err)
	}
}
