package main

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// pathsOf is what the shell completes itself.
type pathsOf string

const (
	noPaths   pathsOf = ""
	filePaths pathsOf = "files"
	dirPaths  pathsOf = "dirs"
)

// completer completes the values of flags and arguments. What they are is in the help: the name of
// the value, such as ADDRESS.
type completer struct {
	ctx  context.Context
	u    *term.UI
	line *commandLine
	next string // what is typed of the value
	// machine is the root without --root.
	machine string
}

// valueOffers are the completions of values by the name that the help gives them. Names that help
// with no completion are in withoutOffers.
var valueOffers = map[string]func(*completer) []offer{
	"ADDRESS":      (*completer).addresses,
	"ALIAS":        (*completer).newAliases,
	"ALIAS:COUNT":  (*completer).aliasCounts,
	"CLASS":        (*completer).classes,
	"CLOUD":        (*completer).clouds,
	"COMMAND":      (*completer).commands,
	"DEVICE":       (*completer).devices,
	"ENTRY":        (*completer).entries,
	"RELEASE":      (*completer).releases,
	"VENDOR":       (*completer).vendors,
	"remove-alias": (*completer).aliases, // a flag whose value is a NAME
}

// withoutOffers are the names of values that only the operator or a service on the network knows.
var withoutOffers = []string{"CELL", "FLAVOR", "GUID", "HCA", "HOST", "IMAGE", "KEY=VALUE", "KIND", "NAME", "NETWORK", "NUMBER", "PROJECT", "REGION", "SIZE", "TEXT", "TIME", "TOKEN",
	"URL", "UUID", "VERSION", "ZONE"}

// ofFlag completes the value of a flag.
func (v *completer) ofFlag(flag cli.Flag) ([]offer, pathsOf) {
	if choice, ok := flag.(choiceFlag); ok {
		return wordOffers(choice.words...), noPaths
	}
	if p, ok := flag.(pathFlag); ok && p.paths().kind == machineFile && v.line.last("root") != "" {
		return v.filesBelow(), noPaths
	}
	if offers := valueOffers[flag.Names()[0]]; offers != nil {
		return offers(v), noPaths
	}
	if isRoleFiles(flag) {
		return v.roles(), filePaths
	}
	return v.named(valueName(flag))
}

// isRoleFiles reports whether a value of a flag is [ROLE=]FILE[,FILE].
func isRoleFiles(flag cli.Flag) bool { return strings.HasPrefix(valueName(flag), "[ROLE=]FILE") }

// roles offers what may stand before a file.
func (v *completer) roles() []offer {
	if v.next == "" || strings.Contains(v.next, "=") {
		return nil // most values begin with the name of a file
	}
	return []offer{
		{string(nova.Controller) + "=", "files of a controller"}, {string(nova.Compute) + "=", "files of a compute node"},
		{string(nova.All) + "=", "files of a machine that is both"},
	}
}

// ofArgument completes an argument of the command.
func (v *completer) ofArgument() ([]offer, pathsOf) {
	if v.line.command == nil {
		return nil, noPaths
	}
	names := strings.Fields(v.line.command.ArgsUsage)
	n := len(v.line.arguments)
	if len(names) == 1 && names[0] == "[COMMAND]" {
		n = 0 // all its words are one argument
	}
	if n >= len(names) {
		return nil, noPaths
	}
	name := strings.Trim(names[n], "[].,")
	if name == strings.ToLower(name) { // words to choose from
		return wordOffers(strings.Split(name, "|")...), noPaths
	}
	name, _, _ = strings.Cut(name, "[")
	return v.named(name)
}

// named completes a value by the name that the help gives it.
func (v *completer) named(name string) ([]offer, pathsOf) {
	switch offers := valueOffers[name]; {
	case offers != nil:
		return offers(v), noPaths
	case strings.Contains(name, "FILE"):
		return nil, filePaths
	case strings.Contains(name, "DIR"):
		return nil, dirPaths
	}
	return nil, noPaths
}

// valueName returns the name of a flag's value in the help.
func valueName(flag cli.Flag) string {
	spelling, _ := describeFlag(flag)
	return spelling[strings.LastIndex(spelling, " ")+1:]
}

func wordOffers(words ...string) (offers []offer) {
	for _, word := range words {
		offers = append(offers, offer{word, ""})
	}
	return offers
}

// dir returns the value of --root.
func (v *completer) dir() string { return cmp.Or(v.line.last("root"), v.machine) }

// root returns the machine that --root names, and false if there is none.
func (v *completer) root() (host.Root, bool) {
	root, err := host.NewRoot(v.dir())
	return root, err == nil
}

// functions returns the PCI functions of the machine, without bridges. It returns none while a
// read could be blocked in the kernel.
func (v *completer) functions() pci.Devices {
	root, ok := v.root()
	if !ok || driversSettled(v.ctx, v.u, root) != nil {
		return nil
	}
	all, _, err := pci.Scan(root, pci.Options{Needs: func([]pci.Device) func(*pci.Device) bool { return func(*pci.Device) bool { return false } }})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(d pci.Device) bool { return d.IsBridge() && !d.IsNVSwitch() })
}

// addresses offers the addresses of functions, without the domain 0000 if it is typed so.
func (v *completer) addresses() (offers []offer) {
	functions := v.functions()
	for i := range functions {
		d := &functions[i]
		word := d.Address.String()
		if short, ok := strings.CutPrefix(word, "0000:"); ok && v.next != "" && !strings.HasPrefix(word, v.next) {
			word = short
		}
		offers = append(offers, offer{word, strings.TrimSpace(ids(d) + " " + name(d))})
	}
	return offers
}

// devices offers addresses, and the products of GPUs.
func (v *completer) devices() []offer {
	offers := v.addresses()
	seen := map[string]bool{}
	functions := v.functions()
	for i := range functions {
		d := &functions[i]
		if d.IsGPU() && d.VendorID != nil && d.ProductID != nil && !seen[ids(d)] {
			seen[ids(d)] = true
			offers = append(offers, offer{ids(d), "all " + name(d)})
		}
	}
	return offers
}

func (v *completer) vendors() (offers []offer) {
	seen := map[string]bool{}
	functions := v.functions()
	for i := range functions {
		if id := functions[i].VendorID; id != nil && !seen[id.String()] {
			seen[id.String()] = true
			offers = append(offers, offer{id.String(), text(functions[i].Vendor)})
		}
	}
	return offers
}

func (v *completer) classes() (offers []offer) {
	seen := map[string]bool{}
	functions := v.functions()
	for i := range functions {
		if class := functions[i].Class; class != nil && !seen[class.String()] {
			seen[class.String()] = true
			offers = append(offers, offer{class.String(), text(functions[i].ClassName)})
		}
	}
	return offers
}

// newAliases offers an alias for each product of GPUs of the machine.
func (v *completer) newAliases() (offers []offer) {
	seen := map[string]bool{}
	functions := v.functions()
	for i := range functions {
		d := &functions[i]
		if d.AliasHint != nil && !seen[ids(d)] {
			seen[ids(d)] = true
			offers = append(offers, offer{*d.AliasHint + "=" + ids(d), name(d)})
		}
	}
	return offers
}

// aliasNames returns the aliases in the machine's nova.conf, sorted.
func (v *completer) aliasNames() []string {
	root, ok := v.root()
	if !ok {
		return nil
	}
	named, _ := nova.OfferedAliases(root) // what cannot be read has no completions
	names := map[string]bool{}
	for _, n := range named {
		names[n.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func (v *completer) aliases() []offer { return wordOffers(v.aliasNames()...) }

// aliasCounts offers aliases with numbers of devices, also after others.
func (v *completer) aliasCounts() (offers []offer) {
	before := v.next[:strings.LastIndex(v.next, ",")+1]
	for _, name := range v.aliasNames() {
		for _, count := range []string{"1", "2", "4", "8"} {
			offers = append(offers, offer{before + name + ":" + count, ""})
		}
	}
	return offers
}

func (v *completer) clouds() []offer {
	names, err := cloud.Names()
	if err != nil {
		return nil
	}
	return wordOffers(names...)
}

func (v *completer) releases() []offer {
	names := nova.ReleaseNames()
	slices.Reverse(names) // most clouds have a new one
	return append([]offer{{"auto", "the installed release"}}, wordOffers(names...)...)
}

// commands offers the next word of a command of the manual.
func (v *completer) commands() []offer {
	tree := v.line.app.Commands
	for _, word := range v.line.arguments {
		i := slices.IndexFunc(tree, func(c *cli.Command) bool { return c.Name == word })
		if i < 0 {
			return nil
		}
		tree = tree[i].Subcommands
	}
	return commandOffers(tree)
}

// entries offers the entries of the journal that the command accepts, the latest first.
func (v *completer) entries() (offers []offer) {
	all, err := stores(v.dir())
	if err != nil {
		return nil
	}
	for _, store := range all {
		entries, err := store.List()
		if err != nil {
			continue
		}
		for _, e := range slices.Backward(entries) {
			accepts := true
			switch v.line.command.Name {
			case "undo":
				accepts = e.Status != change.Undone
			case "repair-migration":
				accepts = e.Kind == change.KindRows && e.IsOpen()
			}
			if accepts {
				offers = append(offers, offer{number(&e.ID), string(e.Status) + " " + e.Started.Format("2006-01-02") + ": " + e.Command})
			}
		}
	}
	return offers
}

// filesBelow offers files of the machine below --root, which the shell would look for on its own
// machine.
func (v *completer) filesBelow() (offers []offer) {
	if v.next == "" {
		return []offer{{"/", ""}}
	}
	root, ok := v.root()
	dir := v.next[:strings.LastIndex(v.next, "/")+1]
	if !ok || !path.IsAbs(dir) {
		return nil
	}
	names, err := root.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, name := range names {
		word := dir + name
		if _, err := root.ReadDir(word); err == nil {
			word += "/"
		}
		offers = append(offers, offer{word, ""})
	}
	return offers
}
