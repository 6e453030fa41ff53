package modprobe

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/pci"
)

// Stated is an ids= of a driver for passthrough that others have written: by it, the driver binds
// functions at boot, whatever gpustack records.
type Stated struct {
	File   string
	Number int    // of the line; 0 for arguments of the kernel
	Driver string // vfio-pci or pci-stub
	IDs    []string
}

// String returns what is stated, without its place.
func (s Stated) String() string {
	return s.Driver + " ids=" + strings.Join(s.IDs, ",")
}

// Place returns the file, with the line if there is one.
func (s Stated) Place() string {
	if s.Number == 0 {
		return s.File
	}
	return fmt.Sprintf("%s:%d", s.File, s.Number)
}

// Matches reports whether the driver binds a function by one of the ids.
func (s Stated) Matches(d *pci.Device) bool {
	return slices.ContainsFunc(s.IDs, func(id string) bool { return matches(id, d) })
}

// passthrough are the drivers that bind functions by their ids= and do not use them.
var passthrough = []string{"vfio-pci", "pci-stub"}

// Files with modules to load at boot, and options of them: initramfs-tools gives each line to
// modprobe (hook-functions and scripts/functions, load_modules), and so does the init script of
// kmod with /etc/modules.
var moduleFiles = []string{"/etc/initramfs-tools/modules", "/etc/modules"}

// Folders of files like these: modules-load.d(5), and dracut.conf(5), whose kernel_cmdline= has
// arguments of kernels.
var (
	loadDirs   = []string{"/etc/modules-load.d", "/run/modules-load.d", "/usr/local/lib/modules-load.d", "/usr/lib/modules-load.d"}
	dracutDirs = []string{"/etc/dracut.conf.d", "/usr/lib/dracut/dracut.conf.d"}
)

const dracutConf = "/etc/dracut.conf"

// ReadStated returns what files of others state, those of conf included. Arguments of the kernel
// are not among them.
func ReadStated(root host.Root, conf Conf) ([]Stated, error) {
	var stated []Stated
	for _, driver := range passthrough {
		for _, o := range conf.Options(driver, "ids") {
			if ids := AddIDs(nil, o.Value); ids != nil && !isOwn(o.File) {
				stated = append(stated, Stated{o.File, o.Number, driver, ids})
			}
		}
	}
	names, err := bootFiles(root)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{} // Debian's /etc/modules-load.d/modules.conf is a link to /etc/modules
	for _, name := range names {
		data, err := root.ReadFile(name)
		place, placeErr := root.Resolve(name)
		if host.IsAbsent(err) || isOwn(name) || placeErr == nil && seen[place] {
			continue
		}
		seen[place] = true
		if err != nil {
			return nil, err
		}
		stated = append(stated, statedIn(name, string(data))...)
	}
	return stated, nil
}

// bootFiles returns the files beside those of modprobe.d that can state ids.
func bootFiles(root host.Root) ([]string, error) {
	names := append(slices.Clone(moduleFiles), dracutConf)
	for _, dir := range append(slices.Clone(loadDirs), dracutDirs...) {
		found, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return nil, err
		}
		names = append(names, host.Map(host.Filter(found, func(name string) bool { return path.Ext(name) == ".conf" && name[0] != '.' }),
			func(name string) string { return path.Join(dir, name) })...)
	}
	return names, nil
}

// statedIn returns what the lines of a file state.
func statedIn(name, text string) (stated []Stated) {
	for i, line := range strings.Split(text, "\n") {
		for _, driver := range passthrough {
			if ids := statedIDs(name, line, driver); ids != nil {
				stated = append(stated, Stated{name, i + 1, driver, ids})
			}
		}
	}
	return stated
}

// isOwn reports whether a file is gpustack's.
func isOwn(name string) bool {
	return strings.Contains(path.Base(name), "gpustack")
}

// Words with ids=, as options of a module whose line this is, and as an argument of the kernel.
var (
	optionWord   = host.LazyRegexp(`(\s+"?ids=)("?)([^\s"']*)("?)`)
	argumentWord = host.LazyRegexp(`(\s*\b(?:vfio[-_]pci|pci[-_]stub)\.ids=)("?)([^\s"']*)("?)`)
)

// word returns the expression of words with ids= of a driver in a line of a file, or nil.
func word(name, line, driver string) *regexp.Regexp {
	words := strings.Fields(line)
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}
	module := words[0]
	switch {
	case strings.Contains(name, "dracut"):
		return argumentWord()
	case path.Dir(name) == Dir:
		if module != "options" || len(words) < 2 {
			return nil
		}
		module = words[1]
	}
	if Normal(module) != Normal(driver) {
		return nil
	}
	return optionWord()
}

// statedIDs returns the ids that a line of a file states for a driver.
func statedIDs(name, line, driver string) (ids []string) {
	expression := word(name, line, driver)
	if expression == nil {
		return nil
	}
	for _, m := range expression.FindAllStringSubmatch(line, -1) {
		if isFor(m[1], driver) {
			ids = AddIDs(ids, m[3])
		}
	}
	return ids
}

// isFor reports whether a word's name is that of a driver's ids=, or of the module of its line.
func isFor(name, driver string) bool {
	module, _, argument := strings.Cut(strings.TrimSpace(name), ".")
	return !argument || Normal(module) == Normal(driver)
}

// Planned returns the configuration after a plan for files that are in it.
func (c Conf) Planned(plan edit.Changes) Conf {
	after := host.By(plan, func(c edit.Change) (string, *edit.File) { return c.Name, c.After })
	var conf Conf
	last := ""
	for _, line := range c {
		f, changed := after[line.File]
		switch {
		case !changed:
			conf = append(conf, line)
		case line.File != last:
			conf = append(conf, parse(line.File, string(f.Content))...)
		}
		last = line.File
	}
	return conf
}

// errByHand is the error of a line that TakeOver does not change.
var errByHand = host.WithHint(errors.New("gpustack changes only single lines of files below /etc"), "remove the ids there by hand")

// TakeOver plans to remove ids from the files that state them. A line goes when no id is left in
// it and it says nothing else.
func TakeOver(files edit.Files, stated []Stated, ids []string) (edit.Changes, error) {
	var plan edit.Changes
	var errs []error
	done := map[string]bool{}
	for _, s := range stated {
		if s.Number == 0 || done[s.File] || len(s.Without(ids)) == len(s.IDs) {
			continue
		}
		done[s.File] = true
		before, err := files.Read(s.File)
		if err == nil && before == nil {
			err = fmt.Errorf("%s: %w", s.File, edit.ErrChanged)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		lines := strings.SplitAfter(string(before.Content), "\n")
		for _, other := range stated {
			if other.File != s.File || len(other.Without(ids)) == len(other.IDs) {
				continue
			}
			at := other.Number - 1
			if !strings.HasPrefix(s.File, "/etc/") || at >= len(lines) || len(statedIDs(s.File, lines[at], other.Driver)) != len(other.IDs) {
				errs = append(errs, fmt.Errorf("%s: %w", other.Place(), errByHand))
				continue
			}
			lines[at] = withoutIDs(s.File, lines[at], other.Driver, ids)
		}
		c, err := files.Put(s.File, []byte(strings.Join(lines, "")), before.Mode, false)
		errs = append(errs, err)
		plan = append(plan, c)
	}
	return plan, errors.Join(errs...)
}

// Without returns the ids that are not among others.
func (s Stated) Without(others []string) []string {
	return slices.DeleteFunc(slices.Clone(s.IDs), func(id string) bool { return names(others, id) })
}

// names reports whether ids contain an id, which may be limited further, to a subsystem or a class.
func names(ids []string, id string) bool {
	read := numbers(id)
	return slices.ContainsFunc(ids, func(one string) bool {
		named := numbers(one)
		return len(named) > 0 && len(named) <= len(read) && slices.Equal(named, read[:len(named)])
	})
}

// withoutIDs returns a line without ids of a driver, "" if nothing is left of it.
func withoutIDs(name, line, driver string, ids []string) string {
	expression := word(name, line, driver)
	text := expression.ReplaceAllStringFunc(line, func(found string) string {
		m := expression.FindStringSubmatch(found)
		if !isFor(m[1], driver) {
			return found
		}
		list := Stated{IDs: strings.FieldsFunc(m[3], func(c rune) bool { return c == ',' })} // drivers ignore empty elements
		left := list.Without(ids)
		if len(left) == len(list.IDs) {
			return found
		}
		if len(left) == 0 {
			return strings.Repeat(m[4], max(len(m[4])-len(m[2]), 0)) // a quote that does not belong to the word
		}
		return m[1] + m[2] + strings.Join(left, ",") + m[4]
	})
	words := strings.Fields(text)
	emptied := len(words) <= 1 || words[0] == "options" && len(words) == 2
	if strings.Contains(name, "dracut") {
		emptied = emptyValue().MatchString(text)
	}
	if text != line && emptied {
		return ""
	}
	return text
}

// emptyValue matches a line of dracut's configuration that adds nothing.
var emptyValue = host.LazyRegexp(`^\s*\w+\+?=\s*["']?\s*["']?\s*$`)
