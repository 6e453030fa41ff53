package args

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// This file formats help from the tree of commands. A command's Description is plain text:
// paragraphs, headings in capitals, and below them lines indented by two spaces, whose terms two
// spaces separate from their texts. --help has what fits a screen; gpustack help COMMAND has all,
// and the manual is made of it.

// HelpText returns the help of the command on a command line.
func (l *Line) HelpText() string {
	path := strings.Join(l.Path, " ")
	switch {
	case l.Command == nil && l.Whole:
		return AppHelp(l.app) + "\n" + manual
	case l.Command == nil:
		return AppHelp(l.app)
	case len(l.Command.Subcommands) > 0:
		return fmt.Sprintf("gpustack %s: %s\n\nCOMMANDS\n%s\n\"gpustack COMMAND --help\" shows its options.\n",
			path, l.Command.Usage, listCommands("gpustack "+path+" ", l.Command.Subcommands))
	case l.Whole:
		return wholeHelp(path, l.Command)
	}
	return shortHelp(path, l.Command)
}

// AppHelp returns the help of the program.
func AppHelp(a *cli.App) string {
	var b strings.Builder
	fmt.Fprintf(&b, "gpustack: %s\n", a.Usage)
	category := ""
	for _, c := range a.Commands {
		list := listCommands("", []*cli.Command{c})
		if list != "" && c.Category != category {
			category = c.Category
			fmt.Fprintf(&b, "\n%s\n", strings.ToUpper(category))
		}
		b.WriteString(list)
	}
	return b.String() + "\n\"gpustack COMMAND --help\" shows examples and options, \"gpustack help COMMAND\" the whole page.\n\n" +
		"\"gpustack --version\" prints the version.\n"
}

// shownOptions is how many options --help describes. It names the others: a page of help fits 50
// lines of 80 characters.
const shownOptions = 11

// shortHelp returns what --help prints of a command: two sentences, three examples and the options
// that come first, which are those that most need.
func shortHelp(path string, c *cli.Command) string {
	text, _, _ := strings.Cut(strings.TrimSpace(c.Description), "\n\n")
	sentences := strings.SplitAfterN(strings.ReplaceAll(text, "\n", " "), ". ", 3)
	text = strings.Join(sentences[:min(2, len(sentences))], "")
	examples := ""
	if _, after, ok := strings.Cut(c.Description, "\nEXAMPLES\n"); ok {
		after, _, _ = strings.Cut(after, "\n\n")
		lines := strings.Split(after, "\n")
		examples = "EXAMPLES\n" + strings.Join(lines[:min(3, len(lines))], "\n") + "\n\n"
	}
	flags := slices.Clone(c.Flags)
	slices.SortStableFunc(flags, func(a, b cli.Flag) int { return least(a) - least(b) })
	more := host.Map(flags[min(shownOptions, len(flags)):], func(flag cli.Flag) string { return "--" + flag.Names()[0] })
	further := ""
	if len(more) > 0 {
		further = "\nFurther options: " + strings.Join(more, ", ") + "\n"
	}
	return fmt.Sprintf("gpustack %s: %s\n\nUSAGE\n  %s\n\n%s\n\n%sOPTIONS\n%s%s\nExit status: 0 done, 1 error or refusal, 2 differences, 130 interrupted.\n\n"+
		"\"gpustack help %s\" prints the whole page.\n", path, c.Usage, synopsis(path, c), strings.TrimSpace(text), examples,
		listFlags(flags[:min(shownOptions, len(flags))]), further, path)
}

// least returns 1 for a flag that many commands have, and 0 for one of a command's own.
func least(flag cli.Flag) int {
	name := flag.Names()[0]
	if isOfRun(name) || strings.HasPrefix(name, "os-") || slices.Contains([]string{"insecure", "timeout", "conf"}, name) {
		return 1
	}
	return 0
}

// wholeHelp returns the whole page of a command.
func wholeHelp(path string, c *cli.Command) string {
	status := ""
	if !strings.Contains(c.Description, "\nEXIT STATUS\n") {
		status = "\n" + manualExit
	}
	return fmt.Sprintf("gpustack %s: %s\n\nUSAGE\n  %s\n\n%s\n\nOPTIONS\n%s%s",
		path, c.Usage, synopsis(path, c), strings.TrimSpace(c.Description), listFlags(c.Flags), status)
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

func listCommands(prefix string, tree []*cli.Command) string {
	var b strings.Builder
	for path, c := range Visible(tree) {
		fmt.Fprintf(&b, "  %-*s  %s\n", max(len("container prepare"), len(prefix)+9), prefix+path, c.Usage)
	}
	return b.String()
}

// listFlags lists flags in two columns.
func listFlags(flags []cli.Flag) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, flag := range flags {
		spelling, usage := DescribeFlag(flag)
		fmt.Fprintf(w, "  %s\t%s\n", spelling, usage) //nolint:errcheck // into memory
	}
	fmt.Fprintln(w, "  -h, --help\tshow help") //nolint:errcheck // into memory
	w.Flush()                                  //nolint:errcheck // into memory
	return b.String()
}

// DescribeFlag returns a flag's synopsis ("-o, --output FORMAT") and its description. The word in
// backquotes in its usage is the name of its value.
func DescribeFlag(flag cli.Flag) (spelling, usage string) {
	names := host.Reversed(host.Map(flag.Names(), func(name string) string { return strings.Repeat("-", min(len(name), 2)) + name }))
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

// Below adds --root, with its value root, to a command about the same machine: without it, the
// command would look at this one, or change it.
func Below(c host.Command, root string) host.Command {
	if root == "" || root == "/" || c.IsElsewhere() || c.HasFlag("root") || !rooted().MatchString("gpustack "+c.Name()) {
		return c
	}
	return c.At("root", root)
}

// AtRoot adds --root, with its value root, to the commands of a warning, which has them as text: a
// warning has no parts. One that has --root remains as it is, and so does one about a document.
func AtRoot(text, root string) string {
	if root == "" || root == "/" || strings.Contains(text, " --root ") || strings.Contains(text, " -o json") {
		return text
	}
	return rooted().ReplaceAllStringFunc(text, func(command string) string { return command + " --root " + host.ShellWord(root) })
}

// rooted matches the commands about a machine. Others that have --root are about a cloud.
var rooted = host.LazyRegexp(`\bgpustack (status|host (scan|check|prepare|bind|release|guests|snapshot)|` +
	`nova (check|configure)|rdma (scan|check|prepare|test)|container (check|prepare|test)|repair-migration|history|undo)\b`)
