package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/document"
)

// pathKind is where a path that is a flag's value is looked for. Every such flag is a pathFlag of
// one kind, apart from --root itself, and action checks the values for all commands.
type pathKind string

// The kinds of paths, as the table of paths names them.
const (
	// machineFile is a file of the machine: an absolute path below --root.
	machineFile pathKind = "file of the machine"
	// handedOver is a document that the operator hands over: an ordinary path of the machine where the
	// command runs, not below --root.
	handedOver pathKind = "document"
)

// pathFlag is a flag whose values are paths of a kind: onePath or manyPaths.
type pathFlag interface {
	cli.DocGenerationFlag
	paths() pathRules
}

type pathRules struct {
	kind  pathKind
	stdin bool                        // "-" is standard input
	files func(value string) []string // the paths in a value; nil if it is one path
}

func (r pathRules) paths() pathRules { return r }

type onePath struct {
	*cli.StringFlag
	pathRules
}

type manyPaths struct {
	*cli.StringSliceFlag
	pathRules
}

// paths checks the values of all flags of a command that are paths.
func (f *faults) paths(c *cli.Context) {
	var fromStdin []string
	for _, flag := range c.Command.Flags {
		flag, ok := flag.(pathFlag)
		if !ok {
			continue
		}
		rules, name := flag.paths(), flag.Names()[0]
		for _, value := range flagValues(c, name) {
			files := []string{value}
			if rules.files != nil {
				files = rules.files(value)
			}
			for _, file := range files {
				switch {
				case rules.kind == machineFile:
					f.machineFile(name, file, c.String("root"))
				case file == "":
					f.add(&usageError{"--" + name + ": " + strconv.Quote(value) + " has an empty path", f.seeHelp()})
				case file == document.Stdin && rules.stdin:
					fromStdin = append(fromStdin, "--"+name)
				case file == document.Stdin:
					f.add(&usageError{"--" + name + ": cannot read standard input", "give the path of a file; ./- is a file of that name"})
				}
			}
		}
	}
	if len(fromStdin) > 1 {
		f.add(&usageError{"standard input is given more than once: " + term.Listed(fromStdin, "and"), "give - once, and files or folders for the rest"})
	}
}

// documentsAt returns the documents at the paths that a flag of the kind handedOver names.
func documentsAt(u *term.UI, paths ...string) document.Source {
	return document.Source{Paths: paths, Stdin: u.In, Warn: func(warning string) { u.Warn(warning) }}
}

// flagValues returns the values of a flag that takes one or several.
func flagValues(c *cli.Context, name string) []string {
	if values := c.StringSlice(name); values != nil {
		return values
	}
	if !c.IsSet(name) {
		return nil
	}
	return []string{c.String(name)}
}

// machineFile adds an error unless a path is absolute. An absolute path that contains the root
// although there is no such file below the root is an error too: only the path below it was meant.
func (f *faults) machineFile(flag, name, root string) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return // host.NewRoot reports it
	}
	below := func(name string) string {
		rest, ok := strings.CutPrefix(name, strings.TrimSuffix(absolute, "/")+"/")
		if !ok {
			return ""
		}
		return path.Clean("/" + rest)
	}
	if !path.IsAbs(name) {
		meant := "/etc/nova/nova.conf"
		if here, err := filepath.Abs(name); err == nil && name != "" && below(here) != "" {
			meant = below(here)
		}
		f.add(&usageError{"--" + flag + ": " + strconv.Quote(name) + " is not absolute: it names a file of the machine, below --root",
			"write for example --" + flag + " " + meant})
		return
	}
	if meant := below(name); meant != "" && absolute != "/" {
		if _, err := os.Lstat(filepath.Join(absolute, name)); err != nil {
			f.add(&usageError{"--" + flag + ": " + name + " contains the path of --root, below which it is looked for",
				"write --" + flag + " " + meant})
		}
	}
}

// pathRow is a row of the table of paths.
type pathRow struct {
	kind     pathKind
	flags    string   // "--conf FILE"
	commands []string // "nova configure"
}

// pathsText explains the table of paths, in the manual and in docs/paths.md.
const pathsText = `A file of the machine is absolute and below --root: with --root /mnt/node, --conf
/etc/nova/nova.conf is /mnt/node/etc/nova/nova.conf. A document that the operator hands over is an
ordinary path of the machine where the command runs, relative to the working directory, whatever
--root is. The arguments of host snapshot and host unpack, and --root itself, are ordinary paths too.

Flags for inventories and guest reports also accept a folder, of which they read every file that ends
in .json, .jsonl, .yaml or .yml, and - for standard input. A file and standard input may hold several
documents: one a line (JSON lines), one after another, or separated by --- (YAML).`

// pathTable returns the flags that are paths, by kind, each with the commands that have it. The
// manual and docs/paths.md contain it.
func pathTable(a *cli.App) []pathRow {
	var rows []pathRow
	for command, c := range commands(a.Commands) {
		if c.Hidden {
			continue
		}
		for _, flag := range c.Flags {
			path, ok := flag.(pathFlag)
			if !ok {
				continue
			}
			kind := path.paths().kind
			spelling, _ := describeFlag(flag)
			i := slices.IndexFunc(rows, func(r pathRow) bool { return r.kind == kind && r.flags == spelling })
			if i < 0 {
				i, rows = len(rows), append(rows, pathRow{kind: kind, flags: spelling})
			}
			rows[i].commands = append(rows[i].commands, command)
		}
	}
	slices.SortStableFunc(rows, func(a, b pathRow) int {
		return strings.Compare(string(b.kind), string(a.kind)) // files of the machine first
	})
	return rows
}
