package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Where the firmware puts the functions of the Debian machine.
const (
	theirs     = "0000:01:00" // a K4200
	plainCard  = "0000:02:00" // one that works
	besideHost = "0000:04:01.0"
	rootDisk   = "0000:04:02.0"
	network    = "0000:04:03.0"
)

// debian is the machine that boots from a disk. Behind one bridge, and so in one IOMMU
// group, are a card and what the host needs: its disk, its network card. The last has SR-IOV.
func debian(cpu string) Topology {
	t := Topology{Name: "debian", CPU: cpu, Machine: "kernel-irqchip=split", Units: intelUnit}
	if cpu == amd {
		t.Machine, t.Units = "", amdUnit
	}
	t.Devices = slices.Concat(console(), port("rp1", 1), port("rp2", 2), port("rp3", 3), nvidia("rp1", 0), plain("rp2", 0),
		own("pcie-pci-bridge,id=pb,bus=rp3"), own("bochs-display,bus=pb,addr=0x1"), own("virtio-blk-pci,bus=pb,addr=0x2,drive=root,bootindex=0"), own("e1000,bus=pb,addr=0x3"),
		own("ide-hd,drive=lab"), port("rp4", 4), sriov("rp4"),
	)
	return t
}

// fromDisk boots from a disk, with a second one that has the programs. What is written
// goes to a file in a folder.
func fromDisk(ctx context.Context, dir, disk, lab string) (Boot, error) {
	overlay := filepath.Join(dir, "overlay")
	if err := Overlay(ctx, overlay, disk, "raw"); err != nil {
		return nil, err
	}
	return FromOverlay(overlay, lab), nil
}

// Overlay makes a file that gets what a machine writes to a disk, which stays as it is. The disk is
// an overlay itself where its format is qcow2, and must stay where it is.
func Overlay(ctx context.Context, file, disk, format string) error {
	return command(ctx, "", "qemu-img", "create", "-q", "-f", "qcow2", "-b", disk, "-F", format, file)
}

// FromOverlay boots from an overlay, with a second disk that has the programs.
func FromOverlay(overlay, lab string) Boot {
	return Boot{
		"-drive", "if=none,id=root,format=qcow2,cache=unsafe,file=" + overlay,
		"-drive", "if=none,id=lab,format=raw,snapshot=on,file=" + lab,
	}
}

// ReadDisk copies a file of the one partition of a disk that Disk.Make has made.
func ReadDisk(ctx context.Context, disk, name, to string) error {
	// debugfs(8) exits with 0 in any case.
	if err := command(ctx, "", "debugfs", "-R", "dump "+name+" "+to, fmt.Sprintf("%s?offset=%d", disk, firstSector*sectorSize)); err != nil {
		return err
	}
	if _, err := os.Stat(to); err != nil {
		return fmt.Errorf("%s: %s: %w", disk, name, err)
	}
	return nil
}

// CheckOverlay is an error where an overlay is not whole, which QEMU's end does not tell.
func CheckOverlay(ctx context.Context, file string) error {
	return command(ctx, "", "qemu-img", "check", "-q", "-f", "qcow2", file)
}

// writeLab makes the second disk of a machine that has NVIDIA's module too.
func writeLab(ctx context.Context, disk string, programs Programs, nvidia string) error {
	return WriteLab(ctx, disk, map[string]string{"gpustack": programs.Gpustack, "guest": programs.Guest, "nvidia.ko": nvidia})
}

// WriteLab makes the second disk: what is mounted on /lab, which is in the agent's PATH. Its files,
// by their names there, are copies of others. The agent is guest.
func WriteLab(ctx context.Context, disk string, files map[string]string) error {
	dir, err := os.MkdirTemp(filepath.Dir(disk), "lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return command(ctx, "", "mke2fs", "-q", "-t", "ext4", "-L", "lab", "-d", dir, disk, "64M")
}
