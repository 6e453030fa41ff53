package args

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// ofRun returns the flags that say where a command works, what it prints and what it asks, not what
// it does.
func ofRun() []string {
	return []string{"root", "output", "yes", "dry-run", "diff", "quiet", "verbose"}
}

// Recorded returns a command line as the journal has it: the name of the command, its arguments,
// and the flags that were given, in the order of its help, with the hash of a value that may
// contain secrets. unless names further flags that are left out, such as those with passwords.
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
		if isSecret(flag) {
			text += " --" + name
			add(host.Hash([]byte(c.String(name))))
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
