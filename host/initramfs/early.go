package initramfs

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"text/template"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/pci"
	"gpustack/templates"
)

// Files that gpustack adds to initramfs-tools (initramfs-tools(7)).
const (
	hookFile   = "/etc/initramfs-tools/hooks/gpustack"
	scriptFile = "/etc/initramfs-tools/scripts/init-top/gpustack"
)

// Files that gpustack adds to dracut: a module (dracut.modules(7)), whose number makes dracut
// install it after the modules that use the configuration, and configuration, of which dracut reads
// only *.conf (dracut.conf(5)). They were tested with 051, 059 and 106 (Debian 11, 12 and 13); the
// functions that the module calls also exist in 049 (RHEL 8) and 108.
const (
	moduleFile = "/usr/lib/dracut/modules.d/99gpustack/module-setup.sh"
	preUdev    = "/usr/lib/dracut/modules.d/99gpustack/gpustack.sh"
	confFile   = "/etc/dracut.conf.d/zz-gpustack.conf"
)

// Early is what the initramfs does before udev starts.
type Early struct {
	Driver    string   // is loaded, and binds the devices of its ids= parameter
	Variants  []string // further drivers to load, for single products
	Modules   []string // to include in the initramfs
	Blacklist []string // modules that udev must not load by alias, unless gpustack=off is given
	// ArgumentIDs are the products in the driver's ids= among the kernel's arguments. modprobe's
	// options do not override that ids=, so gpustack=off removes these products from the driver.
	ArgumentIDs []Function
	// ByAddress are the functions to bind by their addresses.
	ByAddress []Function
	// Consoles are the functions that were the console (boot_vga) when this was planned. No
	// other console is bound.
	Consoles []pci.Address
}

// Function is a function to bind by its address, if it is still the same device in the same slot.
type Function struct {
	Address pci.Address
	// Path is its directory in sysfs without links: the host bridge and all bridges above it.
	Path            string
	Vendor, Product pci.ID
	// SubsystemVendor and Subsystem are nil if they could not be read: any value matches.
	SubsystemVendor, Subsystem *pci.ID
	Driver                     string // to bind it to
}

// Modalias returns the shell pattern that the function's modalias must match (Linux,
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

// file is a file that gpustack adds.
type file struct {
	name    string
	text    string // of a template
	mode    uint32
	purpose string
}

var files = map[Generator][]file{
	Tools: {
		{hookFile, templates.InitramfsHook, 0o755, "adds modules to initramfs"},
		{scriptFile, templates.InitramfsScript, 0o755, "binds before udev starts"},
	},
	// The configuration refers to the module, so it is written after it.
	Dracut: {
		{moduleFile, templates.DracutModule, 0o755, "adds modules to initramfs"},
		{preUdev, templates.DracutHook, 0o755, "binds before udev starts"},
		{confFile, templates.DracutConf, 0o644, "has dracut use that module"},
	},
}

func parse(text string) *template.Template {
	t := template.Must(template.New("bind").Parse(templates.InitramfsBind))
	return template.Must(t.New("").Parse(text))
}

// PlanFiles returns the files that [Early.Plan] may change.
func PlanFiles() (names []string) {
	return append(Tools.Files(), Dracut.Files()...)
}

// Files returns the files that gpustack adds for a generator.
func (m Generator) Files() []string {
	return host.Map(files[m], func(f file) string { return f.name })
}

// Plan plans to write the files for a generator and to remove those for any other.
func (e Early) Plan(observed edit.Files, generator Generator) (edit.Changes, error) {
	var plan edit.Changes
	for _, m := range []Generator{Tools, Dracut} {
		for _, f := range files[m] {
			c, err := e.plan(observed, f, m == generator)
			if err != nil {
				return nil, err
			}
			plan = append(plan, c)
		}
	}
	return plan, nil
}

func (e Early) plan(observed edit.Files, f file, wanted bool) (edit.Change, error) {
	if !wanted {
		c, err := observed.Remove(f.name)
		if dir := path.Dir(f.name); c.Before != nil && dir == path.Dir(moduleFile) { // which is gpustack's own
			c.Dirs = []string{dir}
		}
		return c, err
	}
	text, err := e.render(f.text)
	if err != nil {
		return edit.Change{}, err
	}
	c, err := observed.Put(f.name, text, f.mode, f.mode == 0o755)
	c.Purpose = f.purpose
	return c, err
}

// ErrPath is the error of a function whose Path is not in sysfs, or not safe in the scripts'
// quotes.
var ErrPath = host.WithHint(errors.New("is not a sysfs path"),
	"use --root with the top directory of a machine's file tree; leave it out on the machine itself")

// sysfsPath matches the paths that are safe inside quotes in the scripts.
var sysfsPath = host.LazyRegexp(`^/sys/[0-9A-Za-z:._/-]+$`)

// render executes a template. Module names get "_" for "-": every generator understands that, while
// dracut converts only the first "-" of its lists of drivers.
func (e Early) render(text string) ([]byte, error) {
	for _, f := range e.ByAddress {
		if !sysfsPath().MatchString(f.Path) {
			return nil, fmt.Errorf("%s: %q %w", f.Address, f.Path, ErrPath)
		}
	}
	e.Modules = slices.Clone(e.Modules)
	for i, m := range e.Modules {
		e.Modules[i] = normal(m)
	}
	var b strings.Builder
	err := parse(text).Execute(&b, e)
	return []byte(b.String()), err
}

// normal returns the name of a module with "_" for "-", the form in which names are compared.
func normal(module string) string {
	return strings.ReplaceAll(module, "-", "_")
}
