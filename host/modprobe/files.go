package modprobe

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
	"text/template"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/templates"
)

// gpustack's files. modprobe reads files in order of their names, and of several "options … ids="
// lines the kernel uses the last.
const (
	// Dir is the directory of gpustack's files and of the operator's own.
	Dir      = "/etc/modprobe.d"
	baseName = "zz-gpustack.conf"
	loadFile = "/etc/modules-load.d/gpustack.conf"
)

// Functions is modprobe's configuration for functions that are assigned to guests.
type Functions struct {
	Driver    string   // vfio-pci or pci-stub
	IDs       []string // "10de:11b4"; none if the initramfs binds all functions by address
	TakenOver []Option // ids= lines in files of others, whose IDs are repeated in IDs
	Softdeps  []string // host drivers that must load after Driver
	Blacklist []string // host drivers that must not load
	Unsafe    bool     // allow_unsafe_interrupts=1
	Load      []string // modules to load at boot
}

// ErrLast is the error of a file with ids= that modprobe reads after any of gpustack's files.
var ErrLast = host.WithHint(errors.New("sets ids= and sorts after all names of gpustack's file"),
	"rename that file so that its name sorts before zz")

// RunFiles returns the files that the script in the initramfs writes for one boot: the blacklist,
// or with gpustack=off the options that make the driver bind nothing.
func RunFiles() []string {
	return []string{"/run/modprobe.d/gpustack-blacklist.conf", "/run/modprobe.d/zzzzz-gpustack-off.conf"}
}

// OwnFiles returns the possible paths of gpustack's file. Plan uses the first one that sorts after
// every other file that sets the driver's ids=.
func OwnFiles() []string {
	var names []string
	for z := range 3 { // the file of gpustack=off sorts after these
		names = append(names, path.Join(Dir, strings.Repeat("z", z)+baseName))
	}
	return names
}

// PlanFiles returns the files that [Functions.Plan] and [PlanNone] may change.
func PlanFiles() []string { return append(OwnFiles(), loadFile) }

// Plan plans gpustack's files. conf is modprobe's configuration without them.
func (f Functions) Plan(files edit.Files, conf Conf) (edit.Changes, error) {
	functions := map[string]any{"join": strings.Join}
	functionsConf := template.Must(template.New("functions").Funcs(functions).Parse(templates.ModprobeFunctions))
	loadConf := template.Must(template.New("load").Parse(templates.ModulesLoad))
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
	var plan edit.Changes
	placed := false
	for _, name := range OwnFiles() {
		var c edit.Change
		var err error
		if !placed && path.Base(name) > last {
			placed = true
			c, err = files.Put(name, []byte(text.String()), 0o644, false)
			c.Purpose = f.purpose()
		} else {
			c, err = files.Remove(name)
		}
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	if !placed {
		return nil, fmt.Errorf("%s: %w", path.Join(Dir, last), ErrLast)
	}
	c, err := files.Put(loadFile, []byte(load.String()), 0o644, false)
	c.Purpose = LoadPurpose(f.Load)
	return append(plan, c), err
}

// purpose returns the options that the file of modprobe sets, in short.
func (f Functions) purpose() string {
	var texts []string
	if len(f.IDs) > 0 {
		texts = append(texts, f.Driver+" ids="+strings.Join(f.IDs, ","))
	}
	if f.Unsafe {
		texts = append(texts, "vfio_iommu_type1 allow_unsafe_interrupts=1")
	}
	if len(f.Softdeps) > 0 {
		texts = append(texts, f.Driver+" before "+strings.Join(f.Softdeps, ", "))
	}
	if len(f.Blacklist) > 0 {
		texts = append(texts, "never "+strings.Join(f.Blacklist, ", "))
	}
	return cmp.Or(strings.Join(texts, "; "), "options of modules")
}

// LoadPurpose returns what a file of modules-load.d with these modules is for.
func LoadPurpose(modules []string) string {
	return host.Numbered(len(modules), "module") + " to load at boot"
}
