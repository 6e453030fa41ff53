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
	"gpustack/host/initramfs"
	"gpustack/host/journal"
)

// Errors of what a program has made.
var (
	// ErrRoots says that a menu would start kernels with another root file system.
	ErrRoots = errors.New("the new menu would start kernels with another root file system")
	// ErrOrder says that an initramfs would load the host's drivers first.
	ErrOrder = initramfs.ErrOrder
)

// Rebuild runs one of a plan's programs, and looks at what it made. Copies of what it
// writes are kept until that has passed, and are put back if it does not.
func Rebuild(ctx context.Context, r host.Runner, argv []string) error {
	made, err := observeProduct(r, argv)
	if err != nil {
		return err
	}
	entries, err := boot.KeepEntries(r.Root)
	if err != nil {
		return err
	}
	copies, err := keepCopies(r.Root, made.files)
	if err != nil {
		return errors.Join(err, copies.remove(r.Root))
	}
	_, err = r.Run(ctx, argv)
	if restoreErr := restoreEntries(r.Root, entries); err == nil {
		err = restoreErr
	}
	if err == nil {
		err = made.check(ctx)
	}
	if err != nil && len(copies) > 0 {
		if backErr := copies.putBack(r.Root); backErr != nil {
			return errors.Join(err, backErr)
		}
		err = fmt.Errorf("%w; what was there before is back", err)
	}
	return errors.Join(err, copies.remove(r.Root))
}

// product is what a program makes.
type product struct {
	files []string
	check func(context.Context) error // whether it is right
}

// observeProduct reads what there is before the program of a plan runs.
func observeProduct(r host.Runner, argv []string) (product, error) {
	switch argv[0] {
	case "update-grub":
		return observeMenu(r.Root, boot.MenuOfUpdateGrub)
	case "grub2-mkconfig":
		return observeMenu(r.Root, argv[2]) // -o MENU
	case "update-initramfs":
		return observeImages(r)
	case "kernel-install":
		return observeInstalled(r.Root, argv[2]) // add RELEASE IMAGE
	}
	return product{check: func(context.Context) error { return nil }}, nil
}

// observeMenu holds a menu to what it was: grub-mkconfig in a chroot takes a loop device
// for the root file system.
func observeMenu(root host.Root, menu string) (product, error) {
	before, err := boot.ReadMenu(root, menu)
	if err != nil {
		return product{}, err
	}
	return product{[]string{menu}, func(context.Context) error {
		after, err := boot.ReadMenu(root, menu)
		if err != nil {
			return err
		}
		if len(before) > 0 && !slices.Equal(boot.Roots(before), boot.Roots(after)) {
			return fmt.Errorf("%s: %w", menu, ErrRoots)
		}
		return inEffect(root, after)
	}}, nil
}

// inEffect is an error unless the entries have the arguments that are recorded.
func inEffect(root host.Root, entries []boot.Entry) error {
	contract, err := ReadContract(root)
	if err != nil || contract == nil {
		return err
	}
	return boot.InEffect(entries, contract.Arguments)
}

// observeInstalled looks at the entry of one kernel, and at the initramfs beside it.
func observeInstalled(root host.Root, release string) (product, error) {
	ofRelease := func() ([]boot.Entry, error) {
		b, err := boot.ReadSystemdBoot(root)
		if err != nil {
			return nil, err
		}
		entries, err := b.Entries(root)
		return slices.DeleteFunc(entries, func(e boot.Entry) bool { return e.Release != release }), err
	}
	before, err := ofRelease()
	if err != nil {
		return product{}, err
	}
	made := product{check: func(context.Context) error {
		after, err := ofRelease()
		if err != nil {
			return err
		}
		if len(after) == 0 {
			return fmt.Errorf("kernel %s: %w", release, boot.ErrNoEntries)
		}
		return inEffect(root, after)
	}}
	for _, e := range before {
		made.files = append(made.files, e.Initrds...)
	}
	return made, nil
}

// restoreEntries gives entries back the arguments that they had before a program ran:
// what they should be had been written into them.
func restoreEntries(root host.Root, kept boot.Kept) error {
	plan, err := kept.Restore(root)
	if err != nil {
		return err
	}
	return plan.Apply(root)
}

// keptDir holds copies while a program runs, on the root file system: a boot partition
// seldom has room for them.
const keptDir = journal.Dir + "/kept"

// copies are names of files that are kept.
type copies []string

func keptName(name string) string {
	return path.Join(keptDir, strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", "_"))
}

// keepCopies copies those files that are there. A copy that a killed run has left is
// older than what it may have made, and stays.
func keepCopies(root host.Root, files []string) (copies, error) {
	var kept copies
	for _, name := range files {
		ok, err := root.Exists(name)
		if err != nil {
			return kept, fmt.Errorf("%s: %w", name, host.Cause(err))
		}
		if !ok || slices.Contains(kept, name) {
			continue
		}
		old, err := root.Exists(keptName(name))
		if err == nil && !old {
			if err = edit.MakeDir(root, keptDir); err == nil {
				err = edit.Copy(root, name, keptName(name))
			}
		}
		if err != nil {
			return kept, err
		}
		kept = append(kept, name)
	}
	return kept, nil
}

func (c copies) putBack(root host.Root) error {
	var errs []error
	for _, name := range c {
		errs = append(errs, edit.Copy(root, keptName(name), name))
	}
	return errors.Join(errs...)
}

func (c copies) remove(root host.Root) error {
	var errs []error
	for _, name := range c {
		errs = append(errs, edit.RemoveFile(root, keptName(name)))
	}
	return errors.Join(append(errs, edit.RemoveDirs(root, []string{keptDir}))...)
}

// observeImages looks at what update-initramfs makes, for every kernel.
func observeImages(r host.Runner) (product, error) {
	names, err := r.Root.ReadDir("/boot")
	if err != nil && !host.IsAbsent(err) {
		return product{}, fmt.Errorf("/boot: %w", host.Cause(err))
	}
	made := product{check: func(context.Context) error { return checkInitramfs(r.Root) }}
	for _, name := range names {
		if isImage(name) {
			made.files = append(made.files, path.Join("/boot", name))
		}
	}
	return made, nil
}

func isImage(name string) bool {
	return strings.HasPrefix(name, "initrd.img-") && !strings.HasSuffix(name, ".bak")
}

// checkInitramfs reads each initramfs and looks where our script is, if there is to
// be one: before udev's.
func checkInitramfs(root host.Root) error {
	ours, err := root.Exists("/etc/initramfs-tools/scripts/init-top/gpustack")
	if err != nil || !ours {
		return err
	}
	names, err := root.ReadDir("/boot")
	if err != nil {
		return fmt.Errorf("/boot: %w", host.Cause(err))
	}
	for _, name := range names {
		if !isImage(name) {
			continue
		}
		image, err := initramfs.Read(root, path.Join("/boot", name), initramfs.Wanted)
		if err != nil {
			return err
		}
		if err := image.Ordered(initramfs.Tools); err != nil {
			return err
		}
	}
	return nil
}
