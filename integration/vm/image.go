package vm

import (
	"bytes"
	"context"
	_ "embed" // for the recipe, and the script
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// What a disk is made with. What is kept was made as these say.
var (
	//go:embed image.go
	imageRecipe string
	//go:embed image/customize
	customize string
)

// A maker is what makes the initramfs of a Debian machine: a package.
type maker string

const (
	initramfsTools maker = "initramfs-tools"
	dracut         maker = "dracut"
)

// Where the one partition begins, in sectors: as far in as all tools put it, so that
// GRUB has room before it.
const (
	sectorSize     = 512
	firstSector    = 2048
	diskSize       = 2 << 30
	rootUUID       = "6f1b8f0e-7a0e-4b5e-9f3c-3c2e5f5f0a11"
	bootCodeLength = 440 // of the first sector; the partition table follows
)

// A Disk says what the disk of a Debian machine has beside the base that all have: systemd, GRUB,
// a kernel, and the agent's service.
type Disk struct {
	Name      string   // in the cache
	Packages  []string // without those that they only recommend
	Customize string   // a shell script that gets the tree's folder, run after image/customize; may be empty
	Size      int64    // of the disk, in bytes; blocks without files take no space
}

// debianDisk makes the disk of a Debian machine that boots through GRUB, of the release
// that this machine runs, and returns the file.
func debianDisk(ctx context.Context, k kernel, m maker) (string, error) {
	return Disk{Name: "disk-" + string(m), Packages: []string{string(m)}, Size: diskSize}.make(ctx, k)
}

// Make makes the disk, unless the cache has it, and returns the file. The machine boots through
// GRUB, and runs the release of Debian that this machine runs.
func (d Disk) Make(ctx context.Context) (string, error) {
	k, err := debianKernel(ctx)
	if err != nil {
		return "", err
	}
	return d.make(ctx, k)
}

func (d Disk) make(ctx context.Context, k kernel) (string, error) {
	suite, err := release()
	if err != nil {
		return "", err
	}
	packages := append([]string{"systemd-sysv", "udev", "kmod", "iproute2", "zstd", "grub-pc", "linux-base"}, d.Packages...)
	key := recipe(imageRecipe, customize, suite, k.Release, filepath.Base(filepath.Dir(k.Package)), strings.Join(packages, ","), d.Customize, fmt.Sprint(d.Size))
	dir, err := cached(ctx, d.Name, key, func(ctx context.Context, dir string) error {
		tree := filepath.Join(dir, "root")
		argv := []string{"--quiet", "--mode=root", "--variant=minbase", "--include=" + strings.Join(packages, ","),
			"--aptopt=APT::Install-Recommends false", "--dpkgopt=force-unsafe-io",
			"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/man/*"}
		for i, text := range []string{customize, d.Customize} {
			if text == "" {
				continue
			}
			script := filepath.Join(dir, fmt.Sprintf("customize%d", i))
			if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
				return err
			}
			argv = append(argv, "--customize-hook="+script)
		}
		debootstrap := exec.CommandContext(ctx, "mmdebstrap", append(argv, suite, tree)...)
		debootstrap.Env = append(os.Environ(), "KERNEL="+k.Package, "UUID="+rootUUID)
		var out bytes.Buffer
		debootstrap.Stdout, debootstrap.Stderr = &out, &out
		if err := debootstrap.Run(); err != nil {
			return fmt.Errorf("mmdebstrap: %w\n%s", err, out.Bytes())
		}
		if err := writeDisk(ctx, filepath.Join(dir, "disk"), tree, d.Size); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
	return filepath.Join(dir, "disk"), err
}

// release is the name of the Debian release that this machine runs.
func release() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("/etc/os-release: no VERSION_CODENAME")
}

// writeDisk makes a disk with one partition that holds a tree, and GRUB before it: no
// block device is needed for it, as mke2fs fills file systems itself, and GRUB's two
// parts look for each other at their usual places (boot/i386/pc/boot.S and diskboot.S
// of GRUB: the first sector loads the second, which loads the rest from there on).
func writeDisk(ctx context.Context, disk, tree string, size int64) error {
	if err := os.WriteFile(disk, nil, 0o644); err != nil {
		return err
	}
	if err := os.Truncate(disk, size); err != nil {
		return err
	}
	sfdisk := exec.CommandContext(ctx, "sfdisk", "--quiet", disk)
	sfdisk.Stdin = strings.NewReader(fmt.Sprintf("label: dos\nstart=%d, type=83, bootable\n", firstSector))
	if out, err := sfdisk.CombinedOutput(); err != nil {
		return fmt.Errorf("sfdisk: %w\n%s", err, out)
	}
	const block = 4096
	err := command(ctx, "", "mke2fs", "-q", "-t", "ext4", "-b", fmt.Sprint(block), "-U", rootUUID, "-d", tree,
		"-E", fmt.Sprintf("offset=%d", firstSector*sectorSize), disk, fmt.Sprint((size-firstSector*sectorSize)/block))
	if err != nil {
		return err
	}
	grub := filepath.Join(tree, "boot/grub/i386-pc")
	boot, err := os.ReadFile(filepath.Join(grub, "boot.img"))
	if err != nil {
		return err
	}
	core, err := os.ReadFile(filepath.Join(grub, "core.img"))
	if err != nil {
		return err
	}
	if room := (firstSector - 1) * sectorSize; len(boot) != sectorSize || len(core) > room {
		return fmt.Errorf("GRUB's parts have %d and %d bytes, room is for %d and %d", len(boot), len(core), sectorSize, room)
	}
	out, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := out.WriteAt(boot[:bootCodeLength], 0); err != nil {
		return err
	}
	_, err = out.WriteAt(core, sectorSize)
	return err
}
