package initramfs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// regenerate is the hint for images that an up-to-date generator would make differently.
const regenerate = "regenerate the initramfs (update-initramfs -u -k all, or dracut --force --regenerate-all)"

// Errors of images that lack what was planned.
var (
	// ErrMissing is the error of a file or module that an image lacks.
	ErrMissing = host.WithHint(errors.New("is missing"), regenerate)
	// ErrDiffers is the error of a file that differs from the planned one.
	ErrDiffers = host.WithHint(errors.New("differs from what was planned"), regenerate)
	// ErrOrder is the error of an image that would load the host's drivers first.
	ErrOrder = host.WithHint(errors.New("does not bind functions before udev starts"),
		host.Textf("remove the script in scripts/init-top that changes the order; %s reverts the preparation", host.NewCommand("undo")))
)

// Expected is the state that Verify compares an image with, besides Early.
type Expected struct {
	Release  string                   // of the kernel
	Loadable func(module string) bool // reports whether the kernel has the module as a file
	Files    map[string][]byte        // modprobe's configuration, by path on the machine
	Script   string                   // hash of the script that runs before udev (edit.File.Hash)
}

// Names in an initramfs. mkinitramfs writes the list of scripts in the order in which they run
// (cache_run_scripts).
const (
	scriptName = "scripts/init-top/gpustack"
	orderName  = "scripts/init-top/ORDER"
	hookName   = "00-gpustack.sh"
)

// Ends of the names that images with systemd have: its program, and the unit that runs the hooks
// before udev starts.
const (
	systemdName = "lib/systemd/systemd"
	preUdevName = "/initrd.target.wants/dracut-pre-udev.service"
)

// hookDirs are the directories of dracut's hooks that run before udev starts (dracut-init.sh,
// inst_hook): lib/dracut in 049, 051 and 059, below usr if /lib is a link, and var/lib in 106.
var hookDirs = []string{
	"lib/dracut/hooks/pre-udev", "usr/lib/dracut/hooks/pre-udev", "var/lib/dracut/hooks/pre-udev",
}

// Wanted reports whether Verify needs the content of a file.
func Wanted(file string) bool {
	switch dir, base := path.Split(file); {
	case file == scriptName, file == orderName:
		return true
	case base == hookName:
		return slices.Contains(hookDirs, path.Clean(dir))
	default:
		return dir == "etc/modprobe.d/" && strings.HasSuffix(base, "gpustack.conf")
	}
}

// Script returns the path on the machine of the script that images run before udev starts.
func (m Generator) Script() string {
	if m == Dracut {
		return preUdev
	}
	return scriptFile
}

// Verify returns an error unless an image has all it needs and would bind the functions before udev
// starts. The error contains everything that is wrong. c must have been read with Wanted.
func (e Early) Verify(c Content, generator Generator, x Expected) error {
	var errs []error
	keep := func(thing string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", c.Image, thing, err))
		}
	}
	name := scriptName
	if generator == Dracut {
		name = c.hook()
	}
	keep(name, c.checkHash(name, x.Script))
	if c.has(name) {
		if err := c.checkOrder(generator); err != nil {
			errs = append(errs, err)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(x.Files)) {
		keep(file, c.checkContent(strings.TrimPrefix(file, "/"), x.Files[file]))
	}
	for _, module := range e.Modules {
		if x.Loadable(module) && !c.hasModule(x.Release, module) {
			keep("module "+normal(module)+" of "+x.Release, ErrMissing)
		}
	}
	return errors.Join(errs...)
}

// checkOrder returns an error unless gpustack's script runs before udev starts.
func (c Content) checkOrder(generator Generator) error {
	ordered := c.orderedByTools
	if generator == Dracut {
		ordered = c.orderedByDracut
	}
	if !ordered() {
		return fmt.Errorf("%s: %w", c.Image, ErrOrder)
	}
	return nil
}

// orderedByTools reads the order of initramfs-tools' scripts from their list, in which each line
// begins with the name of a script.
func (c Content) orderedByTools() bool {
	for line := range bytes.Lines(c.Files[orderName]) {
		switch script, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" ")); string(script) {
		case "/scripts/init-top/udev":
			return false
		case "/" + scriptName:
			return true
		}
	}
	return false
}

// orderedByDracut reports whether the hook is in a directory that runs before udev. A systemd unit
// with Before=systemd-udevd.service runs the hooks, or dracut's own init in images without systemd
// (modules dracut-systemd and base). An image with systemd may lack that unit.
func (c Content) orderedByDracut() bool {
	if !c.has(c.hook()) {
		return false
	}
	for _, name := range c.Names {
		if strings.HasSuffix(name, systemdName) {
			return slices.ContainsFunc(c.Names, func(unit string) bool {
				return strings.HasSuffix(unit, preUdevName)
			})
		}
	}
	return c.has("init")
}

// hook returns the name of gpustack's hook, or the name that it should have, for messages.
func (c Content) hook() string {
	for _, dir := range hookDirs {
		if name := path.Join(dir, hookName); c.has(name) {
			return name
		}
	}
	return path.Join(hookDirs[0], hookName)
}

// Binds reports whether the image has gpustack's script.
func (c Content) Binds() bool {
	return c.has(scriptName) || c.has(c.hook())
}

// has reports whether the image has an entry with that name.
func (c Content) has(name string) bool {
	_, ok := slices.BinarySearch(c.Names, name)
	return ok
}

// checkContent returns an error unless the image has a file with exactly that content.
func (c Content) checkContent(name string, want []byte) error {
	switch {
	case !c.has(name):
		return ErrMissing
	case !bytes.Equal(c.Files[name], want):
		return ErrDiffers
	}
	return nil
}

// checkHash returns an error unless the image has a file with that hash.
func (c Content) checkHash(name, hash string) error {
	switch {
	case !c.has(name):
		return ErrMissing
	case host.Hash(c.Files[name]) != hash:
		return ErrDiffers
	}
	return nil
}

// hasModule reports whether the image has a module of a kernel, compressed or not.
func (c Content) hasModule(release, module string) bool {
	return slices.ContainsFunc(c.Names, func(name string) bool {
		of, found, ok := moduleIn(name)
		return ok && of == release && found == normal(module)
	})
}

// moduleIn returns the release and the module of which a name in an image is the file.
func moduleIn(name string) (release, module string, ok bool) {
	below, ok := strings.CutPrefix(strings.TrimPrefix(name, "usr/"), "lib/modules/")
	if !ok {
		return "", "", false
	}
	release, below, ok = strings.Cut(below, "/")
	if !ok {
		return "", "", false
	}
	base, suffix, ok := strings.Cut(path.Base(below), ".ko")
	return release, normal(base), ok && (suffix == "" || suffix[0] == '.')
}
