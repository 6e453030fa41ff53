package chain

import (
	"bytes"
	"context"
	_ "embed" // for what guests are made of
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gpustack/integration/vm"
)

var (
	//go:embed guest.go
	guestRecipe string
	//go:embed guest/init
	guestInit string
	//go:embed guest/grub.cfg
	guestGRUB string
)

// Guests are the files that servers boot from.
type Guests struct {
	// Kernel and Initramfs are a Linux that runs the user_data of its config drive, and nothing else.
	Kernel, Initramfs string
	Empty             string // the disk that Nova wants beside them
	// GRUB is a disk that prints all PCI functions and their ids by GRUB's lspci, and then halts the
	// processor: another program than Linux, and started in a tenth of the time where the host is
	// emulated.
	GRUB string
}

// kernelArguments save a guest whose host is emulated too a third of its start: each part of the
// kernel that runs once is translated twice. Without ACPI it cannot turn its power off.
const kernelArguments = "console=ttyS0 acpi=off noapic nolapic tsc=reliable lpj=2600000 no_timer_check " +
	"cryptomgr.notests=1 random.trust_cpu=on nokaslr norandmaps mitigations=off init_on_alloc=0 lsm="

// guestDiskSize is that of the disks in Glance: Nova wants one of each server.
const guestDiskSize = 1 << 20

// guestModules reach the config drive: a CD-ROM drive at the IDE controller of the machine pc. Each
// comes after those that it needs.
var guestModules = []string{
	"drivers/scsi/scsi_common.ko", "drivers/scsi/scsi_mod.ko", "drivers/ata/libata.ko", "drivers/ata/ata_piix.ko",
	"drivers/cdrom/cdrom.ko", "drivers/scsi/sr_mod.ko", "fs/isofs/isofs.ko",
}

// MakeGuests makes the files of guests, unless the cache has them.
func MakeGuests(ctx context.Context) (Guests, error) {
	// Debian's kernel for clouds unpacks fastest: it is compressed by LZ4, and small.
	linux, err := vm.Package(ctx, "linux-image-cloud-amd64")
	if err != nil {
		return Guests{}, err
	}
	grub, err := vm.Package(ctx, "grub-pc-bin")
	if err != nil {
		return Guests{}, err
	}
	key := []string{guestRecipe, guestInit, guestGRUB, filepath.Base(linux), filepath.Base(grub)}
	dir, err := vm.Cached(ctx, "guests", key, func(ctx context.Context, dir string) error {
		return errors.Join(
			makeKernel(ctx, linux, filepath.Join(dir, "kernel"), filepath.Join(dir, "initramfs")),
			makeGRUB(ctx, grub, filepath.Join(dir, "grub")),
			os.WriteFile(filepath.Join(dir, "empty"), make([]byte, guestDiskSize), 0o644))
	})
	return Guests{
		Kernel: filepath.Join(dir, "kernel"), Initramfs: filepath.Join(dir, "initramfs"), Empty: filepath.Join(dir, "empty"),
		GRUB: filepath.Join(dir, "grub"),
	}, err
}

// makeKernel copies the kernel of an unpacked package, and makes an initramfs with its modules,
// busybox and the first program.
func makeKernel(ctx context.Context, linux, kernel, initramfs string) error {
	releases, err := filepath.Glob(filepath.Join(linux, "lib/modules/*"))
	if err == nil && len(releases) != 1 {
		err = fmt.Errorf("modules for %d kernels", len(releases))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", linux, err)
	}
	image, err := os.ReadFile(filepath.Join(linux, "boot/vmlinuz-"+filepath.Base(releases[0])))
	if err != nil {
		return err
	}
	if err := os.WriteFile(kernel, image, 0o644); err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	for _, folder := range []string{"bin", "modules", "proc", "sys", "dev", "mnt", "tmp"} {
		if err := os.Mkdir(filepath.Join(root, folder), 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{"init": "", "bin/busybox": "/bin/busybox", "modules/order": ""}
	content := map[string][]byte{"init": []byte(guestInit)}
	var order strings.Builder
	for _, module := range guestModules {
		name := filepath.Base(module)
		files["modules/"+name] = ""
		if content["modules/"+name], err = readModule(ctx, filepath.Join(releases[0], "kernel", module)); err != nil {
			return err
		}
		fmt.Fprintln(&order, name)
	}
	content["modules/order"] = []byte(order.String())
	for name, from := range files {
		data, ok := content[name]
		if !ok {
			if data, err = os.ReadFile(from); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(root, name), data, 0o755); err != nil {
			return err
		}
	}
	applets, err := exec.CommandContext(ctx, "/bin/busybox", "--list").Output()
	if err != nil {
		return fmt.Errorf("busybox --list: %w", err)
	}
	for _, applet := range strings.Fields(string(applets)) {
		err := os.Symlink("busybox", filepath.Join(root, "bin", applet))
		if err != nil && !errors.Is(err, fs.ErrExist) { // busybox itself
			return err
		}
	}
	return shell(ctx, root, `find . | busybox cpio -o -H newc >"$1"`, initramfs)
}

// readModule reads a module of a kernel. Since Debian 13 the file is compressed, and busybox loads
// modules that are not.
func readModule(ctx context.Context, file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	if data, err = exec.CommandContext(ctx, "xz", "--decompress", "--stdout", file+".xz").Output(); err != nil {
		return nil, fmt.Errorf("%s.xz: %w", file, err)
	}
	return data, nil
}

// makeGRUB makes a disk from which a machine with a BIOS starts GRUB with our commands. The first
// sector loads the second, which loads the rest from there on (see vm.writeDisk).
func makeGRUB(ctx context.Context, grub, disk string) error {
	dir, err := os.MkdirTemp("", "grub-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "grub.cfg")
	if err := os.WriteFile(config, []byte(guestGRUB), 0o644); err != nil {
		return err
	}
	const script = `grub-mkimage -O i386-pc -d "$1/usr/lib/grub/i386-pc" -p / -c grub.cfg -o core.img biosdisk serial terminal echo lspci chain boot
cat "$1/usr/lib/grub/i386-pc/boot.img" core.img >disk`
	if err := shell(ctx, dir, script, grub); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(dir, "disk"))
	if err != nil {
		return err
	}
	const sector = 512
	last := guestDiskSize - sector
	if len(data) > last {
		return fmt.Errorf("GRUB has %d bytes, and the disk has room for %d", len(data), last)
	}
	data = append(data, make([]byte, guestDiskSize-len(data))...)
	// Where the partition table is, GRUB's first sector has code for floppy disks. Nova since 2025.1
	// rejects images with the signature of a table and no valid partition (oslo_utils/imageutils/
	// format_inspector.py, check_mbr_partitions). The one here is the last sector.
	const table, entry, flag, kind, start, size = 446, 16, 0, 4, 8, 12 // offsets; the table has four entries
	clear(data[table : table+4*entry])
	data[table+flag], data[table+kind] = 0x80, 0xda // bootable; data without a file system
	binary.LittleEndian.PutUint32(data[table+start:], uint32(last/sector))
	binary.LittleEndian.PutUint32(data[table+size:], 1)
	// GRUB at its prompt would keep a processor busy. The last sector is a boot sector that halts.
	copy(data[last:], []byte{0xfa, 0xf4, 0xeb, 0xfd}) // cli; hlt; jmp to hlt
	copy(data[guestDiskSize-2:], []byte{0x55, 0xaa})
	return os.WriteFile(disk, data, 0o644)
}

// shell runs a script in a folder, which must succeed.
func shell(ctx context.Context, dir, script string, args ...string) error {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-euc", script, "sh"}, args...)...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", script, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
