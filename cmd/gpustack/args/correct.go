package args

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// This file answers wrong command lines with the command line that was probably meant: complete, so
// that it can be copied. A correction is offered only if it parses without an error.

// guess is a command line with errors, and finds the one that was probably meant.
type guess struct{ *Line }

// otherVerbs are words of other programs for what a command of gpustack does.
var otherVerbs = map[string][]string{
	"add": {"create"}, "apply": {"prepare", "configure"}, "assign": {"prepare"}, "attach": {"bind"}, "boot": {"test"}, "changes": {"history"},
	"config": {"configure"}, "del": {"delete"}, "detach": {"release"}, "devices": {"scan"}, "diagnose": {"check"}, "diff": {"prepare"},
	"doctor": {"check"}, "dump": {"snapshot"}, "export": {"snapshot"}, "extract": {"unpack"}, "fix": {"repair-migration"}, "import": {"unpack"},
	"info": {"scan", "list"}, "inventory": {"scan"}, "journal": {"history"}, "list": {"scan", "list"}, "log": {"history"}, "ls": {"scan", "list"},
	"lspci": {"scan"}, "new": {"create"}, "passthrough": {"prepare"}, "plan": {"prepare"}, "repair": {"repair-migration"}, "return": {"release"},
	"revert": {"undo"}, "rm": {"delete"}, "rollback": {"undo"}, "run": {"test"}, "save": {"snapshot"}, "setup": {"prepare", "configure"},
	"show": {"scan", "list"}, "status": {"check"}, "unbind": {"release"}, "validate": {"check"}, "verify": {"check"}, "vms": {"guests"}, "why": {"explain"},
}

// otherFlags are names of flags of other programs, with the words that gpustack has for them. The
// first whose flag the command has is offered.
var otherFlags = map[string][][]string{
	"address": {{"--device"}}, "bdf": {{"--device"}}, "ca-cert": {{"--os-cacert"}}, "cacert": {{"--os-cacert"}},
	"check": {{"--dry-run"}}, "chroot": {{"--root"}}, "cloud": {{"--os-cloud"}}, "config": {{"--conf"}}, "config-file": {{"--conf"}},
	"count": {{"--iterations"}}, "cpus": {{"--vcpus"}}, "d": {{"--device"}}, "debug": {{"--verbose"}}, "dev": {{"--device"}},
	"driver": {{"--run", "nvidia-smi -L"}}, "nvidia-smi": {{"--run", "nvidia-smi -L"}}, "exec": {{"--run"}}, "command": {{"--run"}},
	"diff": {{"--dry-run"}}, "dryrun": {{"--dry-run"}},
	"f": {{"-o"}}, "file": {{"--inventory"}, {"--conf"}}, "for": {{"--profile"}}, "format": {{"-o"}}, "gpu": {{"--device"}}, "gpus": {{"--device"}},
	"json":  {{"-o", "json"}},
	"image": {{"--image-dir"}}, "inventories": {{"--inventory"}}, "keep": {{"--keep-server"}}, "memory": {{"--ram"}}, "noop": {{"--dry-run"}},
	"out": {{"-o"}}, "O": {{"-o"}}, "pci": {{"--device"}}, "plan": {{"--dry-run"}}, "r": {{"--root"}}, "region": {{"--os-region-name"}},
	"report": {{"--guests"}}, "silent": {{"--quiet"}}, "simulate": {{"--dry-run"}}, "timeout": {{"--wait"}}, "uuid": {{"--instance"}, {"--server"}},
	"yaml": {{"-o", "yaml"}},
}

// otherFlag returns the words for a flag that a command does not have, nil if there are none.
func otherFlag(name string, known []cli.Flag) []string {
	for _, words := range otherFlags[name] {
		if FindFlag(known, strings.TrimLeft(words[0], "-")) != nil {
			return words
		}
	}
	return nil
}

// replacement returns the words for a flag that the command does not have: those of another name,
// or a similar flag. It returns nil if there are none.
func (l guess) replacement(name string) []string {
	if with := otherFlag(name, l.known()); with != nil {
		return with
	}
	var known []string
	for _, flag := range l.known() {
		known = append(known, "--"+flag.Names()[0])
	}
	for _, other := range dashed(l.othersOfSecrets()) {
		if otherFlag(strings.TrimLeft(other, "-"), l.known()) != nil {
			known = append(known, other)
		}
	}
	switch best := closest("--"+strings.ToLower(name), known); {
	case best == "" || slices.Contains(notGuessed, best):
		return nil
	case FindFlag(l.known(), strings.TrimLeft(best, "-")) == nil:
		return otherFlag(strings.TrimLeft(best, "-"), l.known())
	default:
		return []string{best}
	}
}

// notGuessed are flags that a similar word must not lead to: what they do is more than was asked
// for.
var notGuessed = []string{"--none", "--yes", "--apply", "--live", "--take-over", "--claim", "--clean", "--allow-unsafe-interrupts", "--stop-services",
	"--insecure", "--host-is-off", "--allow", "--placement", "--computes-report", "--one-time-use-ok"}

// takesValue reports whether the next word is the value of a flag of this name. While the command
// is unknown, it has a value if it has one in any command.
func (l guess) takesValue(name string) bool {
	if l.hides(name) {
		return true
	}
	if l.Command != nil && len(l.subcommands()) == 0 {
		if flag := FindFlag(l.known(), name); flag != nil {
			return TakesValue(flag)
		}
		if with := l.replacement(name); len(with) == 1 {
			flag := FindFlag(l.known(), strings.TrimLeft(with[0], "-"))
			return flag != nil && TakesValue(flag)
		} else if with != nil {
			return false
		}
	}
	if flag := l.anyFlag(name); flag != nil {
		return TakesValue(flag)
	}
	for _, words := range otherFlags[name] {
		if flag := l.anyFlag(strings.TrimLeft(words[0], "-")); len(words) == 1 && flag != nil && TakesValue(flag) {
			return true
		}
	}
	return false
}

// Meant returns the text that offers a command line.
func Meant(c host.Command) host.Text {
	return host.Textf("did you mean: %s", c)
}

// commandLine returns the words of a command line as a command, and false if they have an error
// that can be known without running it, or a value that may contain secrets.
func (l guess) commandLine(words []string) (host.Command, bool) {
	corrected := &Line{app: l.app, faults: &Faults{}, words: words, corrects: true}
	for rest := words; len(rest) > 0; {
		rest = corrected.take(rest)
	}
	corrected.check()
	switch c := corrected.Command; {
	case len(corrected.faults.all) > 0, c == nil, len(c.Subcommands) > 0, c.Hidden, c.ArgsUsage == "" && len(corrected.arguments) > 0, l.tells(corrected):
		return host.Command{}, false
	}
	return guess{corrected}.data(), true
}

// data returns the command line as a command.
func (l guess) data() host.Command {
	c := host.NewCommand(strings.Join(l.Path, " "))
	for _, words := range l.flags {
		name, value, hasValue := cutFlag(words[0])
		if name == "yes" || name == "y" {
			continue // a command line that may not be the meant one asks
		}
		if !hasValue && len(words) > 1 {
			value = words[1]
		}
		if flag := l.ownFlag(name); hasValue && flag != nil && !TakesValue(flag) {
			name, value = name+"="+value, "" // --live=false
		}
		c = c.Flag(name, host.WithoutCredentials(value))
	}
	for _, argument := range l.arguments {
		c = c.Arg(host.WithoutCredentials(argument))
	}
	return c
}

// suggest returns the text about an unknown command: the command line that it probably means, the
// paths of several commands, or "". The word that is unknown is at.
func (l guess) suggest(at int, name string, known []string) host.Text {
	if l.corrects || at < 0 { // of a completion, no words are kept
		return ""
	}
	if name == "version" {
		return "did you mean: gpustack --version"
	}
	if slices.Equal(l.Path, []string{"image"}) && slices.Contains(otherVerbs[name], "list") {
		return "openstack image list shows the images of the cloud"
	}
	if lower := strings.Fields(strings.ToLower(name)); lower != nil { // gpustack HOST SCAN, gpustack 'host scan'
		words := slices.Replace(slices.Clone(l.words), at, at+1, lower...)
		if c, ok := l.commandLine(words); ok {
			return Meant(c)
		}
		if len(lower) == 1 && at+1 < len(words) { // the command of a group, not an argument
			words[at+1] = strings.ToLower(words[at+1])
			if c, ok := l.commandLine(words); ok {
				return Meant(c)
			}
		}
	}
	if at+1 < len(l.words) { // gpustack scan host
		words := slices.Clone(l.words)
		words[at], words[at+1] = words[at+1], words[at]
		if c, ok := l.commandLine(words); ok {
			return Meant(c)
		}
	}
	paths := l.meant(name, known)
	for i, path := range paths {
		var words []string
		for i, word := range l.words {
			if i != at && !slices.Contains(l.pathAt, i) {
				words = append(words, word)
			}
		}
		c, ok := l.commandLine(append(strings.Fields(path), words...))
		others := slices.Delete(slices.Clone(paths), i, i+1)
		switch {
		case ok && len(others) > 0:
			return host.Textf("%s (or %s)", Meant(c), host.Listed(others, "or"))
		case ok:
			return Meant(c)
		}
	}
	// Words after an unknown group are its commands: gpustack hosts scan.
	if best := closest(name, known); best != "" {
		words := slices.Clone(l.words)
		words[at] = best
		if c, ok := l.commandLine(words); ok {
			return Meant(c)
		}
	}
	return host.Textf("%sthe commands are %s; see %s --help", didYouMean(paths...), host.Listed(known, "and"),
		strings.Join(append([]string{l.app.Name}, l.Path...), " "))
}

// meant returns the paths of the commands that an unknown name may mean. A name that has its right
// group elsewhere ("gpustack scan" for host scan) means each of them, before a similar name of the
// same group.
func (l guess) meant(name string, known []string) []string {
	var same, leaves, all []string
	paths := map[string][]string{}
	for path, c := range Visible(l.app.Commands) {
		if c.HasName(name) {
			same = append(same, path)
		}
		leaves, all = append(leaves, c.Name), append(all, path)
		paths[c.Name] = append(paths[c.Name], path)
	}
	in := func(leaf string) string { return strings.Join(append(slices.Clone(l.Path), leaf), " ") }
	others := otherVerbs[strings.ToLower(name)]
	for _, other := range others {
		if len(l.Path) > 0 && slices.Contains(known, other) {
			return []string{in(other)}
		}
	}
	for _, other := range others {
		for _, path := range paths[other] {
			if !slices.Contains(same, path) {
				same = append(same, path)
			}
		}
	}
	if best := closest(name, known); len(same) == 0 && best != "" {
		return []string{in(best)}
	}
	if best := closest(name, leaves); len(same) == 0 && best != "" {
		return paths[best]
	}
	slices.SortStableFunc(same, func(a, b string) int { return slices.Index(all, a) - slices.Index(all, b) })
	return same
}

// replace returns the words of the command line with each flag that the command does not have in
// the words that gpustack has for it, and what a single flag probably means, or "".
func (l guess) replace(unknown []string) (words []string, means map[string]string) {
	words, means = slices.Clone(l.words), map[string]string{}
	for _, word := range unknown {
		name, value, hasValue := cutFlag(word)
		with := l.replacement(name)
		if with == nil {
			continue
		}
		means[word] = strings.Join(with, " ")
		if hasValue {
			with = append(slices.Clip(with), value)
		}
		if i := slices.Index(words, word); i >= 0 {
			words = slices.Replace(words, i, i+1, with...)
		}
	}
	return words, means
}

// withCommand returns the command line with a command, which it lacks, that has its flags, and
// false if there is none.
func (l guess) withCommand() (host.Command, bool) {
	for _, path := range []string{"host scan", "host prepare"} {
		words := append(strings.Fields(path), l.words...)
		whole := &Line{app: l.app, faults: &Faults{}, words: words, corrects: true}
		for rest := words; len(rest) > 0; {
			rest = whole.take(rest)
		}
		var unknown []string
		for _, flag := range whole.flags {
			if name, _, _ := cutFlag(flag[0]); whole.Command != nil && FindFlag(whole.known(), name) == nil {
				unknown = append(unknown, flag[0])
			}
		}
		words, _ = guess{whole}.replace(unknown)
		if c, ok := l.commandLine(words); ok {
			return c, true
		}
	}
	return host.Command{}, false
}

// Instead returns the command line with a value of a flag replaced by words, flags included, and
// false if that is no command line either.
func (f *Faults) Instead(flag, value string, words ...string) (host.Command, bool) {
	if f.line == nil {
		return host.Command{}, false
	}
	all := f.line.words
	for i, word := range all {
		name, assigned, hasValue := cutFlag(word)
		switch {
		case !strings.HasPrefix(word, "-") || name != flag:
		case hasValue && assigned == value:
			return (guess{f.line}).commandLine(slices.Replace(slices.Clone(all), i, i+1, words...))
		case !hasValue && i+1 < len(all) && all[i+1] == value:
			return (guess{f.line}).commandLine(slices.Replace(slices.Clone(all), i, i+2, words...))
		}
	}
	return host.Command{}, false
}

// insteadOf returns the command line with an argument replaced by words, and false if that is no
// command line either.
func (f *Faults) insteadOf(argument string, words ...string) (host.Command, bool) {
	if f.line == nil {
		return host.Command{}, false
	}
	i := slices.Index(f.line.words, argument)
	if i < 0 {
		return host.Command{}, false
	}
	return (guess{f.line}).commandLine(slices.Replace(slices.Clone(f.line.words), i, i+1, words...))
}

// invalidValue matches the error of package flag about a value, as a run reports it.
var invalidValue = host.LazyRegexp(`^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for --([a-z-]+)`)

// invalid returns the hint for a value that package flag has refused: the form of its kind.
func invalid(c *cli.Context, f *Faults, problem string) host.Text {
	m := invalidValue().FindStringSubmatch(problem)
	if m == nil {
		return host.Text(f.SeeHelp())
	}
	value, err := strconv.Unquote(m[1])
	if err != nil {
		return host.Text(f.SeeHelp())
	}
	if _, ok := FindFlag(c.Command.Flags, m[2]).(*cli.DurationFlag); !ok {
		return host.Text(f.SeeHelp())
	}
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		if meant, ok := f.Instead(m[2], value, "--"+m[2], value+"s"); ok {
			return host.Textf("a TIME has a unit, as in 30s or 5m; %s", Meant(meant))
		}
	}
	return "a TIME has a unit, as in 30s or 5m"
}

// unexpected returns the hint for an argument that the command does not accept: the command line
// with the flag whose value it probably is, or the help.
func (f *Faults) unexpected(c *cli.Context, argument string) host.Text {
	if dashed := strings.TrimLeft(argument, "–—−"); dashed != argument { // as word processors write --
		if meant, ok := f.insteadOf(argument, "--"+dashed); ok {
			return Meant(meant)
		}
	}
	has := func(name string) bool { return FindFlag(c.Command.Flags, name) != nil }
	for _, flag := range valueOf(argument) {
		if flag == "root" && c.IsSet("root") || !has(flag) {
			continue
		}
		if meant, ok := f.insteadOf(argument, "--"+flag, argument); ok {
			return Meant(meant)
		}
	}
	return host.Text(f.SeeHelp())
}

// ids matches the address of a function, of a slot, or the ids of a product.
var ids = host.LazyRegexp(`^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(\.[0-7])?$|^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}$|^pci_[0-9a-f_]+$`)

// valueOf returns the flags whose value an argument probably is.
func valueOf(argument string) []string {
	info, err := os.Stat(argument)
	ending := filepath.Ext(argument)
	switch {
	case ids().MatchString(argument):
		return []string{"device"}
	case err == nil && info.IsDir():
		return []string{"root", "inventory"}
	case slices.Contains([]string{".json", ".jsonl", ".yaml", ".yml"}, ending):
		return []string{"inventory", "guests"}
	case ending == ".conf":
		return []string{"conf"}
	}
	return nil
}
