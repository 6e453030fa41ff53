package args

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// This file formats --help from the tree of commands; man.go formats the manual from the same
// parts. A command's Description is plain text: paragraphs, headings in capitals, and below them
// lines indented by two spaces.

// HelpText returns the help of the command on a command line.
func (l *Line) HelpText() string {
	path := strings.Join(l.Path, " ")
	switch {
	case l.Command == nil:
		return AppHelp(l.app)
	case len(l.Command.Subcommands) > 0:
		return groupHelp(path, l.Command)
	}
	return CommandHelp(path, l.Command)
}

// AppHelp returns the help of the program.
func AppHelp(a *cli.App) string {
	return fmt.Sprintf(`gpustack: %s

USAGE
  gpustack COMMAND [options]

%s
Each command says what it does, with examples, at gpustack COMMAND --help.

OPTIONS
%s
EXIT STATUS
%s
gpustack(8) has more: files, environment, and a page for each command.
`, a.Usage, listGroups(a.Commands), listFlags(a.Flags), listTerms(manualExit))
}

func groupHelp(path string, c *cli.Command) string {
	return fmt.Sprintf(`gpustack %s: %s

USAGE
  gpustack %s COMMAND [options]

COMMANDS
%s
OPTIONS
%s`, path, c.Usage, path, listCommands(path+" ", c.Subcommands), listFlags(c.Flags))
}

// CommandHelp returns the help of a command.
func CommandHelp(path string, c *cli.Command) string {
	return fmt.Sprintf(`gpustack %s: %s

USAGE
  %s

%s

OPTIONS
%s`, path, c.Usage, synopsis(path, c), strings.TrimSpace(c.Description), listFlags(c.Flags))
}

func synopsis(path string, c *cli.Command) string {
	words := "gpustack " + path
	if len(c.Flags) > 0 {
		words += " [options]"
	}
	if c.ArgsUsage != "" {
		words += " " + c.ArgsUsage
	}
	return words
}

// Group is a heading of the list of all commands, with the commands below it.
type Group struct {
	Heading string
	Tree    []*cli.Command
}

// Groups returns the commands of the application in groups, in their order.
func Groups(tree []*cli.Command) (groups []Group) {
	for _, c := range tree {
		if c.Hidden {
			continue
		}
		last := len(groups) - 1
		if last < 0 || groups[last].Heading != c.Category {
			groups = append(groups, Group{Heading: c.Category})
			last++
		}
		groups[last].Tree = append(groups[last].Tree, c)
	}
	return groups
}

// listGroups lists all commands, in groups. The descriptions of all groups begin in one column,
// which tabs would not achieve: a heading ends the columns above it.
func listGroups(tree []*cli.Command) string {
	width := 0
	for path := range Visible(tree) {
		width = max(width, len(path))
	}
	var b strings.Builder
	for _, g := range Groups(tree) {
		fmt.Fprintf(&b, "%s\n", strings.ToUpper(g.Heading))
		for path, c := range Visible(g.Tree) {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, path, c.Usage)
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// listCommands and listFlags separate their two columns by a tab. The columns are aligned when they
// are printed.

func listCommands(prefix string, tree []*cli.Command) string {
	var b strings.Builder
	for path, c := range Visible(tree) {
		fmt.Fprintf(&b, "  %s%s\t%s\n", prefix, path, c.Usage)
	}
	return b.String()
}

func listFlags(flags []cli.Flag) string {
	var b strings.Builder
	for _, flag := range flags {
		spelling, usage := DescribeFlag(flag)
		fmt.Fprintf(&b, "  %s\t%s\n", spelling, usage)
	}
	return b.String() + "  -h, --help\tshow this help\n"
}

func listTerms(terms []Term) string {
	var b strings.Builder
	for _, t := range terms {
		fmt.Fprintf(&b, "  %s\t%s\n", t.Name, t.Text)
	}
	return b.String()
}

// DescribeFlag returns a flag's synopsis ("-o, --output FORMAT") and its description. The word in
// backquotes in its usage is the name of its value.
func DescribeFlag(flag cli.Flag) (spelling, usage string) {
	var names []string
	for _, name := range flag.Names() {
		if len(name) == 1 {
			names = append([]string{"-" + name}, names...)
		} else {
			names = append(names, "--"+name)
		}
	}
	spelling = strings.Join(names, ", ")
	documented := flag.(cli.DocGenerationFlag)
	before, rest, _ := strings.Cut(documented.GetUsage(), "`")
	value, after, _ := strings.Cut(rest, "`")
	if documented.TakesValue() {
		spelling += " " + value
		if text := documented.GetDefaultText(); text != "" && !strings.Contains(documented.GetUsage(), "(default") {
			after += " (default " + strings.Trim(text, `"`) + ")"
		}
	}
	return spelling, before + value + after
}
