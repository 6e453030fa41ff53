package initramfs

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/pci"
	"gpustack/templates"
)

// The files of initramfs-tools that are ours (initramfs-tools(7)).
const (
	hookFile   = "/etc/initramfs-tools/hooks/gpustack"
	scriptFile = "/etc/initramfs-tools/scripts/init-top/gpustack"
)

// The files of dracut that are ours: a module (dracut.modules(7)), whose number has
// it installed after those that take what is configured for them, and configuration,
// of which dracut reads only *.conf (dracut.conf(5)). They were tried with 051, 059
// and 106 (Debian 11, 12 and 13), and the module's functions read in 049 (RHEL 8) and
// 108.
const (
	moduleFile = "/usr/lib/dracut/modules.d/99gpustack/module-setup.sh"
	preUdev    = "/usr/lib/dracut/modules.d/99gpustack/gpustack.sh"
	confFile   = "/etc/dracut.conf.d/zz-gpustack.conf"
)

// Early is what happens in the initramfs before udev starts.
type Early struct {
	Driver    string   // is loaded, and binds the devices of its ids= parameter
	Variants  []string // drivers for single products that are loaded too
	Modules   []string // are to be in the initramfs
	Blacklist []string // modules that udev must not load by alias, unless gpustack=off is given
	// ArgumentIDs are the products that the kernel's arguments have in ids= of the driver. An option
	// of modprobe does not override these, so gpustack=off removes them from the driver.
	ArgumentIDs []Function
	Take        []Function
	// Consoles are the functions that were the console (boot_vga) when this was planned. No
	// other console is bound.
	Consoles []pci.Address
}

// Function is one that is bound by its address, if it is still the same device in the same slot.
type Function struct {
	Address pci.Address
	// Path is its folder in sysfs, without links: the host bridge and all bridges above.
	Path            string
	Vendor, Product pci.ID
	// SubsystemVendor and Subsystem are nil where they could not be read: any match.
	SubsystemVendor, Subsystem *pci.ID
	Driver                     string
}

// Modalias returns a pattern of the shell that the function's modalias must match (Linux,
// drivers/pci/pci-sysfs.c, modalias_show).
func (f Function) Modalias() string {
	id := func(id *pci.ID) string {
		if id == nil {
			return "*"
		}
		return fmt.Sprintf("%08X", uint16(*id))
	}
	return "pci:v" + id(&f.Vendor) + "d" + id(&f.Product) + "sv" + id(f.SubsystemVendor) + "sd" + id(f.Subsystem) + "bc*"
}

// file is one of ours.
type file struct {
	name string
	text *template.Template
	mode uint32
}

var (
	script = parse(templates.InitramfsScript)
	hook   = parse(templates.DracutHook)
	files  = map[Maker][]file{
		Tools: {
			{hookFile, parse(templates.InitramfsHook), 0o755},
			{scriptFile, script, 0o755},
		},
		// The configuration names the module, and so comes after it.
		Dracut: {
			{moduleFile, parse(templates.DracutModule), 0o755},
			{preUdev, hook, 0o755},
			{confFile, parse(templates.DracutConf), 0o644},
		},
	}
)

func parse(text string) *template.Template {
	t := template.Must(template.New("take").Parse(templates.InitramfsTake))
	return template.Must(t.New("").Parse(text))
}

// Plan plans our files for the program that makes the initramfs, and that there are
// none for another.
func (e Early) Plan(root host.Root, maker Maker) (edit.Plan, error) {
	var plan edit.Plan
	for _, m := range []Maker{Tools, Dracut} {
		for _, f := range files[m] {
			c, err := e.plan(root, f, m == maker)
			if err != nil {
				return nil, err
			}
			plan = append(plan, c)
		}
	}
	return plan, nil
}

func (e Early) plan(root host.Root, f file, wanted bool) (edit.Change, error) {
	if !wanted {
		return edit.Remove(root, f.name)
	}
	text, err := e.render(f.text)
	if err != nil {
		return edit.Change{}, err
	}
	return edit.Put(root, f.name, text, f.mode, f.mode == 0o755)
}

// ErrPath says that a path cannot be a folder of sysfs.
var ErrPath = errors.New("is not a path in sysfs")

// sysfsPath describes the paths that the scripts have in quotes.
var sysfsPath = regexp.MustCompile(`^/sys/[0-9A-Za-z:._/-]+$`)

// render fills in a text. Modules are spelled with "_", which each program
// understands: of its lists of drivers, dracut turns only the first "-" into one.
func (e Early) render(t *template.Template) ([]byte, error) {
	for _, f := range e.Take {
		if !sysfsPath.MatchString(f.Path) {
			return nil, fmt.Errorf("%s: %q %w", f.Address, f.Path, ErrPath)
		}
	}
	e.Modules = slices.Clone(e.Modules)
	for i, m := range e.Modules {
		e.Modules[i] = normal(m)
	}
	var b strings.Builder
	err := t.Execute(&b, e)
	return []byte(b.String()), err
}

// normal is a module's name in the one spelling that names are compared in.
func normal(module string) string {
	return strings.ReplaceAll(module, "-", "_")
}
