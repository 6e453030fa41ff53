package vm

import (
	"context"
	"os"
	"path/filepath"
	"slices"
)

// debian is the machine that boots from a disk. Behind two bridges, and so in one IOMMU
// group each, are a card and what the host needs: its disk, its network card. The
// addresses are those that the firmware gives.
const (
	theirs      = "0000:01:00" // a K4200
	plainCard   = "0000:02:00" // one that works
	besideDisk  = "0000:04:01.0"
	rootDisk    = "0000:04:02.0"
	besideNIC   = "0000:06:01.0"
	networkCard = "0000:06:02.0"
)

func debian(cpu string) Topology {
	t := Topology{Name: "debian", CPU: cpu, Machine: "kernel-irqchip=split", Units: intelUnit}
	if cpu == amd {
		t.Machine, t.Units = "", amdUnit
	}
	t.Devices = slices.Concat(console(), port("rp1", 1), port("rp2", 2), port("rp3", 3), port("rp4", 4),
		nvidia("rp1", 0), plain("rp2", 0),
		own("pcie-pci-bridge,id=pb3,bus=rp3"), own("bochs-display,bus=pb3,addr=0x1"), own("virtio-blk-pci,bus=pb3,addr=0x2,drive=root,bootindex=0"),
		own("pcie-pci-bridge,id=pb4,bus=rp4"), own("bochs-display,bus=pb4,addr=0x1"), own("e1000,bus=pb4,addr=0x2"),
		own("virtio-blk-pci,drive=lab"),
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
		"-drive", "if=none,id=lab,format=raw,read-only=on,file=" + lab,
	}, nil
}

// writeLab makes the second disk: what is mounted on /lab.
func writeLab(ctx context.Context, disk string, programs Programs) error {
	dir, err := os.MkdirTemp(filepath.Dir(disk), "lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, from := range map[string]string{"gpustack": programs.Gpustack, "guest": programs.Guest} {
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
