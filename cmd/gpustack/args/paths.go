package args

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/document"
)

// PathFlag is a flag whose values are paths: a flag of [Path] or [Paths], as every such flag is apart
// from --root itself. [Faults.Paths] checks the values for all commands.
type PathFlag interface {
	cli.DocGenerationFlag
	Rules() PathRules
}

// PathRules says what the values of a [PathFlag] are. Without Below they are documents that the
// operator hands over: ordinary paths of the machine where the command runs.
type PathRules struct {
	// Below says that a path is one of a file of the machine: absolute, and below --root. Where standard
	// input is accepted, so is a copy of another machine's file: an ordinary, relative path.
	Below bool
	Stdin bool                        // "-" is standard input
	Files func(value string) []string // the paths in a value; nil if it is one path
}

// Rules returns the rules.
func (r PathRules) Rules() PathRules { return r }

type onePath struct {
	*cli.StringFlag
	PathRules
}

type manyPaths struct {
	*cli.StringSliceFlag
	PathRules
}

// Path returns a flag whose value is a path.
func Path(flag *cli.StringFlag, rules PathRules) cli.Flag {
	return onePath{flag, rules}
}

// Paths returns a flag whose values are paths.
func Paths(flag *cli.StringSliceFlag, rules PathRules) cli.Flag {
	return manyPaths{flag, rules}
}

// Paths checks the values of all flags of a command that are paths.
func (f *Faults) Paths(c *cli.Context) {
	var fromStdin []string
	for _, flag := range c.Command.Flags {
		flag, ok := flag.(PathFlag)
		if !ok {
			continue
		}
		rules, name := flag.Rules(), flag.Names()[0]
		for _, value := range flagValues(c, name) {
			files := []string{value}
			if rules.Files != nil {
				files = rules.Files(value)
			}
			for _, file := range files {
				switch {
				case rules.Below && (!rules.Stdin || path.IsAbs(file)):
					f.machineFile(name, file, c.String("root"))
				case file == "":
					f.Add(UsageError("--"+name+": "+strconv.Quote(value)+" has an empty path", f.SeeHelp()))
				case file == document.Stdin && rules.Stdin:
					fromStdin = append(fromStdin, "--"+name)
				case file == document.Stdin:
					f.Add(UsageError("--"+name+": cannot read standard input", "give the path of a file; ./- is a file of that name"))
				}
			}
		}
	}
	AddIf(f, len(fromStdin) > 1, "standard input is given more than once: "+host.Listed(fromStdin, "and"), "give - once, and files or folders for the rest")
}

// flagValues returns the values of a flag that takes one or several.
func flagValues(c *cli.Context, name string) []string {
	if values := c.StringSlice(name); values != nil || !c.IsSet(name) {
		return values
	}
	return []string{c.String(name)}
}

// machineFile adds an error unless a path is absolute. An absolute path that contains the root
// although there is no such file below the root is an error too: only the path below it was meant.
func (f *Faults) machineFile(flag, name, root string) {
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
		meant, given := "/etc/nova/nova.conf", name[strings.Index(name, "=")+1:] // ROLE=FILE is of other commands
		if here, err := filepath.Abs(given); path.IsAbs(given) {
			meant = given
		} else if err == nil && given != "" && below(here) != "" {
			meant = below(here)
		}
		f.Add(UsageError("--"+flag+": "+strconv.Quote(name)+" is not absolute: it names a file of the machine, below --root",
			"write for example --"+flag+" "+meant))
		return
	}
	if meant := below(name); meant != "" && absolute != "/" {
		if _, err := os.Lstat(filepath.Join(absolute, name)); err != nil {
			f.Add(UsageError("--"+flag+": "+name+" contains the path of --root, below which it is looked for",
				"write --"+flag+" "+meant))
		}
	}
}
