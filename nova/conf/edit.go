package conf

import (
	"errors"
	"fmt"
	"gpustack/host"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/ini.v1"
)

// Setting is the value or values that an option is to have.
type Setting struct {
	// Names are the names of the option: first the one to write, then older ones, whose lines are
	// renamed or removed.
	Names []Name
	// Values are all values of the option, in their order. Without values the option is removed.
	Values []string
	// Multi says that all values of the option count. Of another option the last value counts, and
	// earlier lines stay as they are.
	Multi bool
	// Continued allows values of several lines, which are written as continuation lines.
	Continued bool
	// Same reports whether a value in the file is equivalent to a wanted one. If it is nil, they
	// are compared as text.
	Same func(have, want string) bool
}

// ErrVerify says that the edited file would not have the intended options. It is an error of
// gpustack.
var ErrVerify = host.WithHint(errors.New("the edited file would not have the intended options"), "set the option in the file by hand, and report the file as an error of gpustack")

// Set returns the file with an option set. Lines that need not change stay as they are. A new line
// is inserted after the other lines of the option, else after its commented default, else at the
// end of its section, else in a new section.
//
// Errors: ErrVerify.
func (f *File) Set(s Setting) (*File, error) {
	e := editor{file: f, setting: s, before: map[int][]string{}, instead: map[int][]string{}}
	e.order()
	for _, v := range e.written {
		unwritable := func(r rune) bool { return unicode.IsControl(r) && (r != '\n' || !s.Continued) }
		if !utf8.ValidString(v) || strings.ContainsFunc(v, unwritable) {
			return nil, fmt.Errorf("%s: the value contains control characters or is not UTF-8", s.Names[0])
		}
	}
	if len(e.before)+len(e.instead) == 0 {
		return f, nil
	}
	after, err := parse(e.assemble())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVerify, err)
	}
	return after, f.verify(after, s)
}

func (s Setting) same(have, want string) bool {
	if s.Same != nil {
		return s.Same(have, want)
	}
	return have == want
}

type editor struct {
	file    *File
	setting Setting
	before  map[int][]string // new lines before a line
	instead map[int][]string // what a line becomes, nothing where it is removed
	written []string         // values of new and changed lines
}

// order keeps the longest sequence of lines whose values are in the wanted order. Lines between two
// of them get other wanted values, or are removed; remaining values get new lines there.
func (e *editor) order() {
	var lines []Option // lines in the section to write to
	want := e.setting.Values
	for _, o := range e.file.Find(e.setting.Names...) {
		isSingle, isCurrent := !e.setting.Multi && len(want) > 0, e.setting.Names[0].is(o)
		switch n := len(lines); {
		case !sameSection(o.Section, e.setting.Names[0].Section), isSingle && !isCurrent:
			e.remove(o)
		case isSingle && n > 0: // the last one counts
			lines[0] = o
		default:
			lines = append(lines, o)
		}
	}
	var last *Option // the line that remains before the next values
	at, from := 0, 0 // the first line and the first value that are not placed
	for _, k := range append(e.common(lines, want), pair{len(lines), len(want)}) {
		values := want[from:k.value]
		for ; at < k.line; at++ {
			if len(values) == 0 {
				e.remove(lines[at])
				continue
			}
			e.keep(lines[at], &values[0])
			last, values = &lines[at], values[1:]
		}
		if k.line == len(lines) {
			next, opening := e.place(last)
			e.insert(next, opening, values)
			break
		}
		e.insert(lines[at].first, nil, values)
		e.keep(lines[at], nil)
		last, at, from = &lines[at], at+1, k.value+1
	}
}

// keep keeps the line of an option under the name to write, with another value unless that is nil.
// The blanks around the sign stay.
func (e *editor) keep(o Option, value *string) {
	key, text := e.setting.Names[0].Key, e.file.lines[o.first].text
	if value == nil && o.Key == key {
		return
	}
	text = strings.Replace(text, o.Key, key, 1)
	if value != nil {
		at := strings.IndexAny(text, ":=") + 1
		blank := text[at : len(text)-len(strings.TrimLeftFunc(text[at:], isSpace))]
		text = text[:at] + blank + encode(*value, e.file.lineEnd())
		e.remove(o)
		e.written = append(e.written, *value)
	}
	e.instead[o.first] = []string{text}
}

// insert adds lines with values before a line, after those that begin a section.
func (e *editor) insert(at int, opening, values []string) {
	if len(values) == 0 {
		return
	}
	for _, v := range values {
		opening = append(opening, e.setting.Names[0].Key+" = "+encode(v, e.file.lineEnd()))
	}
	e.before[at], e.written = opening, append(e.written, values...)
}

func (e *editor) remove(o Option) {
	for i := o.first; i <= o.last; i++ {
		e.instead[i] = nil
	}
}

// pair is the indexes of a line and of the wanted value that it has.
type pair struct{ line, value int }

// common returns a longest common subsequence of lines and values.
func (e *editor) common(lines []Option, values []string) []pair {
	longest := make([][]int, len(lines)+1) // lengths for the rests from i and j on
	for i := range longest {
		longest[i] = make([]int, len(values)+1)
	}
	for i, o := range slices.Backward(lines) {
		for j, v := range slices.Backward(values) {
			if e.setting.same(o.Value, v) {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	var pairs []pair
	for i, j := 0, 0; i < len(lines) && j < len(values); {
		switch {
		case e.setting.same(lines[i].Value, values[j]):
			pairs = append(pairs, pair{i, j})
			i, j = i+1, j+1
		case longest[i+1][j] >= longest[i][j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}

// encode returns a value as it must be written: in quotes if it would lose its own quotes or white
// space at its ends, and its further lines, each after a line end, as continuation lines.
func encode(value, end string) string {
	value, more, continued := strings.Cut(value, "\n")
	if unquote(value) != value || strings.TrimFunc(value, isSpace) != value {
		value = `"` + value + `"`
	}
	if continued {
		value += end + "    " + strings.ReplaceAll(more, "\n", end+"    ")
	}
	return value
}

// assemble returns the text of the edited file.
func (e *editor) assemble() string {
	var text strings.Builder
	text.Grow(len(e.file.text) + 1024)
	end := "\n" // of the last line
	write := func(line, with string) {
		text.WriteString(line)
		text.WriteString(with)
		end = with
	}
	for i, l := range append(slices.Clip(e.file.lines), line{}) {
		for _, added := range e.before[i] {
			if end == "" {
				write("", e.file.lineEnd())
			}
			write(added, e.file.lineEnd())
		}
		instead, changes := e.instead[i]
		if !changes {
			instead = []string{l.text}
		}
		for _, line := range instead {
			write(line, l.end)
		}
	}
	return text.String()
}

// lineEnd returns the line end of the file.
func (f *File) lineEnd() string {
	for _, l := range f.lines {
		if l.end != "" {
			return l.end
		}
	}
	return "\n"
}

// place returns the line before which new lines are inserted: the one after last, if that is not
// nil; and the lines that begin a new section.
func (e *editor) place(last *Option) (at int, opening []string) {
	f, name := e.file, e.setting.Names[0]
	if last != nil {
		return last.last + 1, nil
	}
	header, commentedAt := -1, -1
	commented := regexp.MustCompile(`^[#;][ \t]*` + regexp.QuoteMeta(name.Key) + `[ \t]*[=:]`)
	for n, s := range f.sections {
		if !sameSection(s.name, name.Section) {
			continue
		}
		header = s.at
		next := len(f.lines)
		if n+1 < len(f.sections) {
			next = f.sections[n+1].at
		}
		for i := s.at + 1; i < next; i++ {
			if commented.MatchString(f.lines[i].text) {
				commentedAt = i
			}
		}
	}
	switch {
	case commentedAt >= 0:
		return commentedAt + 1, nil
	case header < 0:
		if len(f.lines) == 0 || isBlank(f.lines[len(f.lines)-1].text) {
			return len(f.lines), []string{"[" + name.Section + "]"}
		}
		return len(f.lines), []string{"", "[" + name.Section + "]"}
	}
	at = header + 1
	for _, o := range f.options {
		if o.first > header && sameSection(o.Section, name.Section) {
			at = o.last + 1
		}
	}
	return at, nil
}

// verify returns an error unless the option has the wanted values and every other option is
// unchanged.
func (f *File) verify(after *File, s Setting) error {
	got := host.Map(after.Find(s.Names...), func(o Option) string { return o.Value })
	if !s.Multi && len(got) > 0 && len(s.Values) > 0 {
		got = got[len(got)-1:]
	}
	if len(got) != len(s.Values) {
		return fmt.Errorf("%w: %s has %d values, not %d", ErrVerify, s.Names[0], len(got), len(s.Values))
	}
	for i, want := range s.Values {
		if !s.same(got[i], want) {
			return fmt.Errorf("%w: a value of %s is missing, or in the wrong place", ErrVerify, s.Names[0])
		}
	}
	others := func(f *File) (others []Option) {
		for _, o := range f.options {
			if !slices.ContainsFunc(s.Names, func(n Name) bool { return n.is(o) }) {
				o.first, o.last = 0, 0
				others = append(others, o)
			}
		}
		return others
	}
	if !slices.Equal(others(f), others(after)) {
		return fmt.Errorf("%w: an option other than %s would change", ErrVerify, s.Names[0])
	}
	return nil
}

// Verify compares an edited file with the original by a second parser, go-ini: it returns an error
// if any option but those of names differs. If go-ini cannot parse the original, because only
// oslo.config accepts its syntax, Verify returns nil.
func Verify(f, after *File, names ...Name) error {
	before, err := f.goINI()
	if err != nil {
		return nil
	}
	now, err := after.goINI()
	if err != nil {
		return fmt.Errorf("%w: %s", ErrVerify, "go-ini cannot parse it")
	}
	for n, values := range before {
		set := slices.ContainsFunc(names, func(name Name) bool { return name.is(Option{Section: n.Section, Key: n.Key}) })
		if !set && !slices.Equal(now[n], values) {
			return fmt.Errorf("%w: %s would change according to go-ini", ErrVerify, n)
		}
	}
	return nil
}

// uncommented returns the text without empty lines and comments, which are most of a sample file
// and take go-ini most of its time. No option continues after such a line: Parse rejects that.
func (f *File) uncommented() []byte {
	var text []byte
	for _, l := range f.lines {
		if !isBlank(l.text) && l.text[0] != '#' && l.text[0] != ';' {
			text = append(append(text, l.text...), '\n')
		}
	}
	return text
}

// goINI parses the file with go-ini, with the options that come closest to oslo.config.
func (f *File) goINI() (map[Name][]string, error) {
	file, err := ini.LoadSources(ini.LoadOptions{
		AllowShadows: true, AllowDuplicateShadowValues: true, AllowPythonMultilineValues: true,
		IgnoreInlineComment: true, PreserveSurroundedQuote: true, IgnoreContinuation: true, KeyValueDelimiters: "=:",
	}, f.uncommented())
	if err != nil {
		return nil, err
	}
	values := map[Name][]string{}
	for _, s := range file.Sections() {
		for _, k := range s.Keys() {
			values[Name{s.Name(), k.Name()}] = k.ValueWithShadows()
		}
	}
	return values, nil
}
