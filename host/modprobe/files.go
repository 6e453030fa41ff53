package modprobe

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"text/template"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/templates"
)

// The files that are ours. modprobe reads files in order of their names, and of
// several "options … ids=" lines the kernel keeps the last.
const (
	// Dir is where operators' files lie, and ours.
	Dir      = "/etc/modprobe.d"
	baseName = "zz-gpustack.conf"
	loadFile = "/etc/modules-load.d/gpustack.conf"
)

// Functions is what modprobe shall be told about functions for guests.
type Functions struct {
	Driver    string   // vfio-pci or pci-stub
	IDs       []string // "10de:11b4"; none where modprobe is not to bind
	TakenOver []Option // others' ids lines, whose ids are among IDs
	Softdeps  []string // modules that would take the functions
	Blacklist []string
	Unsafe    bool
	Load      []string // modules to be loaded at boot
}

var functions = map[string]any{"join": strings.Join}

var (
	functionsConf = template.Must(template.New("functions").Funcs(functions).Parse(templates.ModprobeFunctions))
	loadConf      = template.Must(template.New("load").Parse(templates.ModulesLoad))
)

// ErrLast says that no file of ours could be read after somebody else's.
var ErrLast = errors.New("sets ids in a file that sorts last")

// RunFiles returns the files that the hook in the initramfs writes for one boot: the blacklist,
// or with gpustack=off the options that make a driver bind nothing.
func RunFiles() []string {
	return []string{"/run/modprobe.d/gpustack-blacklist.conf", "/run/modprobe.d/zzzzz-gpustack-off.conf"}
}

// OwnFiles returns the names that our file may have. It gets the first one that sorts after every
// file of others that sets a driver's ids.
func OwnFiles() []string {
	var names []string
	for z := range 3 { // the file of gpustack=off sorts after these
		names = append(names, path.Join(Dir, strings.Repeat("z", z)+baseName))
	}
	return names
}

// Plan plans our files. conf is what others tell modprobe.
func (f Functions) Plan(root host.Root, conf Conf) (edit.Plan, error) {
	var text, load strings.Builder
	if err := functionsConf.Execute(&text, f); err != nil {
		return nil, err
	}
	if err := loadConf.Execute(&load, f.Load); err != nil {
		return nil, err
	}
	last := ""
	for _, o := range conf.Options(f.Driver, "ids") {
		last = max(last, path.Base(o.File))
	}
	var plan edit.Plan
	placed := false
	for _, name := range OwnFiles() {
		var c edit.Change
		var err error
		if !placed && path.Base(name) > last {
			placed = true
			c, err = edit.Put(root, name, []byte(text.String()), 0o644, false)
		} else {
			c, err = edit.Remove(root, name)
		}
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	if !placed {
		return nil, fmt.Errorf("%s: %w", path.Join(Dir, last), ErrLast)
	}
	c, err := edit.Put(root, loadFile, []byte(load.String()), 0o644, false)
	return append(plan, c), err
}
