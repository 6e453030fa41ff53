package args

import (
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/urfave/cli/v2"
)

// TestParse: flags may stand anywhere, with their values in each form, and the errors of a command
// line name the word and what was probably meant.
func TestParse(t *testing.T) {
	for _, test := range []struct {
		name, line string
		arranged   string // without the program and --
		err        string
	}{
		{"in order", "host scan --root /mnt", "host scan --root /mnt", ""},
		{"flag first", "--root /mnt host scan", "host scan --root /mnt", ""},
		{"flag last", "host unpack FILE --root=/mnt", "host unpack --root=/mnt FILE", ""},
		{"value joined to a short flag", "host scan -ojson", "host scan -o json", ""},
		{"flags end", "host unpack -- --root", "host unpack --root", ""},
		{"similar command", "host scann", "host", `unknown command "host scann"`},
		{"unknown flag", "host scan --rooot /mnt", "host scan", "unknown flag --rooot"},
		{"unknown flag before the command", "--json host scan", "host scan", "unknown flag --json"},
		{"no value", "host scan --root", "host scan", "--root: missing value"},
		{"one value twice", "host scan --root a --root=b", "host scan --root a", "--root is given twice, and takes one value"},
		{"a list twice", "host scan --device a --device b", "host scan --device a --device b", ""},
		{"credentials", "host amqp://user:secret@host", "host", `unknown command "host amqp://***@host"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			flags := []cli.Flag{RootFlag(), OutputFlag("table", "json"), Paths(&cli.StringSliceFlag{Name: "device"}, PathRules{})}
			line := Parse(&cli.App{Name: "gpustack", Commands: []*cli.Command{{Name: "host", Subcommands: []*cli.Command{
				{Name: "scan", Flags: flags}, {Name: "unpack", Flags: flags},
			}}}}, append([]string{"gpustack"}, strings.Fields(test.line)...))
			words := slices.DeleteFunc(line.Arranged()[1:], func(word string) bool { return word == "--" })
			hosttest.Equal(t, test.arranged, strings.Join(words, " "))
			got := ""
			if err := line.faults.Err(); err != nil {
				got = err.Error()
			}
			hosttest.EqualIn(t, "error", test.err, got)
		})
	}
}
