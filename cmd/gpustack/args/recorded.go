package args

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/nova/probe"
)

// ofRun returns the flags that say where a command works, what it prints and what it asks, not what
// it does.
func ofRun() []string {
	return []string{"root", "output", "yes", "dry-run", "diff", "quiet", "verbose"}
}

// Recorded returns a command line as the journal has it: the name of the command, its arguments,
// and the flags that were given, in the order of its help. unless names further flags that are left
// out, such as those with passwords.
func Recorded(c *cli.Context, unless ...string) string {
	text := strings.TrimPrefix(c.Command.HelpName, c.App.Name+" ")
	add := func(word string) { text += " " + host.ShellWord(host.WithoutCredentials(word)) }
	for _, arg := range c.Args().Slice() {
		add(arg)
	}
	for _, flag := range c.Command.Flags {
		name := flag.Names()[0]
		if !c.IsSet(name) || slices.Contains(ofRun(), name) || slices.Contains(unless, name) {
			continue
		}
		switch value := c.Value(name).(type) {
		case bool:
			text += " --" + name
			if !value {
				text += "=false"
			}
		case cli.StringSlice:
			for _, v := range value.Value() {
				text += " --" + name
				add(v)
			}
		default:
			text += " --" + name
			add(c.String(name))
		}
	}
	return text
}

// commandFlag is the flag whose value is a command for a guest, which may contain secrets.
const commandFlag = "run"

// WithoutCommands returns the arguments of a command line with the hash of each command that a guest
// is to run in its place, for the journal.
func WithoutCommands(argv []string) []string {
	shown, value := slices.Clone(argv), false
	for i, word := range argv {
		name, given, assigned := cutFlag(word)
		switch {
		case value:
			shown[i], value = probe.HashOf(word), false
		case !strings.HasPrefix(word, "-") || name != commandFlag:
		case assigned:
			shown[i] = strings.TrimSuffix(word, given) + probe.HashOf(given)
		default:
			value = true
		}
	}
	return shown
}
