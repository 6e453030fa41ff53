package prepare

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
)

// ErrRoots says that a menu would start kernels with another root file system.
var ErrRoots = errors.New("the new menu would start kernels with another root file system; the old one is back")

// ErrOrder says that an initramfs would load the host's drivers first.
var ErrOrder = errors.New("does not take functions before udev starts")

// Rebuild runs one of a plan's programs, and looks at what it made.
func Rebuild(ctx context.Context, r host.Runner, argv []string) error {
	switch argv[0] {
	case "update-grub":
		return rebuildMenu(ctx, r, argv)
	case "update-initramfs":
		if _, err := r.Run(ctx, argv); err != nil {
			return err
		}
		return checkInitramfs(ctx, r)
	}
	_, err := r.Run(ctx, argv)
	return err
}

const menu = "/boot/grub/grub.cfg"

// rebuildMenu keeps the old menu if the new one would not find the root file
// system: grub-mkconfig in a chroot takes a loop device for it.
func rebuildMenu(ctx context.Context, r host.Runner, argv []string) error {
	kept, err := edit.Read(r.Root, menu)
	if err != nil {
		return err
	}
	before, err := boot.ReadMenu(r.Root)
	if err != nil {
		return err
	}
	if _, err := r.Run(ctx, argv); err != nil {
		return err
	}
	after, err := boot.ReadMenu(r.Root)
	if err != nil {
		return err
	}
	if kept != nil && !slices.Equal(boot.Roots(before), boot.Roots(after)) {
		return errors.Join(fmt.Errorf("%s: %w", menu, ErrRoots), edit.Write(r.Root, menu, kept.Content, kept.Mode))
	}
	contract, err := ReadContract(r.Root)
	if err != nil || contract == nil {
		return err
	}
	return boot.InEffect(after, contract.Arguments)
}

// orderFile lists the scripts of an initramfs in the order in which they run
// (initramfs-tools, mkinitramfs: cache_run_scripts).
const orderFile = "scripts/init-top/ORDER"

// checkInitramfs unpacks each initramfs and looks where our script is, if there is
// to be one: before udev's.
func checkInitramfs(ctx context.Context, r host.Runner) error {
	ours, err := r.Root.Exists("/etc/initramfs-tools/scripts/init-top/gpustack")
	if err != nil || !ours {
		return err
	}
	names, err := r.Root.ReadDir("/boot")
	if err != nil {
		return fmt.Errorf("/boot: %w", host.Cause(err))
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "initrd.img-") || strings.HasSuffix(name, ".bak") {
			continue
		}
		if err := checkImage(ctx, r, path.Join("/boot", name)); err != nil {
			return fmt.Errorf("/boot/%s: %w", name, err)
		}
	}
	return nil
}

func checkImage(ctx context.Context, r host.Runner, image string) error {
	out, err := r.Run(ctx, []string{"mktemp", "-d", "/var/tmp/gpustack.XXXXXX"})
	if err != nil {
		return err
	}
	dir := strings.TrimSpace(string(out))
	_, err = r.Run(ctx, []string{"unmkinitramfs", image, dir})
	if err == nil {
		err = checkOrder(r.Root, dir)
	}
	_, cleanErr := r.Run(ctx, []string{"rm", "-rf", dir})
	return errors.Join(err, cleanErr)
}

// checkOrder finds the list of scripts: an image that begins with microcode is
// unpacked into several folders.
func checkOrder(root host.Root, dir string) error {
	for _, part := range []string{"", "main"} {
		data, err := root.ReadFile(path.Join(dir, part, orderFile))
		if host.IsAbsent(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", orderFile, host.Cause(err))
		}
		ours := strings.Index(string(data), "/scripts/init-top/gpustack ")
		udev := strings.Index(string(data), "/scripts/init-top/udev ")
		if ours < 0 || udev >= 0 && udev < ours {
			return ErrOrder
		}
		return nil
	}
	return fmt.Errorf("%s: %w", orderFile, ErrOrder)
}
