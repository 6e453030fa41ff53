package iommu_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/iommu"
	"gpustack/host/pci"
)

// group returns a tree of group 7 with functions "ADDRESS CLASS VENDOR DRIVER", - for none.
func group(functions string) string {
	comment, files := "", ""
	for line := range strings.Lines(strings.TrimSpace(functions)) {
		field := strings.Fields(line)
		dir := "sys/bus/pci/devices/0000:" + field[0]
		comment += "symlink " + dir + "/iommu_group -> ../../../../kernel/iommu_groups/7\n"
		if field[1] != "-" {
			files += "-- " + dir + "/class --\n0x" + field[1] + "00\n"
		}
		files += "-- " + dir + "/vendor --\n0x" + field[2] + "\n"
		switch field[3] {
		case "-":
		case "unreadable":
			files += "-- " + dir + "/driver --\n"
		default:
			comment += "symlink " + dir + "/driver -> ../../drivers/" + field[3] + "\n"
		}
	}
	return comment + files
}

func TestViability(t *testing.T) {
	for _, test := range []struct {
		name, functions, want string // viable, then blockers
	}{
		{"drivers of the host on all functions", `
01:00.0 0300 10de nouveau
01:00.1 0403 10de snd_hda_intel`, "no; 01:00.0 bound to nouveau; 01:00.1 bound to snd_hda_intel"},
		{"only function 0 bound", `
01:00.0 0300 10de vfio-pci
01:00.1 0403 10de snd_hda_intel`, "no; 01:00.1 bound to snd_hda_intel"},
		{"all bound", `
01:00.0 0300 10de vfio-pci
01:00.1 0403 10de vfio-pci`, "yes"},
		{"a sibling without driver does not matter", `
01:00.0 0300 10de vfio-pci
01:00.1 0403 10de -`, "yes"},
		{"nor does one on pci-stub", `
01:00.0 0300 10de pci-stub
01:00.1 0403 10de pci-stub`, "yes"},
		{"a variant of vfio-pci", "01:00.0 0302 10de nvgrace_gpu_vfio_pci", "yes"},
		{"a bridge may keep its driver", `
00:01.0 0604 8086 pcieport
01:00.0 0300 10de vfio-pci`, "yes"},
		{"an ISA bridge is an endpoint", "00:1f.0 0601 8086 lpc_ich", "no; 00:1f.0 bound to lpc_ich"},
		{"somebody else's device", `
01:00.0 0300 10de vfio-pci
02:00.0 0108 144d nvme`, "no; 02:00.0 bound to nvme, and not in a GPU's slot"},
		{"a foreign device beside an AMD accelerator", `
01:00.0 1200 1002 vfio-pci
02:00.0 0108 144d nvme`, "no; 02:00.0 bound to nvme, and not in a GPU's slot"},
		{"a group without GPU", "02:00.0 0108 144d nvme", "no; 02:00.0 bound to nvme"},
		{"a driver that cannot be read", `
01:00.0 0300 10de vfio-pci
01:00.1 0403 10de unreadable`, "unknown; 01:00.1 its driver cannot be read"},
		{"what blocks for certain counts before what is unknown", `
01:00.0 0300 10de nouveau
01:00.1 0403 10de unreadable`, "no; 01:00.0 bound to nouveau; 01:00.1 its driver cannot be read"},
		{"a class that is unknown could be a bridge's", `
01:00.0 0300 10de vfio-pci
01:00.1 - 10de pcieport`, "unknown; 01:00.1 bound to pcieport, and its class is unknown: only a bridge would not block"},
	} {
		t.Run(test.name, func(t *testing.T) {
			devices := hosttest.Devices(t, hosttest.Lay(t, group(test.functions)))
			groups := iommu.Groups(devices)
			if len(groups) != 1 || groups[0].Number != 7 || len(groups[0].Members) != len(devices) {
				t.Fatalf("groups %+v", groups)
			}
			got := groups[0].Viable.String()
			for _, b := range groups[0].Blockers {
				got += "; " + strings.TrimPrefix(b.Address.String(), "0000:") + " " + b.Reason
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

func TestLeavesAlone(t *testing.T) {
	for driver, want := range map[string]bool{
		"vfio-pci": true, "vfio_pci": true, "mlx5_vfio_pci": true, "hisi-acc-vfio-pci": true, "pci-stub": true, "pci_stub": true,
		"pcieport": false, "nvidia": false, "vfio-pci-x": false, "pci-pf-stub": false, "": false,
	} {
		hosttest.EqualIn(t, driver, want, pci.LeavesAlone(driver))
	}
}

func TestReadState(t *testing.T) {
	for _, test := range []struct {
		name, tree, want string // enabled and groups
		warnings         []string
	}{
		{"on", "mkdir sys/kernel/iommu_groups/0\nmkdir sys/kernel/iommu_groups/1\nmkdir sys/class/iommu/dmar0\n", "yes 2", nil},
		{"off", "mkdir sys/kernel/iommu_groups\nmkdir sys/class/iommu\n", "no 0", nil},
		{"a bare tree cannot know", "", "unknown 0", nil},
		{"nor can one without the folder of units", "mkdir sys/kernel/iommu_groups\n", "unknown 0", nil},
		{"groups that only functions name", "symlink sys/bus/pci/devices/0000:01:00.0/iommu_group -> ../../../../kernel/iommu_groups/7\n", "yes 1", nil},
		{"units without groups", "mkdir sys/kernel/iommu_groups\nmkdir sys/class/iommu/dmar0\n", "yes 0", nil},
		{"a name that is no number", "mkdir sys/kernel/iommu_groups/x\nmkdir sys/kernel/iommu_groups/3\nmkdir sys/class/iommu\n", "yes 1",
			[]string{"/sys/kernel/iommu_groups/x: not a group number"}},
		{"a file for a folder", "mkdir sys/class/iommu\n-- sys/kernel/iommu_groups --\n", "unknown 0", []string{"/sys/kernel/iommu_groups: not a directory"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, "mkdir sys/bus/pci/devices\n"+test.tree)
			devices := hosttest.Devices(t, root)
			state, warnings := iommu.ReadState(root, devices)
			hosttest.Equal(t, test.want, fmt.Sprint(state.Enabled, " ", state.Groups))
			hosttest.EqualIn(t, "warnings", fmt.Sprint(test.warnings), fmt.Sprint(warnings))
		})
	}
}
