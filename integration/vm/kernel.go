package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // for the recipe
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// kernelPackage always depends on the newest kernel of a Debian release. The one for
// clouds has neither pci-stub nor AMD's IOMMU.
const kernelPackage = "linux-image-amd64"

// A kernel is one of Debian's, unpacked and installed nowhere.
type kernel struct {
	Release string // as uname -r prints it
	Package string // the file that it came in
	Image   string // as boot loaders load it
	ELF     string // the same without its wrapping, for QEMU
	Modules string // the folder that is /lib/modules/RELEASE
}

// kernelRecipe is this file: what is kept was made as it says.
//
//go:embed kernel.go
var kernelRecipe string

// debianKernel returns the kernel of the Debian release that this machine runs, or the
// one in the package file that GPUSTACK_VM_KERNEL names.
func debianKernel(ctx context.Context) (kernel, error) {
	if file := os.Getenv("GPUSTACK_VM_KERNEL"); file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return kernel{}, err
		}
		return unpackKernel(ctx, fmt.Sprintf("%x", sha256.Sum256(data)), func(_ context.Context, to string) error {
			return os.WriteFile(to, data, 0o644)
		})
	}
	name, version, err := newestKernel(ctx)
	if err != nil {
		return kernel{}, err
	}
	return unpackKernel(ctx, name+" "+version, func(ctx context.Context, to string) error {
		dir := filepath.Dir(to)
		if err := command(ctx, dir, "apt-get", "--quiet=2", "download", name+"="+version); err != nil {
			return err
		}
		packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err == nil && len(packages) != 1 {
			err = fmt.Errorf("%d packages were fetched", len(packages))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return os.Rename(packages[0], to)
	})
}

// unpackKernel unpacks the package that fetch brings, unless that was done before.
func unpackKernel(ctx context.Context, name string, fetch func(ctx context.Context, to string) error) (kernel, error) {
	dir, err := cached(ctx, "kernel", recipe(kernelRecipe, name), func(ctx context.Context, dir string) error {
		if err := fetch(ctx, filepath.Join(dir, "kernel.deb")); err != nil {
			return err
		}
		if err := command(ctx, dir, "dpkg-deb", "--extract", "kernel.deb", "root"); err != nil {
			return err
		}
		// Since Debian 13 modules are in /usr/lib, which /lib leads to.
		if err := os.Symlink("usr/lib", filepath.Join(dir, "root/lib")); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		image, release, err := kernelImage(dir)
		if err != nil {
			return err
		}
		if err := unwrap(ctx, image, filepath.Join(dir, "vmlinux")); err != nil {
			return err
		}
		// The package's own script would do this where it is installed.
		return command(ctx, dir, "depmod", "--basedir", "root", release)
	})
	if err != nil {
		return kernel{}, err
	}
	image, release, err := kernelImage(dir)
	return kernel{
		Release: release,
		Package: filepath.Join(dir, "kernel.deb"),
		Image:   image,
		ELF:     filepath.Join(dir, "vmlinux"),
		Modules: filepath.Join(dir, "root/lib/modules", release),
	}, err
}

// kernelImage finds the kernel of a package that was unpacked in a folder: in /boot, or
// since Debian 14 beside its modules.
func kernelImage(dir string) (image, release string, err error) {
	releases, err := filepath.Glob(filepath.Join(dir, "root/lib/modules/*"))
	if err == nil && len(releases) != 1 {
		err = fmt.Errorf("modules for %d kernels", len(releases))
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", dir, err)
	}
	release = filepath.Base(releases[0])
	image = filepath.Join(dir, "root/boot/vmlinuz-"+release)
	if _, err = os.Stat(image); errors.Is(err, fs.ErrNotExist) {
		image = filepath.Join(releases[0], "vmlinuz")
		_, err = os.Stat(image)
	}
	return image, release, err
}

var (
	errNoKernel  = errors.New("apt does not know it")
	errNoPayload = errors.New("no kernel is in it")
	dependency   = regexp.MustCompile(`(?m)^Depends: (linux-image-\S+) \(= ([^)\s]+)\)`)
)

// newestKernel asks apt which package the kernel is in. A machine made from a
// container's image may have no lists yet.
func newestKernel(ctx context.Context) (name, version string, err error) {
	for _, update := range []bool{false, true} {
		if update {
			if err := command(ctx, "", "apt-get", "--quiet=2", "update"); err != nil {
				return "", "", err
			}
		}
		out, err := exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", kernelPackage).Output()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			return "", "", err
		}
		if m := dependency.FindSubmatch(out); m != nil {
			return string(m[1]), string(m[2]), nil
		}
	}
	return "", "", fmt.Errorf("%s: %w", kernelPackage, errNoKernel)
}

// unwrap writes the kernel proper that is in a compressed image (Linux,
// Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length). QEMU
// starts it as it is (Documentation/virt: PVH), and saves the guest from unpacking it,
// which takes longer than all the rest of its start when it is emulated.
func unwrap(ctx context.Context, image, to string) error {
	data, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	const sector, setupSectors, payloadOffset, payloadLength, sizeAtEnd = 512, 0x1f1, 0x248, 0x24c, 4
	if len(data) < payloadLength+4 {
		return fmt.Errorf("%s: %w", image, errNoPayload)
	}
	number := binary.LittleEndian.Uint32
	begin := (int(data[setupSectors])+1)*sector + int(number(data[payloadOffset:]))
	end := begin + int(number(data[payloadLength:])) - sizeAtEnd
	if begin > end || end > len(data) {
		return fmt.Errorf("%s: %w", image, errNoPayload)
	}
	payload := data[begin:end]
	var program string
	switch {
	case bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")):
		program = "xz"
	case bytes.HasPrefix(payload, []byte("\x28\xb5\x2f\xfd")):
		program = "zstd"
	default:
		return fmt.Errorf("%s: compressed in a way that is not known here", image)
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	unpack := exec.CommandContext(ctx, program, "--decompress", "--stdout")
	var talk bytes.Buffer
	unpack.Stdin, unpack.Stdout, unpack.Stderr = bytes.NewReader(payload), out, &talk
	if err := errors.Join(unpack.Run(), out.Close()); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, talk.Bytes())
	}
	return nil
}

// command runs a program in a folder, which must succeed.
func command(ctx context.Context, dir string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", argv[0], err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}
