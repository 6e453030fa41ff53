package args

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

const faultsKey = "faults"

// FaultsOf returns the errors of the command line that is being run.
func FaultsOf(c *cli.Context) *Faults {
	return c.App.Metadata[faultsKey].(*Faults)
}

// Faults collects the errors of a command line.
type Faults struct {
	command string // as the user called it
	unknown bool   // a flag is unknown, and the word after it may be an argument
	all     []error
}

// Add adds an error, or nothing for nil.
func (f *Faults) Add(err error) {
	if err != nil {
		f.all = append(f.all, err)
	}
}

// AddEach adds each of joined errors of a value, with what comes before its text, and a hint, or
// nil for its own.
func (f *Faults) AddEach(before string, err error, hint host.Text) {
	for _, fault := range host.Split(err) {
		own := hint
		if own == nil {
			own = host.HintOf(fault)
		}
		f.Add(UsageError(before+fault.Error(), own))
	}
}

// AddIf adds an error of the command line if something is wrong with it.
func AddIf[T string | host.Text](f *Faults, wrong bool, problem string, hint T) {
	if wrong {
		f.Add(UsageError(problem, hint))
	}
}

// NotEmpty adds an error for each of these flags that is given without a value.
func (f *Faults) NotEmpty(c *cli.Context, flags ...string) {
	for _, name := range flags {
		AddIf(f, c.IsSet(name) && c.String(name) == "", "--"+name+": the value is missing", f.SeeHelp())
	}
}

// Root returns the machine below --root.
func (f *Faults) Root(c *cli.Context) host.Root {
	root, err := host.NewRoot(c.String("root"))
	f.Add(err)
	return root
}

// Positive returns the value of a flag that is a time, which must be longer than 0 where it is given.
func (f *Faults) Positive(c *cli.Context, flag string) time.Duration {
	d := c.Duration(flag)
	AddIf(f, c.IsSet(flag) && d <= 0, "--"+flag+": "+d.String()+" is not a positive time", "--"+flag+" takes a time such as 30s or 10m")
	return d
}

// Machine adds an error for a --root that is not the running machine, on which the command does
// what does says. read is the command that reads a tree instead.
func (f *Faults) Machine(c *cli.Context, does, read string) {
	root := c.String("root")
	AddIf(f, filepath.Clean(root) != "/", "--root "+strconv.Quote(root)+": "+does+", and needs --root /",
		host.Textf("run it on the machine itself; %s reads the files of a tree", host.NewCommand(read)))
}

// Size returns the value of a flag that is a size of at least least, nil unless it is given.
func (f *Faults) Size(c *cli.Context, flag string, least int, parse func(string) (int, error)) *int {
	if !c.IsSet(flag) {
		return nil
	}
	n, err := parse(c.String(flag))
	if err == nil && n < least {
		err = fmt.Errorf("must be at least %d", least)
	}
	value := ValueName(FindFlag(c.Command.Flags, flag))
	f.AddEach("--"+flag+": ", err, map[string]host.Text{
		"NUMBER": host.Textf("write for example --%s %d", flag, max(least, 1)),
		"SIZE":   host.Textf("a SIZE is a number, also with a unit: --%s 16G", flag),
	}[value])
	return &n
}

// Number parses the value of a flag that is a number; see [Faults.Size].
func Number(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	return n, nil
}

// Err returns all errors, or nil. An error in the command line without a hint gets the one that
// names the help of the command.
func (f *Faults) Err() error {
	return errors.Join(host.Map(f.all, func(err error) error {
		if _, ok := err.(usageError); ok { //nolint:errorlint // an error that wraps one has a hint
			return host.WithHint(err, f.SeeHelp())
		}
		return err
	})...)
}

// SeeHelp returns the hint that names the help of the command.
func (f *Faults) SeeHelp() string {
	return "see " + f.command + " --help"
}

// Arguments returns the positional arguments, of which there must be as many as names.
func (f *Faults) Arguments(c *cli.Context, names ...string) []string {
	given := c.Args().Slice()
	for i, arg := range given {
		AddIf(f, i >= len(names), "unexpected argument "+strconv.Quote(arg), f.SeeHelp())
	}
	for _, name := range names[min(len(given), len(names)):] {
		AddIf(f, !f.unknown, name+" is missing",
			"usage: "+synopsis(strings.TrimPrefix(c.Command.HelpName, c.App.Name+" "), c.Command)+"; "+f.SeeHelp())
	}
	return append(given, make([]string, len(names))...)
}

// Exclude adds an error for each flag that is given together with one that excludes it.
func (f *Faults) Exclude(c *cli.Context, flag string, others ...string) {
	for _, other := range others {
		AddIf(f, c.IsSet(flag) && c.IsSet(other), "--"+flag+" and --"+other+" cannot be combined", f.SeeHelp())
	}
}

// Require adds an error for each flag that is given without the one that it requires.
func (f *Faults) Require(c *cli.Context, required string, flags ...string) {
	isGiven := func(flag string) bool { return c.IsSet(flag) && c.Value(flag) != any(false) }
	for _, flag := range flags {
		AddIf(f, isGiven(flag) && !isGiven(required), "--"+flag+" requires --"+required, "")
	}
}

// Choice returns the value of a [ChoiceFlag].
func (f *Faults) Choice(c *cli.Context, name string) string {
	value := c.String(name)
	flag := FindFlag(c.Command.Flags, name).(ChoiceFlag)
	if !slices.Contains(flag.Words, value) {
		words := slices.DeleteFunc(slices.Clone(flag.Words), func(w string) bool { return w == "" })
		f.Add(UsageError("--"+name+": unknown value "+strconv.Quote(value), "--"+name+" takes "+host.Listed(words, "or")))
	}
	return value
}

// Value parses the value of a flag, the zero value unless it is given. hint is that of each error,
// or nil for its own.
func Value[T any](f *Faults, c *cli.Context, flag string, parse func(string) (T, error), hint host.Text) (value T) {
	if !c.IsSet(flag) {
		return value
	}
	value, err := parse(c.String(flag))
	f.AddEach("--"+flag+": ", err, hint)
	return value
}

// Values parses each value of a repeatable flag. hint is that of each error, or nil for its own.
func Values[T any](f *Faults, c *cli.Context, flag string, parse func(string) (T, error), hint host.Text) (list []T) {
	for _, s := range c.StringSlice(flag) {
		v, err := parse(s)
		f.AddEach("--"+flag+": ", err, hint)
		if err == nil {
			list = append(list, v)
		}
	}
	return list
}

// UsageError returns an error in the command line, with a hint, or "" for that which names the help
// of the command. The problem may repeat a word of the command line, without the credentials of a
// URL.
func UsageError[T string | host.Text](problem string, hint T) error {
	err := usageError{errors.New(host.WithoutCredentials(problem))}
	if text := host.Textf("%s", hint); len(text) > 0 {
		return host.WithHint(err, text)
	}
	return err
}

// usageError is an error in the command line, without a hint.
type usageError struct{ error }
