package args

import (
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// This file says which values of a command line may contain secrets, for all that repeats words of
// it: corrections, errors and the journal.

// secretFlag is a flag of [Secret].
type secretFlag struct{ *cli.StringFlag }

// Secret returns a flag whose value may contain secrets: no text repeats it, and records have its
// hash.
func Secret(flag *cli.StringFlag) cli.Flag { return secretFlag{flag} }

func isSecret(flag cli.Flag) bool {
	_, ok := flag.(secretFlag)
	return ok
}

// secretValue is a value of the command line that may contain secrets.
type secretValue struct {
	at    int // the index of the word that is the value, or ends with it
	value string
}

// WithoutSecrets returns the words of the command line, without the program's name, with the hash
// of each value that may contain secrets in its place.
func (l *Line) WithoutSecrets() []string {
	shown := slices.Clone(l.words)
	for _, s := range l.secrets {
		shown[s.at] = strings.TrimSuffix(shown[s.at], s.value) + host.Hash([]byte(s.value))
	}
	return shown
}

// hides reports whether the value of a flag with this name may contain secrets: of a flag of
// [Secret], whatever command it belongs to, and of a name that no flag has and that may mean one.
func (l guess) hides(name string) bool {
	if flag := l.anyFlag(name); flag != nil {
		return isSecret(flag)
	}
	if otherFlags[name] != nil {
		return slices.Contains(l.othersOfSecrets(), name)
	}
	names := l.othersOfSecrets()
	for _, c := range Commands(l.app.Commands) {
		for _, flag := range c.Flags {
			if isSecret(flag) {
				names = append(names, flag.Names()...)
			}
		}
	}
	return closest("--"+strings.ToLower(name), dashed(names)) != ""
}

// othersOfSecrets returns the names of other programs for flags of [Secret], without those that are
// answered with a value too.
func (l guess) othersOfSecrets() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(otherFlags)) {
		words := otherFlags[name][0]
		if flag := l.anyFlag(strings.TrimLeft(words[0], "-")); flag != nil && isSecret(flag) && len(words) == 1 {
			names = append(names, name)
		}
	}
	return names
}

// tells reports whether words contain a value that may contain secrets: one of this command line,
// or of the command line that they are. A value that a correction has is none.
func (l guess) tells(corrected *Line) bool {
	for _, s := range corrected.secrets {
		if !isOffered(s.value) {
			return true
		}
	}
	return slices.ContainsFunc(l.secrets, func(s secretValue) bool {
		return s.value != "" && !isOffered(s.value) && slices.ContainsFunc(corrected.words, func(word string) bool {
			return word == s.value || strings.HasSuffix(word, "="+s.value)
		})
	})
}

// isOffered reports whether a value is one that corrections offer.
func isOffered(value string) bool {
	for _, all := range otherFlags {
		for _, words := range all {
			if slices.Contains(words[1:], value) {
				return true
			}
		}
	}
	return false
}

func dashed(names []string) (flags []string) {
	for _, name := range names {
		flags = append(flags, "--"+name)
	}
	return flags
}
