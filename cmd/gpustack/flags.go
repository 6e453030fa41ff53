package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/offers"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Formats of output for people and for graphviz.
const (
	formatTree = "tree"
	formatDot  = "dot"
)

// reading returns the flags of a command that reads a machine, with its own.
func reading(own ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{args.RootFlag(), args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML)}, own...)
}

// changing returns the flags of a command that changes a machine, with its own.
func changing(own ...cli.Flag) []cli.Flag {
	diff := &cli.BoolFlag{Name: "diff", Usage: "show the plan in full: each file as a diff, each write to sysfs"}
	return append(append(reading(own...), diff), args.PlanFlags()...)
}

// changingCloud returns the flags of a command that changes a cloud, with its own.
func changingCloud(own ...cli.Flag) []cli.Flag {
	return slices.Concat(reading(own...)[1:], args.PlanFlags(), cloudFlags(timeoutOfCloud))
}

// belowRoot is what --conf names in every command.
const belowRoot = "`FILE` below the root"

// novaConfFlag returns the flag for the nova.conf of this machine. usage says what is done to it.
func novaConfFlag(usage string) cli.Flag {
	return args.Path(&cli.StringFlag{Name: "conf", Value: nova.DefaultConf, Usage: usage + " " + belowRoot}, args.PathRules{Below: true})
}

// confsFlag returns the flag for configuration files of several machines, see parseConfs. usage
// says what is done to them, more what holds without them.
func confsFlag(usage, more string) cli.Flag {
	usage += " `[ROLE=]FILE[,FILE]` below the root; relative: a copy (repeatable" + more + ")"
	return args.Paths(&cli.StringSliceFlag{Name: "conf", Usage: usage}, args.PathRules{Below: true, Stdin: true, Files: func(value string) []string {
		side, _ := nova.ParseSideFiles(value, "") // parseConfs reports its error
		return side.Names
	}})
}

func releaseFlag() cli.Flag {
	return &cli.StringFlag{Name: "release", Value: "auto", Usage: "Nova's `RELEASE`: mitaka to 2026.2, or auto for the installed one"}
}

func inventoryFlag(usage string) cli.Flag {
	return args.DocumentsFlag("inventory", usage)
}

func nvswitchFlag() cli.Flag {
	return args.Choice(&cli.StringFlag{
		Name: "nvswitch", Usage: "which `SIDE` gets the NVSwitches of the GPUs: host or guest (default: as recorded)",
	}, []string{"", string(machine.SwitchesToHost), string(machine.SwitchesToGuest)})
}

// keyUI is where the metadata of the application have the terminal.
const keyUI = "ui"

// uiOf returns the terminal of a command, for what its options read and print later.
func uiOf(c *cli.Context) *term.UI { return c.App.Metadata[keyUI].(*term.UI) }

// documentsOf returns the documents at the paths that a flag names.
func documentsOf(c *cli.Context, flag string) document.Source {
	return documentsAt(uiOf(c), c.StringSlice(flag)...)
}

// documentsAt returns the documents at some paths.
func documentsAt(u *term.UI, paths ...string) document.Source {
	return document.Source{Paths: paths, Stdin: u.In, Warn: func(warning string) { u.Warn(warning) }}
}

// parseCommon reads the flags that many commands have.
func parseCommon(c *cli.Context, f *args.Faults) given {
	has := func(flag string) bool { return args.FindFlag(c.Command.Flags, flag) != nil }
	o := given{dryRun: c.Bool("dry-run"), yes: c.Bool("yes"), quiet: c.Bool("quiet"), full: c.Bool("diff"), command: args.Recorded(c)}
	if has("output") {
		o.format = f.Choice(c, "output")
	}
	if has("root") {
		o.root = f.Root(c)
	}
	if has("os-cloud") {
		o.cloud = parseCloud(c, f)
	}
	return o
}

// oneArgument returns what reads the only argument of a command, which has this name.
func oneArgument(name string) func(*cli.Context, *args.Faults) string {
	return func(c *cli.Context, f *args.Faults) string { return f.Arguments(c, name)[0] }
}

// writes reports whether a command changes something once it is confirmed.
func writes(c *cli.Context) bool {
	return !c.Bool("dry-run") && c.String("render") == "" && (args.FindFlag(c.Command.Flags, "apply") == nil || c.Bool("apply"))
}

// The help of --timeout of commands that connect to a cloud, and to databases too.
const (
	timeoutOfCloud     = "wait `TIME` for each answer, including retries"
	timeoutOfDatabases = "wait `TIME` for each answer of the cloud and the first answer of each database"
)

// cloudFlags returns the flags of every command that connects to a cloud, named as in the openstack
// command. timeout is the help of --timeout.
func cloudFlags(timeout string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "os-cloud", Usage: "use `CLOUD` of clouds.yaml (default: OS_CLOUD, or OS_AUTH_URL and the other OS_ variables)"},
		&cli.StringFlag{Name: "os-region-name", Usage: "use `REGION` of the cloud"},
		args.Path(&cli.StringFlag{Name: "os-cacert", Usage: "trust the certificates in `FILE`"}, args.PathRules{}),
		&cli.BoolFlag{Name: "insecure", Usage: "skip TLS certificate verification"},
		answerTimeoutFlag(timeout),
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log each API request"},
	}
}

func answerTimeoutFlag(usage string) cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: usage}
}

// cloudHelp is part of the description of each command with cloudFlags.
const cloudHelp = `The cloud is selected by --os-cloud or OS_CLOUD from clouds.yaml and secure.yaml in the
usual folders, or by the OS_ variables of an openrc file (OS_AUTH_URL and others).`

// parseCloud reads the flags of a cloud. Its warnings are printed, and with --verbose its requests.
func parseCloud(c *cli.Context, f *args.Faults) cloud.Options {
	u := uiOf(c)
	o := cloud.Options{
		Cloud: c.String("os-cloud"), Region: c.String("os-region-name"), CACert: c.String("os-cacert"),
		Insecure: c.Bool("insecure"), Timeout: f.Positive(c, "timeout"), Warn: func(warning string) { u.Warn(warning) },
	}
	if c.Bool("verbose") {
		o.Trace = func(line string) { u.Note("%s", line) }
	}
	return o
}

// recordedCloud returns what the journal keeps of the cloud, nil if the undo has to be told.
func recordedCloud(c cloud.Options) *change.Cloud {
	name := cmp.Or(c.Cloud, os.Getenv("OS_CLOUD"))
	if name == "" && c.Region == "" && c.CACert == "" && !c.Insecure {
		return nil
	}
	region, cacert := c.Region, c.CACert
	if name != "" { // variables that count beside clouds.yaml
		region, cacert = cmp.Or(region, os.Getenv("OS_REGION_NAME")), cmp.Or(cacert, os.Getenv("OS_CACERT"))
	}
	if absolute, err := filepath.Abs(cacert); err == nil && cacert != "" {
		cacert = absolute
	}
	return &change.Cloud{Name: name, Region: region, CACert: cacert, Insecure: c.Insecure}
}

// orRecorded returns the options, and for those that are not given those of the entry that is
// undone, unless the options choose another cloud.
func orRecorded(c cloud.Options, origin change.Origin) cloud.Options {
	if origin.Cloud == nil || c.Cloud != "" {
		return c
	}
	is := origin.Cloud
	c.Cloud, c.Region, c.CACert, c.Insecure = is.Name, cmp.Or(c.Region, is.Region), cmp.Or(c.CACert, is.CACert), c.Insecure || is.Insecure
	return c
}

// selectors returns the values of a flag that names functions or products.
func selectors(c *cli.Context, f *args.Faults, flag string) []pci.Selector {
	return args.Values(f, c, flag, func(value string) (pci.Selector, error) {
		s, err := pci.ParseSelector(value)
		return s, meaning(c, flag, value, err, true)
	}, nil)
}

// addresses returns the values of a flag that names functions.
func addresses(c *cli.Context, f *args.Faults, flag string) []pci.Address {
	return args.Values(f, c, flag, func(value string) (pci.Address, error) {
		return address(c, flag, value)
	}, nil)
}

// address returns one value of a flag that names functions.
func address(c *cli.Context, flag, value string) (pci.Address, error) {
	a, err := pci.ParseGiven(value)
	return a, meaning(c, flag, value, err, false)
}

// meaning adds to an error about a value, which names no function, the functions of the machine
// that match it, and the command line with those. products says that the flag accepts the ids of a
// product too.
func meaning(c *cli.Context, flag, value string, err error, products bool) error {
	if err == nil {
		return nil
	}
	if strings.ContainsAny(value, ",; ") {
		return host.WithHint(err, "repeat --"+flag+" for each device")
	}
	matching := offers.Functions(c.Context, c.String("root")).Like(value)
	if len(matching) == 0 {
		list := pci.ListFunctions()
		if flag == "hca" || strings.HasPrefix(c.Command.HelpName, "gpustack rdma ") {
			list = pci.ListAdapters()
		}
		return host.WithHint(err, list.Hint())
	}
	names := host.Map(matching, func(d pci.Device) string {
		return strings.TrimSpace(fmt.Sprintf("%s (%s %s)", d.Address, views.IDs(&d), views.Name(&d)))
	})
	if len(names) > 4 {
		names = append(names[:3], fmt.Sprintf("%d more", len(names)-3))
	}
	if flag == "allow" && len(matching) > 1 { // each one lifts a refusal: the user names it
		return host.WithHint(err, host.Textf("it matches %s", strings.Join(names, ", ")))
	}
	values := chosen(matching, flag, products)
	if _, repeatable := args.FindFlag(c.Command.Flags, flag).(*cli.StringSliceFlag); !repeatable {
		values = values[:1]
	}
	return host.WithHint(err, host.Textf("it matches %s: write --%s %s", strings.Join(names, ", "), flag, strings.Join(values, " --"+flag+" ")))
}

// chosen returns the values for functions that match: the GPUs among them or, for adapters, the
// network controllers, by their ids if they are of one product of several.
func chosen(matching pci.Devices, flag string, products bool) (values []string) {
	some := host.Filter(matching, func(d pci.Device) bool { return d.IsGPU() == (flag != "hca") && !d.IsVF() })
	if len(some) == 0 {
		some = matching
	}
	for i := range some {
		word := some[i].Address.String()
		if products && len(some) > 1 && views.IDs(&some[i]) == views.IDs(&some[0]) {
			word = views.IDs(&some[0]) // one word for all of a product
		}
		values = append(values, word)
	}
	return slices.Compact(values)
}

// vendors returns the values of a flag that names vendors.
func vendors(c *cli.Context, f *args.Faults) []pci.ID {
	return args.Values(f, c, "vendor", pci.ParseID, host.Plain("10de is NVIDIA, 1002 AMD, 8086 Intel, 15b3 Mellanox"))
}

// classes returns the values of a flag that names classes.
func classes(c *cli.Context, f *args.Faults) []pci.ClassPrefix {
	return args.Values(f, c, "class", pci.ParseClassPrefix, host.Plain("03 is display controllers, 0302 3D controllers, 02 network controllers, 01 disks"))
}
