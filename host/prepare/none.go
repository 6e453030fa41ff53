package prepare

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/initramfs"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
)

// kernelCmdline contains the arguments of kernels that are installed later (kernel-install(8)).
const kernelCmdline = "/etc/kernel/cmdline"

// planNone plans the removal of everything that host prepare has written except the journal: its
// files, hooks, kernel arguments and record.
func (n node) planNone() (Plan, error) {
	if !n.journal.Seen() {
		return Plan{}, n.journal.Err
	}
	entries, whole := sincePrepared(n.journal.Value)
	w, warnings, err := n.withoutArguments(entries, whole)
	if err != nil {
		return Plan{}, err
	}
	warnings = slices.Concat(n.Warnings, warnings, n.stillBound())
	p := Plan{None: true, Arguments: w.Change(n.Loader.Args()), Warnings: warnings}
	menu, err := n.Loader.Plan(n.edited, w)
	if err != nil {
		return Plan{}, err
	}
	menu = slices.DeleteFunc(menu, func(c edit.Change) bool { return c.Action() == edit.Create })
	for i, c := range menu {
		if c.Name == boot.GrubDefault && c.Before != nil { // entries may keep ids of others; gpustack's part never contains any
			if menu[i], err = boot.WithoutOurs(c.Before, latestMeaning(entries, c.Name)); err != nil {
				return Plan{}, err
			}
		}
		if isOurs(c.Name) {
			menu[i].After = nil
		}
		if c.Name != kernelCmdline || c.Before == nil {
			continue
		}
		if before, known, err := n.original(entries, c.Name); err != nil {
			return Plan{}, err
		} else if known && before == nil {
			menu[i].After = nil // made by host prepare
		}
	}
	modules, err := n.edited.RemoveAll(modprobe.PlanFiles()...)
	if err != nil {
		return Plan{}, err
	}
	early, err := initramfs.Early{}.Plan(n.edited, "") // removes the hook of every generator
	if err != nil {
		return Plan{}, err
	}
	p.Menu = len(menu.Pending()) > 0
	p.Initramfs = len(modules.Pending())+len(early.Pending()) > 0
	p.addPrograms(n)
	unit, err := n.unitPlan(nil)
	if err != nil {
		return Plan{}, err
	}
	contract, err := n.planContract(nil)
	p.Files = append(slices.Concat(menu, modules, early, unit), contract)
	return p, err
}

// latestMeaning returns the meaning of the latest change of a file, nil if there is none.
func latestMeaning(entries []change.Entry, name string) *edit.Meaning {
	for _, e := range slices.Backward(entries) {
		if i := slices.IndexFunc(e.Files, func(f change.File) bool { return f.Name == name }); i >= 0 && changedFiles(e) {
			return e.Files[i].Meaning
		}
	}
	return nil
}

// withoutArguments returns the change that removes the kernel arguments which host prepare has
// added. GRUB's configuration without gpustack's file has none of them. Boot entries contain them
// among other arguments: the journal shows which ones were there before. Where it does not, they
// are left in place, with a warning.
func (n node) withoutArguments(entries []change.Entry, whole bool) (boot.Want, []string, error) {
	if !n.mixed() {
		return boot.Want{}, nil, nil
	}
	before, known, err := n.argumentsBefore(entries)
	if err != nil {
		return boot.Want{}, nil, err
	}
	if !known && whole { // host prepare changed no entry, so every argument was there before
		before, known = n.Loader.Args(), true
	}
	w := n.withoutIDs(before)
	var left []string
	for _, arg := range n.Recorded.Arguments {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case strings.HasSuffix(name, ".ids"):
			continue // removed by withoutIDs
		case !known:
			if len(n.Loader.Args().Lacking([]string{arg})) == 0 {
				left = append(left, arg)
			}
			continue
		case len(before.Lacking([]string{arg})) == 0:
			continue // was there before
		}
		w.Absent = append(w.Absent, arg)
		for _, have := range n.Loader.Args().Values(name) {
			if have != value && slices.Contains(strings.Split(have, ","), value) {
				left = append(left, name+"="+have)
			}
		}
	}
	if left == nil {
		return w, nil, nil
	}
	args := strings.Join(left, " ")
	warning := "kernel arguments left in place, since the journal does not show whether they were there before: " + args
	if _, ok := n.Loader.(boot.BLS); ok {
		warning += fmt.Sprintf("; to remove them: grubby --update-kernel=ALL --remove-args=%q", args)
	}
	return w, []string{warning}, nil
}

// withoutIDs returns the change that removes the ids which host prepare has added to boot entries.
// Ids that were there before remain, and so do ids of others, unless they were copied there from
// modprobe's configuration, whose own lines are effective again.
func (n node) withoutIDs(before boot.Args) boot.Want {
	var w boot.Want
	for _, driver := range []string{machine.VFIO, machine.Stub} {
		name := driver + ".ids="
		if !slices.ContainsFunc(n.Recorded.Arguments, func(arg string) bool { return strings.HasPrefix(arg, name) }) {
			continue
		}
		foreign := modprobe.AddIDs(nil, n.foreignIDs(driver)...)
		copied := modprobe.AddIDs(nil, values(n.Conf.Options(driver, "ids"))...)
		there := strings.Split(strings.Join(before.Values(driver+".ids"), ","), ",")
		kept := modprobe.AddIDs(nil, n.Loader.Args().Values(driver+".ids")...)
		n.setIDs(&w, driver, slices.DeleteFunc(kept, func(id string) bool {
			return !slices.Contains(there, id) && (!slices.Contains(foreign, id) || slices.Contains(copied, id))
		}))
	}
	return w
}

// argumentsBefore returns the kernel arguments that boot entries had before the journal's entries
// changed them, as far as the journal shows them. GRUB rewrites its environment at each boot, and
// boot entries are removed with their kernels: then the lines that the first change replaced are
// used.
func (n node) argumentsBefore(entries []change.Entry) (before boot.Args, known bool, err error) {
	names := map[string]bool{}
	for _, e := range entries {
		if !changedFiles(e) {
			continue
		}
		for _, f := range e.Files {
			if names[f.Name] || !isBootFile(f.Name) {
				continue
			}
			names[f.Name] = true
			content, ok, err := n.original(entries, f.Name)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				content = f.Replaced()
			}
			if content == nil {
				continue
			}
			known = true
			for line := range strings.Lines(string(content)) {
				if !strings.HasPrefix(line, "#") {
					before = append(before, boot.ParseArgs(strings.TrimPrefix(line, "kernelopts="))...)
				}
			}
		}
	}
	return before, known, nil
}

// sincePrepared returns the journal entries from the one that created the record: other changes
// before it, as after an earlier --none, preceded host prepare. Without that entry it returns all
// entries and false. The file may have existed for containers only, before and after.
func sincePrepared(entries []change.Entry) (since []change.Entry, whole bool) {
	first, found, recorded := 0, false, false
	for i, e := range entries {
		at := slices.IndexFunc(e.Files, func(f change.File) bool { return f.Name == machine.ContractFile })
		if at < 0 || !changedFiles(e) || !machine.ChangesGuests(e) {
			continue
		}
		f := e.Files[at]
		if f.Before == nil || !recorded {
			first, found = i, true
		}
		recorded = f.After != nil && !e.Topic().None
	}
	return entries[first:], found
}

// changedFiles reports whether an entry changed files and is not undone.
func changedFiles(e change.Entry) bool {
	return e.Changes == change.KindFiles && e.Status != change.Undone
}

// original returns the content of a file before the first entry that changed it, nil if the file
// did not exist. known is false if the file was changed outside gpustack since.
func (n node) original(entries []change.Entry, name string) (content []byte, known bool, err error) {
	now, err := n.edited.Read(name)
	if err != nil {
		return nil, false, err
	}
	for _, e := range slices.Backward(entries) {
		if !changedFiles(e) {
			continue
		}
		for _, f := range e.Files {
			if f.Name != name {
				continue
			}
			if now, known = f.Previous(now); !known {
				return nil, false, nil
			}
		}
	}
	if now != nil {
		content = append([]byte{}, now.Content...)
	}
	return content, known, nil
}
