package vm

import (
	"context"
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
// group, are a card and what the host needs: its disk, its network card.
func debian(cpu string) Topology {
	t := Topology{Name: "debian", CPU: cpu, Machine: "kernel-irqchip=split", Units: intelUnit}
	if cpu == amd {
		t.Machine, t.Units = "", amdUnit
	}
	t.Devices = slices.Concat(console(), port("rp1", 1), port("rp2", 2), port("rp3", 3), nvidia("rp1", 0), plain("rp2", 0),
		own("pcie-pci-bridge,id=pb,bus=rp3"), own("bochs-display,bus=pb,addr=0x1"), own("virtio-blk-pci,bus=pb,addr=0x2,drive=root,bootindex=0"), own("e1000,bus=pb,addr=0x3"),
		own("ide-hd,drive=lab"),
	)
	return t
}

// fromDisk boots from a disk, with a second one that has the programs. What is written
// goes to a file in a folder.
func fromDisk(ctx context.Context, dir, disk, lab string) (Boot, error) {
	overlay := filepath.Join(dir, "overlay")
	if err := command(ctx, "", "qemu-img", "create", "-q", "-f", "qcow2", "-b", disk, "-F", "raw", overlay); err != nil {
		return nil, err
	}
	return Boot{
		"-drive", "if=none,id=root,format=qcow2,cache=unsafe,file=" + overlay,
		"-drive", "if=none,id=lab,format=raw,snapshot=on,file=" + lab,
	}, nil
}

// writeLab makes the second disk: what is mounted on /lab, the programs and NVIDIA's module.
func writeLab(ctx context.Context, disk string, programs Programs, nvidia string) error {
	dir, err := os.MkdirTemp(filepath.Dir(disk), "lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, from := range map[string]string{"gpustack": programs.Gpustack, "guest": programs.Guest, "nvidia.ko": nvidia} {
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
