package boot

import (
	"path"
	"slices"
	"strings"

	"gpustack/host/edit"
)

// Older returns the meaning of the change of a file by host prepare that was recorded without it,
// as releases before 2026-11 did, or nil if it cannot be determined. replaced are the lines that
// were replaced, length is that of the text that replaced them, and wanted are the kernel
// arguments of the record that host prepare wrote with it.
//
// The lines contain the arguments from before. Those from after follow from them and from the
// wanted ones, and have the recorded length.
func Older(file string, replaced []byte, length int, wanted []string) *edit.Meaning {
	want := wantOf(wanted)
	switch {
	case file == grubEnv:
		for line := range strings.Lines(string(replaced)) {
			if value, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), kernelOpts+"="); ok {
				before := ParseArgs(envQuoted().ReplaceAllString(value, "$1"))
				return older(meaningEnv, before, want.Change(before).Apply(before))
			}
		}
	case file == kernelCmdline && len(replaced) > 0:
		before := cmdlineArgs(replaced)
		after := editCmdline(replaced, want.Change(before))
		if len(after) == length {
			return older(meaningCmdline, before, cmdlineArgs(after))
		}
	case path.Base(path.Dir(file)) == "entries" && path.Ext(file) == ".conf":
		e := parseEntry(file, &edit.File{Content: replaced})
		before := ParseArgs(e.all("options"))
		after := parseEntry(file, &edit.File{Content: []byte(e.edit(want.Change(before)))})
		if len(strings.Join(after.lines, "")) == length {
			return older(meaningEntry, before, ParseArgs(after.all("options")))
		}
	case file == GrubDefault && len(replaced) == 0:
		return olderDefaults(length, wanted)
	}
	return nil
}

func older(grammar string, before, after Args) *edit.Meaning {
	return &edit.Meaning{Grammar: grammar, Values: values(before, after)}
}

// olderHeader is the first line of the part as these releases wrote it.
const olderHeader = "# Made by gpustack host prepare. \"gpustack undo\" takes it back.\n"

// olderDefaults returns the meaning of the part that host prepare has appended to
// /etc/default/grub: the only one with some of the wanted arguments that has the length.
func olderDefaults(length int, wanted []string) *edit.Meaning {
	if len(wanted) > 8 { // host prepare writes four at most
		return nil
	}
	var found *edit.Meaning
	for _, variable := range []string{grubAlways, grubNormal} {
		for subset := 1; subset < 1<<len(wanted); subset++ {
			var add Args
			for i, arg := range wanted {
				if subset&(1<<i) != 0 {
					add = append(add, arg)
				}
			}
			text, err := Grub{variable: variable}.text(Change{Add: add})
			_, text, _ = strings.Cut(text, "\n")
			text = olderHeader + text
			if part := withBlock("", text); err != nil || len(part) != length {
				continue
			}
			if found != nil {
				return nil
			}
			found = older(meaningDefaults, nil, add)
			found.Whole = partMeaning(nil, []string{withBlock("", text)}).Whole
		}
	}
	return found
}

// wantOf returns what the arguments of a record ask for.
func wantOf(wanted []string) Want {
	vendor := "amd"
	for _, arg := range wanted {
		switch name(arg) {
		case "intel_iommu":
			vendor = "intel"
		case "iommu.passthrough":
			vendor = "arm"
		}
	}
	w, _ := WantIOMMU(vendor)
	for _, arg := range wanted {
		flag := func(f Flag) bool { return f.Param+"="+f.Option == arg }
		if !slices.ContainsFunc(w.Flags, flag) && !slices.Contains(w.Exact, arg) {
			w.Exact = append(w.Exact, arg)
		}
	}
	return w
}
