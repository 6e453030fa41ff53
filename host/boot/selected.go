package boot

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
)

// menuItem is an entry or a submenu of GRUB's menu.
type menuItem struct {
	title, id string
	submenu   bool
	items     []*menuItem // of a submenu
	first     int         // index of the entry's first kernel among the entries of the menu, or -1
}

// parseMenu returns the kernels of a menu, its items (GNU GRUB manual, "menuentry", "submenu"), and
// the commands outside items, which run before a person or the default selects one.
func parseMenu(file, text string) (entries []Entry, items []*menuItem, commands [][]string) {
	top := &menuItem{submenu: true}
	open := []*menuItem{top} // nil for other blocks, as those of functions
	for line := range strings.Lines(text) {
		words := menuWords(line)
		current := open[len(open)-1]
		if len(words) > 0 && words[0] != "}" && !slices.ContainsFunc(open[1:], func(i *menuItem) bool { return i != nil }) {
			commands = append(commands, words)
		}
		switch {
		case len(words) == 0:
		case words[len(words)-1] == "{":
			item := newItem(words)
			if item != nil && current != nil && current.submenu {
				current.items = append(current.items, item)
			}
			open = append(open, item)
		case words[0] == "}" && len(open) > 1:
			open = open[:len(open)-1]
		}
		if e, ok := kernelLine(file, line); ok {
			if current != nil && !current.submenu && current.first < 0 {
				current.first = len(entries)
			}
			entries = append(entries, e)
		}
	}
	return entries, top.items, commands
}

// kernelLine returns the entry of a line that loads a kernel (GNU GRUB manual, "linux"; Debian's
// and Fedora's variants for EFI and BIOS).
func kernelLine(file, line string) (Entry, bool) {
	words := ParseArgs(line)
	if len(words) < 2 || !slices.Contains([]string{"linux", "linuxefi", "linux16"}, words[0]) {
		return Entry{}, false
	}
	recovery := slices.Contains(words, "single") || slices.Contains(words, "recovery")
	return Entry{File: file, Kernel: words[1], Args: words[2:], Recovery: recovery}, true
}

// newItem returns the item that a line begins, or nil.
func newItem(words []string) *menuItem {
	if len(words) < 2 || words[0] != "menuentry" && words[0] != "submenu" {
		return nil
	}
	item := &menuItem{title: words[1], submenu: words[0] == "submenu", first: -1}
	for i, word := range words[:len(words)-1] {
		id, ok := strings.CutPrefix(word, "--id=")
		switch {
		case ok:
			item.id = id
		case word == "--id" || word == "$menuentry_id_option" || word == "${menuentry_id_option}":
			item.id = words[i+1]
		}
	}
	return item
}

// menuWords splits a line of a menu at white space outside quotes (GNU GRUB manual, "Quoting").
func menuWords(line string) []string {
	var words []string
	var word strings.Builder
	quote, inside := byte(0), false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != '\'' && c == '\\' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
			inside = true
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inside = c, true
		case quote == 0 && isSpace(c):
			if inside {
				words = append(words, word.String())
			}
			word.Reset()
			inside = false
		case quote == 0 && c == '#' && !inside:
			return words
		default:
			word.WriteByte(c)
			inside = true
		}
	}
	if inside {
		words = append(words, word.String())
	}
	return words
}

// nextEntry is the variable that selects an entry for one boot (grub-reboot); the menu of
// grub-mkconfig selects it before its default (util/grub.d/00_header.in).
const nextEntry = "next_entry"

// menuDefault matches the default that a menu sets.
var menuDefault = host.LazyRegexp(`(?m)^[ \t]*set[ \t]+default=(.*)$`)

// selection returns what a menu selects: an index, a title or an id, of submenus too, separated by
// ">". Without a default it is "", which selects the first item.
func selection(text string, env environment) string {
	if next, _ := env.get(nextEntry); next != "" && strings.Contains(text, nextEntry) {
		return next
	}
	selected := ""
	for _, m := range menuDefault().FindAllStringSubmatch(text, -1) {
		if words := menuWords(m[1]); len(words) > 0 && !strings.Contains(words[0], nextEntry) {
			selected = words[0]
		}
	}
	return env.expand(selected)
}

// pick returns the entry that a selection names as GRUB finds it (grub-core/normal/menu.c,
// get_entry_number): what is not found selects the first item, and so does a submenu alone. It
// returns nil if there is none.
func pick(items []*menuItem, selection string) *menuItem {
	if len(items) == 0 {
		return nil
	}
	first, rest := cutSelection(selection)
	at := slices.IndexFunc(items, func(i *menuItem) bool { return i.title == first || i.id == first && first != "" })
	if n, err := strconv.Atoi(first); err == nil {
		at = n
	}
	if at < 0 || at >= len(items) {
		at = 0
	}
	if items[at].submenu {
		return pick(items[at].items, rest)
	}
	return items[at]
}

// cutSelection returns the part of a selection before the first ">", and the rest. ">>" is the
// character itself.
func cutSelection(selection string) (first, rest string) {
	var b strings.Builder
	for i := 0; i < len(selection); i++ {
		if selection[i] == '>' {
			if !strings.HasPrefix(selection[i+1:], ">") {
				return b.String(), selection[i+1:]
			}
			i++
		}
		b.WriteByte(selection[i])
	}
	return b.String(), ""
}

// customMenu has entries of the administrator, which follow those of the menu in the same folder
// (util/grub.d/41_custom.in).
const customMenu = "custom.cfg"

// leavesDefault matches commands that leave the default as it is.
var leavesDefault = host.LazyRegexp(`^(?:(?:menuentry|submenu) .*\{|(?:set )?(?:timeout|superusers|GRUB2_PASSWORD)=[^;]*|` +
	`(?:insmod|password|password_pbkdf2) [^;]*)$`)

// unsure returns an entry with Unsure if a menu with these commands reads a file that may set another
// default, else none (GNU GRUB manual, "source", "configfile"). dir is the folder of the menu.
func unsure(root host.Root, menu, dir string, commands [][]string) ([]Entry, error) {
	known := strings.NewReplacer("${config_directory}", dir, "$config_directory", dir, "${prefix}", dir, "$prefix", dir)
	for _, words := range commands {
		if len(words) < 2 || !slices.Contains([]string{"source", ".", "configfile"}, words[0]) {
			continue
		}
		name := known.Replace(words[1])
		if strings.ContainsAny(name, "$(") {
			return []Entry{{File: menu, Unsure: true}}, nil
		}
		for _, place := range []string{name, path.Join("/boot", name)} {
			text, err := readIfPresent(root, place)
			if err != nil {
				return nil, err
			}
			_, _, more := parseMenu(place, text)
			if slices.ContainsFunc(more, func(words []string) bool { return !leavesDefault().MatchString(strings.Join(words, " ")) }) {
				return []Entry{{File: place, Unsure: true}}, nil
			}
		}
	}
	return nil, nil
}

// readSelected returns the entries of a menu, of which one has Boots: the entry that GRUB selects
// by itself, which may be one in custom.cfg, or one without a kernel of Linux. The last one has Unsure
// if that is not certain.
func readSelected(root host.Root, menu string) ([]Entry, error) {
	text, err := readIfPresent(root, menu)
	if err != nil {
		return nil, err
	}
	entries, items, commands := parseMenu(menu, text)
	dir, err := menuDir(root, menu)
	if err != nil {
		return nil, err
	}
	env, err := menuEnvironment(root, dir)
	if err != nil {
		return nil, err
	}
	ours := len(entries)
	if other, err := unsure(root, menu, dir, commands); err != nil || other != nil {
		return append(entries, other...), err
	}
	if custom := path.Join(dir, customMenu); strings.Contains(text, customMenu) {
		more, err := readIfPresent(root, custom)
		if err != nil {
			return nil, err
		}
		added, addedItems, _ := parseMenu(custom, more)
		for _, item := range addedItems {
			item.shift(ours)
		}
		entries, items = append(entries, added...), append(items, addedItems...)
	}
	item := pick(items, selection(text, env))
	switch {
	case item == nil:
		return entries[:ours], nil
	case item.first < 0:
		return append(entries[:ours], Entry{File: menu, Kernel: "'" + item.title + "'", Boots: true}), nil
	}
	selected := entries[item.first]
	selected.Boots = true
	if item.first >= ours {
		return append(entries[:ours], selected), nil
	}
	entries[item.first] = selected
	return entries[:ours], nil
}

// shift adds n to the index of each entry.
func (i *menuItem) shift(n int) {
	if i.first >= 0 {
		i.first += n
	}
	for _, item := range i.items {
		item.shift(n)
	}
}

// menuDir returns the folder that a menu calls $prefix, which menuGrub2EFI leads to.
func menuDir(root host.Root, menu string) (string, error) {
	file, err := root.Real(menu)
	return path.Dir(file), err
}

// menuEnvironment returns the environment block that a menu in a folder loads.
func menuEnvironment(root host.Root, dir string) (environment, error) {
	name := path.Join(dir, "grubenv")
	f, err := edit.Read(root, name)
	if err != nil || f == nil || len(f.Content) == 0 { // the menu loads it if it is not empty
		return environment{}, err
	}
	return parseEnvironment(name, f)
}

// readIfPresent returns the text of a file, or "".
func readIfPresent(root host.Root, name string) (string, error) {
	data, err := host.IfPresent(root.ReadFile(name))
	return string(data), err
}
