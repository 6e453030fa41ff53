package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
)

// oneMeaning are the flags that several commands describe in other words, each with the one meaning
// that it has in all of them.
var oneMeaning = map[string]string{
	"alias":        "the name by which flavors request a product: NAME=VENDOR:PRODUCT",
	"all":          "list everything that the command looks at, not only what matters",
	"allow":        "lift the refusal of one function",
	"api-database": "the URL of nova_api",
	"az":           "the availability zone of the guest",
	"conf":         "configuration files of Nova",
	"console":      "also print what may contain secrets: the console and the output of commands",
	"database":     "the URL of one cell's database",
	"device":       "the PCI functions that the command is about",
	"dry-run":      "change nothing",
	"flavor":       "the flavor of the guests",
	"guests":       "guest reports: documents of host guests",
	"hca":          "an RDMA adapter",
	"host":         "the compute node that the command is about",
	"if-present":   "succeed without a change on a machine that has none",
	"image":        "an image of the cloud, by name or id",
	"image-dir":    "the folder of a container's image",
	"inventory":    "what nodes have: documents of host scan",
	"libvirt":      "a version of libvirt",
	"live":         "also unbind drivers whose unbinding may hang",
	"max-age":      "the age from which a document counts as old",
	"none":         "the selection is empty: remove the record and every file",
	"output":       "the format of the output",
	"profile":      "what guests of an image are for: gpu or windows",
	"property":     "a property to set, KEY=VALUE",
	"qemu":         "a version of QEMU",
	"remove":       "remove a function from the record",
	"role":         "the role of the machine in Nova",
	"timeout":      "the time for each answer: of the cloud, a database or the kernel",
	"vendor":       "functions of a vendor",
	"wait":         "the time for what the command waits for in the end: a report, a test, freed devices",
}

// severalNames are the flags whose value has several names, with the reason.
var severalNames = map[string]string{
	"device": "where a product cannot be meant it is an ADDRESS",
	"remove": "as --device",
	"hca":    "nova configure needs to know how the adapter is offered, too",
	"flavor": "image check names it NAME",
	"conf":   "of several machines or of one",
}

// TestFlagsMeanOneThing: a flag has a value in all commands or in none, its value has one name, and
// a flag whose description differs between commands has one meaning, which is listed. Its default
// is printed once.
func TestFlagsMeanOneThing(t *testing.T) {
	type use struct {
		usages, values map[string][]string
	}
	uses := map[string]use{}
	for path, c := range args.Visible(newApp(testUI(t), []string{"gpustack"}).Commands) {
		for _, flag := range c.Flags {
			name := flag.Names()[0]
			if uses[name].usages == nil {
				uses[name] = use{map[string][]string{}, map[string][]string{}}
			}
			spelling, usage := args.DescribeFlag(flag)
			value := ""
			if args.TakesValue(flag) {
				value = args.ValueName(flag)
			}
			uses[name].usages[usage] = append(uses[name].usages[usage], path)
			uses[name].values[value] = append(uses[name].values[value], path)
			if strings.Count(usage, "(default") > 1 {
				t.Errorf("%s: %s: the default is printed twice: %s", path, spelling, usage)
			}
			if name == "dry-run" && !slices.Contains(flag.Names(), "n") {
				t.Errorf("%s: --dry-run has no -n", path)
			}
		}
	}
	for name, u := range uses {
		values := slices.Sorted(maps.Keys(u.values))
		if len(values) > 1 && values[0] == "" {
			t.Errorf("--%s has a value in some commands and none in others: %v", name, u.values)
		} else if len(values) > 1 && severalNames[name] == "" {
			t.Errorf("--%s: the value has several names: %v", name, u.values)
		}
		if several := len(u.usages) > 1; several && oneMeaning[name] == "" {
			t.Errorf("--%s: no meaning is listed: %v", name, u.usages)
		} else if !several && oneMeaning[name] != "" {
			t.Errorf("--%s is described in one way: remove it from the list", name)
		}
	}
	for name := range oneMeaning {
		if uses[name].usages == nil {
			t.Errorf("--%s is listed, and no command has it", name)
		}
	}
}

// TestOtherNames: a name that is answered with another one is no name of gpustack where it is
// answered, and leads to one.
func TestOtherNames(t *testing.T) {
	flags, verbs := args.OtherNames()
	commands := map[string]bool{}
	known := map[string]bool{}
	for _, c := range args.Visible(newApp(testUI(t), []string{"gpustack"}).Commands) {
		commands[c.Name] = true
		for _, flag := range c.Flags {
			for _, name := range flag.Names() {
				known[name] = true
			}
		}
	}
	for _, names := range flags {
		for _, words := range names {
			if name := strings.TrimLeft(words[0], "-"); !known[name] {
				t.Errorf("--%s is offered, and no command has it", name)
			}
		}
	}
	for verb, names := range verbs {
		for _, name := range names {
			if !commands[name] {
				t.Errorf("%s is answered with %s, which is no command", verb, name)
			}
		}
	}
}
