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
	"gpustack/host/initramfs"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
)

// errPutBack is joined to the error of a failed program or of the check of its result.
var errPutBack = errors.New("the files from before the program ran were restored")

// errStillThere is the error of an initramfs that contains files of an undone preparation.
var errStillThere = host.WithHint(errors.New("still contains files of gpustack that were removed"),
	"lsinitrd or lsinitramfs lists the files of the image; regenerate it after removing what adds them")

// Rebuild runs one of a plan's programs and checks the files that it wrote. Copies of the former
// files are kept until the check has passed, and are restored if it fails. Where an earlier run
// failed or was killed in between, Rebuild first restores the files that it changed.
func Rebuild(ctx context.Context, r host.Runner, program host.Program) error {
	made, err := observeProduct(r.Root, program)
	if err != nil {
		return err
	}
	restored, err := recoverCopies(r.Root, made)
	if err != nil {
		return err
	}
	if restored { // the check compares with the restored files
		if made, err = observeProduct(r.Root, program); err != nil {
			return err
		}
	}
	entries, err := boot.KeepEntries(r.Root)
	if err != nil {
		return err
	}
	kept, err := keepCopies(r.Root, made.files)
	if err != nil {
		return errors.Join(err, kept.remove(r.Root))
	}
	_, err = r.Run(ctx, program.Argv())
	err = errors.Join(err, kept.recordResult(r.Root), restoreEntries(r.Root, entries))
	if err == nil {
		err = made.check()
	}
	if err != nil && len(kept) > 0 {
		if backErr := kept.putBack(r.Root); backErr != nil {
			return errors.Join(err, backErr)
		}
		err = errors.Join(err, errPutBack)
	}
	return errors.Join(err, kept.remove(r.Root))
}

// CurrentPrograms returns recorded programs adapted to the machine's current kernels: programs
// that run once for each kernel are run for the installed ones. It fails if a boot partition is
// not mounted: the programs would write into its mount point.
func CurrentPrograms(root host.Root, recorded []host.Program) ([]host.Program, error) {
	writesNothing := func(p host.Program) bool { return p.Kind == host.RevertBoot }
	if !slices.ContainsFunc(recorded, func(p host.Program) bool { return !writesNothing(p) }) {
		return recorded, nil
	}
	if err := boot.Mounted(root); err != nil {
		return nil, err
	}
	var programs []host.Program
	kinds := map[host.ProgramKind]bool{}
	for _, p := range recorded {
		switch {
		case p.Kind != host.Dracut && p.Kind != host.KernelInstall:
			programs = append(programs, p)
		case !kinds[p.Kind]:
			kinds[p.Kind] = true
			now, err := ofKernels(root, p.Kind)
			if err != nil {
				return nil, err
			}
			programs = append(programs, now...)
		}
	}
	return programs, nil
}

func ofKernels(root host.Root, kind host.ProgramKind) ([]host.Program, error) {
	if kind == host.KernelInstall {
		b, err := boot.ReadSystemdBoot(root)
		return b.Programs(true, true), err
	}
	releases, err := host.Kernels(root)
	if err != nil {
		return nil, err
	}
	images, err := initramfs.Images(root, releases)
	return initramfs.Dracut.Programs(images), err
}

// product is the output of a program.
type product struct {
	files []string
	menu  bool         // the files are boot menus, else initramfs images
	check func() error // returns an error if the program's output is wrong
}

// whole reports whether a file is complete: a menu with entries, or an initramfs that can be read
// to its end. A program that is killed may leave a part of one.
func (p product) whole(root host.Root, name string) bool {
	if p.menu {
		entries, err := boot.ReadMenu(root, name)
		return err == nil && len(entries) > 0
	}
	_, err := initramfs.Read(root, name, func(string) bool { return false })
	return err == nil
}

// observeProduct reads the files that a program will replace, before it runs.
func observeProduct(root host.Root, p host.Program) (product, error) {
	switch p.Kind {
	case host.UpdateGrub:
		return observeMenu(root, p, boot.MenuOfUpdateGrub)
	case host.GrubMkconfig:
		return observeMenu(root, p, p.File)
	case host.UpdateInitramfs:
		return observeImages(root)
	case host.Dracut:
		image := initramfs.Image{Name: p.File, Release: p.Release}
		return product{
			files: []string{image.Name},
			check: func() error { return checkImages(root, initramfs.Dracut, []initramfs.Image{image}) },
		}, nil
	case host.KernelInstall:
		return observeInstalled(root, p.Release)
	}
	return product{check: func() error { return nil }}, nil
}

// observeMenu returns the product of a program that generates a boot menu. Its check compares the
// new menu with the old one.
func observeMenu(root host.Root, p host.Program, menu string) (product, error) {
	before, err := boot.ReadMenu(root, menu)
	if err != nil {
		return product{}, err
	}
	return product{files: []string{menu}, menu: true, check: func() error {
		after, err := boot.ReadMenu(root, menu)
		if err != nil {
			return err
		}
		if len(after) == 0 {
			return fmt.Errorf("%s: %w", menu, boot.ErrNoEntries)
		}
		var errs []error
		for _, other := range boot.CompareRoots(before, after) {
			other.Program = p
			errs = append(errs, other)
		}
		if errs != nil {
			return errors.Join(errs...)
		}
		return inEffect(root, after)
	}}, nil
}

// inEffect returns an error unless the entries have the recorded arguments.
func inEffect(root host.Root, entries []boot.Entry) error {
	contract, err := machine.ReadContract(root)
	if err != nil || contract == nil {
		return err
	}
	return boot.InEffect(entries, contract.Arguments)
}

// observeInstalled returns the product of kernel-install for one kernel: its boot entry and its
// initramfs.
func observeInstalled(root host.Root, release string) (product, error) {
	facts, _ := host.ReadFacts(root) // Observe reports the warnings
	maker, err := machine.ReadGenerator(root, facts)
	if err != nil {
		return product{}, err
	}
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
	made := product{check: func() error {
		after, err := ofRelease()
		if err != nil {
			return err
		}
		if len(after) == 0 {
			return fmt.Errorf("kernel %s: %w", release, boot.ErrNoEntries)
		}
		return errors.Join(inEffect(root, after), checkImages(root, maker, machine.ImagesOf(after)))
	}}
	made.files = fileNames(machine.ImagesOf(before))
	return made, nil
}

// restoreEntries writes the arguments of boot entries back that they had before a program ran: the
// plan had already written the wanted ones.
func restoreEntries(root host.Root, kept boot.Kept) error {
	plan, err := kept.Restore(root)
	if err != nil {
		return err
	}
	return plan.Apply(context.Background(), root)
}

// observeImages returns the product of update-initramfs: the initramfs of every kernel.
func observeImages(root host.Root) (product, error) {
	releases, err := host.Kernels(root)
	if err != nil {
		return product{}, err
	}
	images, err := initramfs.Images(root, releases)
	if err != nil {
		return product{}, err
	}
	made := product{check: func() error {
		after, err := initramfs.Images(root, releases)
		if err != nil {
			return err
		}
		return checkImages(root, initramfs.Tools, after)
	}}
	made.files = fileNames(images)
	return made, nil
}

// fileNames returns the files of images, without the kernels that have none.
func fileNames(images []initramfs.Image) []string {
	names := host.Map(images, func(i initramfs.Image) string { return i.Name })
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// checkImages returns an error unless each initramfs contains what the contract requires. Without
// a contract, as after undo, none may contain files of gpustack.
func checkImages(root host.Root, maker initramfs.Generator, images []initramfs.Image) error {
	contract, err := machine.ReadContract(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, i := range images {
		if i.Name == "" {
			continue
		}
		content, err := initramfs.Read(root, i.Name, initramfs.Wanted)
		switch {
		case err != nil:
		case contract != nil:
			var kernel modprobe.Modules
			if kernel, err = modprobe.ReadNames(root, i.Release); err == nil {
				err = contract.VerifyImage(root, maker, kernel, content)
			}
		default:
			err = leftIn(root, content)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leftIn returns an error if an image contains files of gpustack that the machine no longer has.
// The generators copy modprobe's configuration, to which rdma prepare adds a file of its own.
func leftIn(root host.Root, content initramfs.Content) error {
	for _, name := range content.Names {
		if !strings.Contains(path.Base(name), "gpustack") {
			continue
		}
		there, err := root.Exists(name)
		if err != nil {
			return err
		}
		if path.Dir("/"+name) != modprobe.Dir || !there {
			return fmt.Errorf("%s: %w", content.Image, errStillThere)
		}
	}
	return nil
}

// Leftovers returns a warning for each boot entry that still has arguments of a preparation that
// was undone: entries of kernels installed since then started with the arguments of the others.
func Leftovers(root host.Root, undone *machine.Contract) []string {
	now, err := machine.ReadContract(root)
	if undone == nil || now != nil && err == nil {
		return nil // a newer record applies
	}
	var loader machine.Loader
	var entries []boot.Entry
	if err == nil {
		facts, _ := host.ReadFacts(root)
		loader, err = machine.ReadLoader(root, facts, nil)
	}
	if _, grub := loader.(boot.Grub); grub && err == nil {
		return nil // its menu is regenerated as a whole
	}
	if err == nil {
		entries, err = loader.Entries(root)
	}
	if err != nil {
		return []string{fmt.Sprintf("cannot determine whether entries of kernels installed since still have the undone arguments: %v", err)}
	}
	var leftovers []string
	for _, e := range entries {
		still := host.Filter(e.Args, func(arg string) bool { // arguments that all entries have were there before
			return slices.Contains(undone.Arguments, arg) && slices.ContainsFunc(entries, func(o boot.Entry) bool { return !o.Recovery && !slices.Contains(o.Args, arg) })
		})
		if len(still) > 0 {
			leftovers = append(leftovers, fmt.Sprintf("%s still has %s: its kernel was installed since", e.File, still))
		}
	}
	return leftovers
}
