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
)

// ErrPutBack is joined to the error of a failed program or of the check of its result.
var ErrPutBack = errors.New("the files from before the program ran were restored")

// ErrStillThere is the error of an initramfs that contains files of an undone preparation.
var ErrStillThere = host.WithHint(errors.New("still contains files of gpustack that were removed"), "lsinitrd or lsinitramfs lists the files of the image; regenerate it after removing what adds them")

// Rebuild runs one of a plan's programs and checks what it made. Copies of the files that it
// writes are kept until the check has passed, and are put back if it fails. Where an earlier run
// failed or was killed in between, Rebuild first puts back what that run left behind.
func Rebuild(ctx context.Context, r host.Runner, program host.Program) error {
	made, err := observeProduct(r.Root, program)
	if err != nil {
		return err
	}
	restored, err := recoverCopies(r.Root, made)
	if err != nil {
		return err
	}
	if restored { // the check compares with the files that were put back
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
		err = errors.Join(err, ErrPutBack)
	}
	return errors.Join(err, kept.remove(r.Root))
}

// CurrentPrograms returns recorded programs as the machine needs them now: those for single
// kernels are for the kernels that are installed. It is an error if a boot partition is not
// mounted: the programs would write to its mount point.
func CurrentPrograms(root host.Root, recorded []host.Program) ([]host.Program, error) {
	if len(recorded) == 0 {
		return nil, nil
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

// product is what a program makes.
type product struct {
	files []string
	menu  bool         // the files are boot menus, else initramfs images
	check func() error // an error unless the program made what it should
}

// whole returns whether a file is complete: a menu with entries, or an initramfs that can be
// read to its end. A program that is killed may leave a part of one.
func (p product) whole(root host.Root, name string) bool {
	if p.menu {
		entries, err := boot.ReadMenu(root, name)
		return err == nil && len(entries) > 0
	}
	_, err := initramfs.Read(root, name, func(string) bool { return false })
	return err == nil
}

// observeProduct reads what there is before the program of a plan runs.
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

// observeMenu compares the menu that a program makes with the one before.
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

// inEffect is an error unless the entries have the arguments that are recorded.
func inEffect(root host.Root, entries []boot.Entry) error {
	contract, err := machine.ReadContract(root)
	if err != nil || contract == nil {
		return err
	}
	return boot.InEffect(entries, contract.Arguments)
}

// observeInstalled looks at the entry of one kernel, and at the initramfs beside it.
func observeInstalled(root host.Root, release string) (product, error) {
	facts, _ := host.ReadFacts(root) // what it warns of, Observe does
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
	for _, i := range machine.ImagesOf(before) {
		made.files = append(made.files, i.Name)
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
	return plan.Apply(context.Background(), root)
}

// observeImages looks at what update-initramfs makes, for every kernel.
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
	for _, i := range images {
		if i.Name != "" {
			made.files = append(made.files, i.Name)
		}
	}
	return made, nil
}

// checkImages is an error unless each initramfs has what the contract wants of it. With
// no contract, as after undo, none must have anything of ours.
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
			err = contract.VerifyImage(root, maker, i.Release, content)
		case slices.ContainsFunc(content.Names, func(name string) bool { return strings.Contains(path.Base(name), "gpustack") }):
			err = fmt.Errorf("%s: %w", i.Name, ErrStillThere)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Leftovers says, once a preparation is undone, which boot entries still have arguments
// of it: those of kernels that were installed since, which began with what the others had.
func Leftovers(root host.Root, undone *machine.Contract) []string {
	now, err := machine.ReadContract(root)
	if undone == nil || now != nil && err == nil {
		return nil // another one holds
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
		var still boot.Args
		for _, arg := range e.Args {
			// What all have was there before.
			if slices.Contains(undone.Arguments, arg) && slices.ContainsFunc(entries, func(o boot.Entry) bool { return !o.Recovery && !slices.Contains(o.Args, arg) }) {
				still = append(still, arg)
			}
		}
		if len(still) > 0 {
			leftovers = append(leftovers, fmt.Sprintf("%s still has %s: its kernel was installed since", e.File, still))
		}
	}
	return leftovers
}
