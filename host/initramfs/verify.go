package initramfs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gpustack/host/edit"
)

// Errors of images that are not what was wanted.
var (
	ErrMissing = errors.New("is not in it")
	ErrDiffers = errors.New("is not as it was planned")
	// ErrOrder says that an initramfs would load the host's drivers first.
	ErrOrder = errors.New("does not take functions before udev starts")
)

// Expected is what an image is held against, beside what is to happen early.
type Expected struct {
	Release  string                   // the kernel's
	Loadable func(module string) bool // that the kernel has the module as a file
	Files    map[string][]byte        // by where they lie on the machine: what modprobe is told
	Script   string                   // the hash of the script that runs before udev (edit.File.Hash)
}

// Where an initramfs has what is ours. mkinitramfs writes the list of scripts in
// the order in which they run (cache_run_scripts).
const (
	scriptName = "scripts/init-top/gpustack"
	orderName  = "scripts/init-top/ORDER"
	hookName   = "00-gpustack.sh"
)

// hookDirs are where dracut's hooks lie that run before udev starts (dracut-init.sh,
// inst_hook): of 049, 051 and 059 in lib/dracut, which is below usr where /lib is a
// link, and of 106 in var/lib.
var hookDirs = []string{"lib/dracut/hooks/pre-udev", "usr/lib/dracut/hooks/pre-udev", "var/lib/dracut/hooks/pre-udev"}

// Wanted tells of which files Verify looks at what they hold.
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

// Script returns where the script that runs before udev lies on the machine: what it holds, the
// images have.
func (m Maker) Script() string {
	if m == Dracut {
		return preUdev
	}
	return scriptFile
}

// Verify returns an error unless an image has what it needs, and would bind the functions
// before udev starts. All faults are in the error. The image must have been read with
// the files that are Wanted.
func (e Early) Verify(c Content, maker Maker, x Expected) error {
	var faults []error
	keep := func(thing string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %s: %w", c.Image, thing, err))
		}
	}
	name := scriptName
	if maker == Dracut {
		name = c.hook()
	}
	keep(name, c.holdsHash(name, x.Script))
	if c.has(name) {
		if err := c.ordered(maker); err != nil {
			faults = append(faults, err)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(x.Files)) {
		keep(file, c.holds(strings.TrimPrefix(file, "/"), x.Files[file]))
	}
	for _, module := range e.Modules {
		if x.Loadable(module) && !c.hasModule(x.Release, module) {
			keep("module "+normal(module)+" of "+x.Release, ErrMissing)
		}
	}
	return errors.Join(faults...)
}

// ordered is an error unless the script of ours runs before udev starts.
func (c Content) ordered(maker Maker) error {
	ordered := c.orderedByTools
	if maker == Dracut {
		ordered = c.orderedByDracut
	}
	if !ordered() {
		return fmt.Errorf("%s: %w", c.Image, ErrOrder)
	}
	return nil
}

// orderedByTools goes by the list of scripts, each a line that begins with its name.
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

// orderedByDracut goes by the folder of the hook. What runs the hooks there is a
// unit of systemd's, Before=systemd-udevd.service, or else dracut's own init
// (modules dracut-systemd and base). An image may have systemd without the former.
func (c Content) orderedByDracut() bool {
	if !c.has(c.hook()) {
		return false
	}
	for _, name := range c.Names {
		if strings.HasSuffix(name, "lib/systemd/systemd") {
			return slices.ContainsFunc(c.Names, func(unit string) bool {
				return strings.HasSuffix(unit, "/initrd.target.wants/dracut-pre-udev.service")
			})
		}
	}
	return c.has("init")
}

// hook returns where our hook is, or for messages where it should be.
func (c Content) hook() string {
	for _, dir := range hookDirs {
		if name := path.Join(dir, hookName); c.has(name) {
			return name
		}
	}
	return path.Join(hookDirs[0], hookName)
}

// has tells whether there is something of that name.
func (c Content) has(name string) bool {
	_, ok := slices.BinarySearch(c.Names, name)
	return ok
}

// holds is an error unless a file holds just that.
func (c Content) holds(name string, want []byte) error {
	switch {
	case !c.has(name):
		return ErrMissing
	case !bytes.Equal(c.Files[name], want):
		return ErrDiffers
	}
	return nil
}

// holdsHash returns an error unless a file holds what has that hash.
func (c Content) holdsHash(name, hash string) error {
	switch {
	case !c.has(name):
		return ErrMissing
	case (&edit.File{Content: c.Files[name]}).Hash() != hash:
		return ErrDiffers
	}
	return nil
}

// hasModule tells whether a module of a kernel is there, compressed or not.
func (c Content) hasModule(release, module string) bool {
	return slices.ContainsFunc(c.Names, func(name string) bool {
		below, ok := strings.CutPrefix(strings.TrimPrefix(name, "usr/"), "lib/modules/"+release+"/")
		base, suffix, ko := strings.Cut(path.Base(below), ".ko")
		return ok && ko && (suffix == "" || suffix[0] == '.') && normal(base) == normal(module)
	})
}
